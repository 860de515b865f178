package master

import (
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"clustermaster/wire"
)

// TestJobIDs: every jid is later than those before it, with the clock standing still, going back,
// and under concurrency.
func TestJobIDs(t *testing.T) {
	t.Parallel()
	var clock sync.Mutex
	now := time.Date(2026, 11, 21, 9, 38, 24, 128016789, time.UTC)
	k := newKit(t, nil)
	k.now = func() time.Time {
		clock.Lock()
		defer clock.Unlock()
		now = now.Add(-time.Millisecond)
		return now
	}
	if first := k.NewJID(); first != "20261121093824127016" {
		t.Errorf("the first is %s", first)
	}
	var mu sync.Mutex
	var all []string
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			mine := make([]string, 500)
			for i := range mine {
				mine[i] = k.NewJID()
			}
			if !slices.IsSorted(mine) {
				t.Error("a later jid is smaller")
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	work.Wait()
	slices.Sort(all)
	if len(slices.Compact(all)) != 8*500 {
		t.Error("a jid was given twice")
	}
}

// TestUniqueJobIDs: with unique_jid two masters never give the same jid, though process and
// microsecond are the same; what reads jids reads these, and minions find them in the order of time
// when they read them as integers.
func TestUniqueJobIDs(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 9, 38, 24, 128016789, time.UTC)
	form := regexp.MustCompile(`^20261121093824128016_\d{17}$`)
	seen := map[string]bool{}
	for _, node := range []string{"m1/1", "m1/2", "m2/1"} {
		k := newKit(t, func(o *Options, _ *Deps) { o.UniqueJID, o.Node = true, node })
		k.now = func() time.Time { return now }
		first, second := k.NewJID(), k.NewJID()
		if !form.MatchString(first) || seen[first] || !wire.IsJID(first) ||
			wire.JIDTime(first) != "2026, Nov 21 09:38:24.128016" {
			t.Errorf("%s gives %s", node, first)
		}
		if at, ok := wire.ParseJID(first); !ok || !at.Equal(now.Truncate(time.Microsecond)) {
			t.Errorf("%s: time %s, %v", first, at, ok)
		}
		if second <= first || second[20:] != first[20:] {
			t.Errorf("after %s comes %s", first, second)
		}
		seen[first] = true
		// Everything that gets a jid from a master gets one of these.
		m := k.accept("m1")
		m.call(dict("cmd", "_return", "return", true, "jid", "req", "fun", "test.ping", "fun_args",
			[]any{}))
		done, err := k.Publish(t.Context(), PublishRequest{Tgt: "m1", Fun: "test.ping"})
		if err != nil || len(k.jobs.returns) != 1 || done.JID[20:] != first[20:] {
			t.Errorf("published as %s, %v; returns %v", done.JID, err, k.jobs.returns)
		}
		for jid := range k.jobs.returns {
			if jid[20:] != first[20:] {
				t.Errorf("a return without a job got %s", jid)
			}
		}
	}
	if _, err := strconv.Atoi(uniqueSuffix("m1/1")[1:]); err != nil {
		t.Error(err)
	}
}
