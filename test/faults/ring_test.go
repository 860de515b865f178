package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// writer sends minions' returns to masters and remembers those that were acknowledged.
type writer struct {
	c       *cluster
	minions []*minion

	mu      sync.Mutex // guards the fields below
	masters []*e2e.Master
	acked   map[string]string // jid to value
	by      map[string]string // jid to minion
	latest  time.Time         // of the jids
	again   map[*minion]unanswered
	lost    int // without an answer
	refused int // with False, as by a quota; the master's log names the reason
}

// unanswered is a return that had no answer. Its minion sends it again, as real ones do.
type unanswered struct{ jid, val string }

// newWriter makes minions whose keys are accepted; they talk to the given masters.
func newWriter(t *testing.T, c *cluster, masters []*e2e.Master) *writer {
	t.Helper()
	w := &writer{c: c, masters: masters, acked: map[string]string{}, by: map[string]string{},
		again: map[*minion]unanswered{}}
	for i := range 4 {
		w.minions = append(w.minions, accepted(t, masters[0], fmt.Sprintf("writer%d", i)))
	}
	return w
}

func (w *writer) to(masters ...*e2e.Master) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.masters = masters
}

// nextReturn is what a minion sends next: a return of that size for a new job, or again one that
// had no answer. The caller holds mu.
func (w *writer) nextReturn(m *minion, size int) unanswered {
	if a, is := w.again[m]; is {
		delete(w.again, m)
		return a
	}
	now := time.Now().Truncate(time.Microsecond)
	if !now.After(w.latest) {
		now = w.latest.Add(time.Microsecond)
	}
	w.latest = now
	jid := wire.JID(now)
	return unanswered{jid, jid + string(bytes.Repeat([]byte{'x'}, size))}
}

// one sends one return.
func (w *writer) one(m *minion, size int) {
	w.mu.Lock()
	try := w.nextReturn(m, size)
	at := w.masters[rand.IntN(len(w.masters))]
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	raw, err := m.ask(ctx, at, m.returned(try.jid, "test.echo", try.val))
	var reply any
	if err == nil {
		reply, err = value.Unpack(raw)
	}
	if err != nil {
		_, _ = m.signIn(ctx, at) // as a minion does: the keys may have been rotated
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.lost++ // it may have been stored, or not
		w.again[m] = try
		return
	}
	if reply != nil {
		w.refused++
		return
	}
	w.acked[try.jid], w.by[try.jid] = try.val, m.id
}

// write sends n returns and expects all to be taken.
func (w *writer) write(t *testing.T, n, size int) {
	t.Helper()
	before := len(w.acked)
	var wg sync.WaitGroup
	for _, m := range w.minions {
		wg.Go(func() {
			for range n / len(w.minions) {
				w.one(m, size)
			}
		})
	}
	wg.Wait()
	if got := len(w.acked) - before; got != n/len(w.minions)*len(w.minions) {
		t.Errorf("%d of %d returns were taken", got, n)
	}
}

// during sends returns until stop is called, at most about that many per second. It expects a tenth
// of them to be taken at least: less proves nothing.
func (w *writer) during(t *testing.T, perSecond, size int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	acked, lost, _ := w.counts()
	var wg sync.WaitGroup
	for _, m := range w.minions {
		wg.Go(func() {
			tick := time.NewTicker(time.Second * time.Duration(len(w.minions)) / time.Duration(perSecond))
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					w.one(m, size)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() {
		t.Helper()
		cancel()
		wg.Wait()
		taken, failed, refused := w.counts()
		taken, failed = taken-acked, failed-lost
		if refused > 0 {
			t.Errorf("%d returns were refused; the masters' logs name the reason", refused)
		}
		t.Logf("%d returns were taken meanwhile, %d had no answer", taken, failed)
		if taken == 0 || 9*taken < failed {
			t.Errorf("too few returns were taken: %d, and %d had no answer", taken, failed)
		}
	}
}

// counts are the returns so far: acknowledged, without an answer, and refused.
func (w *writer) counts() (acked, lost, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked), w.lost, w.refused
}

// found expects every acknowledged return on these masters, looked up by jid.
func (w *writer) found(t *testing.T, masters ...*e2e.Master) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range masters {
		c, err := at(t.Context(), m)
		if err != nil {
			t.Fatalf("%s: %v", m.ID, err)
		}
		defer c.Close()
		missing, example := 0, ""
		for jid, val := range w.acked {
			var got any
			err := c.ReadReturns(within(t, 15*time.Second), jid, []string{w.by[jid]},
				func(_ string, r gather.Return) (err error) {
					got, err = value.Unpack(r.Return)
					return err
				})
			if err != nil || got != val {
				missing, example = missing+1, fmt.Sprintf("%s of %s: %.40v, %v", jid, w.by[jid],
					got, err)
			}
		}
		if missing > 0 {
			t.Errorf("%s lacks %d of %d acknowledged returns, such as %s", m.ID, missing,
				len(w.acked), example)
		}
		for jid, val := range w.acked { // and by the command
			var got map[string]any
			if err := m.RunnerJSON(t, &got, "jobs.lookup_jid", jid); err != nil ||
				got[w.by[jid]] != val {
				t.Errorf("jobs.lookup_jid %s on %s: %v, %.60v", jid, m.ID, err, got)
			}
			break
		}
	}
	t.Logf("%d acknowledged returns are on each of %v; %d had no answer", len(w.acked),
		ids(masters), w.lost)
}

// settled waits until nothing moves on the ring and no copy is owed.
func settled(t *testing.T, c *cluster, masters ...*e2e.Master) {
	t.Helper()
	e2e.Eventually(t, 2*healed, "the ring is settled", func() error {
		for _, m := range masters {
			for _, name := range []string{"pending_partitions", "hints", "under_replicated"} {
				if n := metric(t, m, "clustermaster_ring_"+name, ""); n != 0 {
					return fmt.Errorf("%s has %v %s", m.ID, n, name)
				}
			}
			r := ringOf(t, m)
			if len(r.Nodes) != len(masters) || len(r.Transfers) > 0 || r.Hints != 0 ||
				r.Under != 0 {
				return fmt.Errorf("%s says %+v", m.ID, r)
			}
		}
		return nil
	})
}

// records adds up the records on masters.
func records(t *testing.T, masters ...*e2e.Master) (sum int) {
	t.Helper()
	for _, m := range masters {
		sum += int(metric(t, m, "clustermaster_ring_records", ""))
	}
	return sum
}

// TestRingChanges changes the ring under writes: a join whose transfer is interrupted by a kill, a
// removal, a death and a return. Afterwards every acknowledged return is found everywhere, and each
// record has its three copies.
func TestRingChanges(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slowly+"runner_returns: False\n") // looking must not add records
	three := c.Masters[:3]
	w := newWriter(t, c, three)
	w.write(t, 2000, 4000) // 8 MB
	stop := w.during(t, 40, 1000)

	fourth := c.joiner(t, same)
	fourth.Run(t)
	// Three quarters of that, at 1 MB/s.
	begun := time.Now()
	pending := func(enough int64) func() error {
		return func() error {
			if fourth.Ready() != nil && logLine(t, fourth, 0, "minion ports open") == "" &&
				fourth.Probe("/livez") != nil {
				return errors.New("it doesn't serve yet")
			}
			for _, tr := range ringOf(t, three[0]).Transfers {
				if tr.To == fourth.ID && tr.Partitions > 0 && tr.Bytes >= enough && tr.ETA != nil {
					t.Logf("pending: %d partitions, %d of about %d bytes, %d s to go",
						tr.Partitions, tr.Bytes, tr.Total, *tr.ETA)
					return nil
				}
			}
			return errors.New("no transfer with bytes and time left is shown")
		}
	}
	e2e.Eventually(t, healed, "a transfer is shown", pending(1_000_000))
	had := metric(t, fourth, "clustermaster_ring_transfer_bytes_total", "")
	fourth.Kill(t)
	t.Logf("killed after %.1f MB", had/1e6)
	fourth.Run(t)
	again := time.Now()
	e2e.Eventually(t, 2*healed, "the joiner is ready", fourth.Ready)
	w.to(c.Masters...)
	settled(t, c, c.Masters...)
	fetched := metric(t, fourth, "clustermaster_ring_transfer_bytes_total", "")
	rate := fetched / time.Since(again).Seconds()
	t.Logf("then %.1f MB more; all took %v, the rest %v", fetched/1e6,
		time.Since(begun).Round(time.Second), time.Since(again).Round(time.Second))
	if rate > 1.2e6 {
		t.Errorf("%.0f bytes/s were fetched, with a limit of 1000000", rate)
	}
	if had+fetched > 14e6 {
		t.Errorf("%.1f MB were fetched for 8 MB: the second start began anew", (had+fetched)/1e6)
	}
	stop()
	w.found(t, c.Masters...)
	four := 0
	e2e.Eventually(t, healed, "copies that others own are dropped", func() error {
		n := records(t, c.Masters...)
		if least := 3 * len(w.acked); n != four || n%3 != 0 || n < least {
			four = n
			return fmt.Errorf("%d records on four masters, at least %d wanted", n, least)
		}
		return nil
	})

	succeeds(t, three[0].Runner(t, "cluster.remove", fourth.ID, "keep_secret=True"))
	fourth.Kill(t)
	w.to(three...)
	settled(t, c, three...)
	for _, m := range three {
		equal(t, "records on "+m.ID+", of which four masters had three copies each", records(t, m),
			four/3)
	}

	stop = w.during(t, 40, 1000)
	dead := three[2]
	dead.Kill(t)
	w.to(three[:2]...)
	e2e.Eventually(t, healed, "copies for the dead one are kept", func() error {
		if metric(t, three[0], "clustermaster_ring_hints", "")+
			metric(t, three[1], "clustermaster_ring_hints", "") == 0 {
			return errors.New("none")
		}
		return nil
	})
	dead.Run(t)
	e2e.Eventually(t, healed, "the dead one is back", dead.Ready)
	w.to(three...)
	stop()
	settled(t, c, three...)
	w.found(t, three...)
	if a, b := records(t, three[0]), records(t, dead); a != b {
		t.Errorf("%s has %d records, the one that was dead %d", three[0].ID, a, b)
	}
}
