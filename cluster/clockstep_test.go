package cluster

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
)

// TestAStepIsNotBelieved sets this machine's clock, and back, after the others' clocks were read
// and before they are compared. A contact that waits for a silent member leaves a second for that.
func TestAStepIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{50 * time.Second, -50 * time.Second, 33 * time.Hour} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			t.Parallel()
			var off time.Duration
			n := &Node{cfg: Config{ClockLimit: 30 * time.Second, ServeWithout: time.Hour,
				Now: func() time.Time { return time.Now().Add(off) }}, state: fsm.New(),
				started: time.Now(), contacts: map[string]contact{}, log: slog.New(slog.DiscardHandler)}
			member := func(no byte) fsm.Member {
				return fsm.Member{ID: fmt.Sprint("m", no), Incarnation: fmt.Sprint(no),
					Node: fmt.Sprintf("m%d/%d", no, no), Addr: fmt.Sprintf("127.0.0.1:%d", no),
					SPKI: [32]byte{no}}
			}
			n.self = member(1)
			n.began.Store(&n.started)
			apply(t, n.state, &fsm.Found{Cluster: fsm.Cluster{UUID: "u", Partitions: 1}, Member: n.self, AES: "a",
				Session: []byte("s")}, &fsm.PutMember{Member: member(2)}, &fsm.PutMember{Member: member(3)})
			read := func() {
				for _, no := range []byte{2, 3} {
					now := n.cfg.Now()
					n.contacts[member(no).Node] = contact{clock: readClock(time.Now().UnixMicro(), now, now,
						n.clockGain(now))}
				}
			}
			if n.ClockJudged() {
				t.Error("the clock is judged before it is compared")
			}
			for _, to := range []time.Duration{step, 0} {
				read()
				n.followClocks()
				read()
				off = to
				n.followClocks()
				if d := time.Until(n.Now()).Abs(); d > time.Second {
					t.Errorf("the clock was set to %v ahead: the time is off by %v", to, d)
				}
				read()
				n.followClocks()
				if d := time.Until(n.Now()).Abs(); d > time.Second {
					t.Errorf("%v ahead, the clocks were read again: the time is off by %v", to, d)
				}
			}
			if !n.ClockJudged() {
				t.Error("the clock was compared, and is not judged")
			}
			n.clockJudged.Store(false)
			if n.cfg.ServeWithout = 0; !n.ClockJudged() {
				t.Error("no clock was compared, and the time to wait for that is over")
			}
		})
	}
}
