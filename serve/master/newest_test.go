package master

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"clustermaster/value"
	"clustermaster/wire"
)

// TestKeysOfOthers: a request is served if another master has accepted its minion, although this
// one does not know it yet, and is refused as before if none has or the leader does not answer.
func TestKeysOfOthers(t *testing.T) {
	t.Parallel()
	for _, version := range []int{2, 3} {
		for _, tt := range []struct {
			name   string
			before string // the key's state here
			index  uint64 // how often it had been accepted
			comes  bool   // whether the newest keys have it
			err    error
			served bool
		}{
			{"pending here", "pend", 1, true, nil, true},
			{"accepted with another key here", "accept", 1, true, nil, true},
			{"pending everywhere", "pend", 1, false, nil, false},
			{"no leader", "pend", 1, true, errors.New("no leader"), false},
		} {
			t.Run(fmt.Sprintf("version %d, %s", version, tt.name), func(t *testing.T) {
				t.Parallel()
				k := newKit(t, func(o *Options, _ *Deps) { o.MinimumAuthVersion = 0 })
				k.keys.set("m1", "accept", otherKey().Public().Text())
				k.keys.set("m1", "accept", minionKey().Public().Text())
				m := k.minion(version, "m1")
				sealed := m.seal(value.Map{{Key: "cmd", Value: "_master_opts"},
					{Key: "id", Value: "m1"}}, nonce())
				k.keys.mu.Lock()
				k.keys.state["m1"], k.keys.index["m1"] = tt.before, tt.index
				k.keys.pub["m1"] = otherKey().Public().Text()
				k.keys.mu.Unlock()
				k.cluster.readIndex = func() error {
					if tt.comes && tt.err == nil {
						k.keys.set("m1", "accept", minionKey().Public().Text())
					}
					return tt.err
				}
				reply := k.handle(sealed)
				v, err := value.Unpack(reply)
				if refused := err == nil && v == "bad load"; refused == tt.served {
					t.Errorf("reply %q, served: want %v", reply, tt.served)
				}
				helped := 0.0
				if tt.served {
					helped = 1
				}
				if got := testutil.ToFloat64(k.metrics.caughtUp); got != helped {
					t.Errorf("caught up %v times, want %v", got, helped)
				}
			})
		}
	}
}

// TestQuestionsOnSlowLinks: a leader that takes longer than usual, but not longer than
// cluster_peer_timeout, is waited for.
func TestQuestionsOnSlowLinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for peer, late := range map[time.Duration]bool{1500 * time.Millisecond: true,
			6 * time.Second: false} {
			m, err := New(Deps{Cluster: newFakeCluster(), Keys: newFakeKeys()},
				Options{PeerTimeout: peer}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			m.newest.readIndex = func(ctx context.Context) error {
				select {
				case <-time.After(4 * time.Second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if err := m.newest.wait(t.Context()); (err != nil) != late {
				t.Errorf("cluster_peer_timeout %v: %v", peer, err)
			}
			m.Close()
		}
	})
}

// TestQuestionsAreShared: however many requests are refused, the leader is asked twenty times a
// second at most, and none of them waits for longer than an answer and a pause.
func TestQuestionsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const answer, strangers, per = 10 * time.Millisecond, 200, 100
		asked := 0
		n := &newest{stopped: t.Context(), pause: askPause, limit: askLimit, helped: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "helped"}),
			readIndex: func(context.Context) error { asked++; time.Sleep(answer); return nil }}
		began := time.Now()
		var wg sync.WaitGroup
		for range strangers {
			wg.Go(func() {
				for range per {
					sent := time.Now()
					refusal := n.twice(t.Context(),
						func() *wire.Refusal { return wire.BadLoad("unknown_id") })
					if waited := time.Since(sent); refusal == nil || waited > askPause+answer {
						t.Errorf("refusal %v after %v", refusal, waited)
					}
				}
			})
		}
		wg.Wait()
		if most := int(time.Since(began)/askPause) + 1; asked > most {
			t.Errorf("%d questions in %v", asked, time.Since(began))
		}
	})
}
