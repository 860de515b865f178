package gather

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadsOfTheJobCache pins how much is read for events that were trimmed or lost: each such
// return once, and no other.
func TestReadsOfTheJobCache(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	const n = 100
	fleet := func(m minion, apart time.Duration) map[string]minion {
		out := make(map[string]minion)
		for i := range n {
			one := m
			one.after += time.Duration(i) * apart
			out[fmt.Sprintf("m%02d", i)] = one
		}
		return out
	}
	tests := []struct {
		name  string
		sim   *simulated
		whole int // returns that came whole
		reads int // most reads of the cache
		took  time.Duration
	}{
		{name: "trimmed at once", whole: n, reads: 2, took: ms + n*ms,
			sim: &simulated{perRead: ms, minions: fleet(minion{after: ms, trimmed: true}, 0)}},
		{name: "trimmed one after the other", whole: n, reads: n, took: n * ms,
			sim: &simulated{minions: fleet(minion{after: ms, trimmed: true}, ms)}},
		{name: "trimmed to the stamp", whole: n, reads: 2, took: ms + n*ms,
			sim: &simulated{perRead: ms, minions: fleet(minion{after: ms, bare: true}, 0)}},
		{name: "slow reads take longer than any fixed limit", whole: n, reads: 2,
			took: ms + n*time.Second,
			sim: &simulated{perRead: time.Second,
				minions: fleet(minion{after: ms, trimmed: true}, 0)}},
		{name: "a read that hangs is given up and goes on", whole: n, reads: 3,
			took: ms + n*ms + readSilence,
			sim: &simulated{failAfter: 40, perRead: ms,
				minions: fleet(minion{after: ms, trimmed: true}, 0)}},
		{name: "dropped", whole: n, reads: 1, took: ms + lossDelay,
			sim: &simulated{minions: fleet(minion{after: ms, dropped: true}, 0)}},
		{name: "dropped while others are read", whole: n, reads: 2, took: 301*ms + lossDelay,
			sim: &simulated{minions: func() map[string]minion {
				all := fleet(minion{after: ms, dropped: true}, 0)
				all["m07"] = minion{after: 301 * ms, dropped: true}
				return all
			}()}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := tt.sim
				s.subs, s.began = make(map[*stream]string), time.Now()
				got := make(map[string]int)
				sum, err := Run(context.Background(), s,
					Publish{Tgt: "*", TgtType: "glob",
						Fun: "test.ping"}, Options{Timeout: time.Hour}, func(id string, r Return) {
						got[id]++
						if string(r.Return) != "\xc3" {
							t.Errorf("%s returned %x", id, r.Return)
						}
					})
				took := time.Since(s.began)
				if err != nil || len(got) != tt.whole || len(sum.NotReturned) != 0 {
					t.Errorf("%d returned and not %v, %v; want %d", len(got), sum.NotReturned, err,
						tt.whole)
				}
				for id, times := range got {
					if times != 1 {
						t.Errorf("%s was handed out %d times", id, times)
					}
				}
				if len(s.reads) > tt.reads || s.readBytes > tt.whole+1 {
					t.Errorf("%d reads %v brought %d returns; want at most %d reads, each return once", len(s.reads), s.reads, s.readBytes, tt.reads)
				}
				if took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				s.wg.Wait()
			})
		})
	}
}

// TestEventsAreTakenDuringARead: a minion whose event comes whole does not wait for the large
// returns of others.
func TestEventsAreTakenDuringARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{subs: make(map[*stream]string), began: time.Now(), perRead: 2 * time.Second,
			minions: map[string]minion{
				"large": {after: time.Millisecond, trimmed: true}, "small": {after: time.Second},
			}}
		at := make(map[string]time.Duration)
		_, err := Run(context.Background(), s, Publish{Fun: "test.ping"}, Options{},
			func(id string, _ Return) { at[id] = time.Since(s.began) })
		if err != nil || at["small"] != time.Second ||
			at["large"] != 2*time.Second+time.Millisecond {
			t.Errorf("returns at %v, %v", at, err)
		}
		s.wg.Wait()
	})
}

// TestATrimmedReturnThatTheCacheLacks is handed on as it came.
func TestATrimmedReturnThatTheCacheLacks(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"it has none": false, "it can't be read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &simulated{subs: make(map[*stream]string), began: time.Now(),
					minions: map[string]minion{"a": {after: time.Millisecond, trimmed: true}}}
				var got []string
				_, err := Run(context.Background(), &uncached{s, fails}, Publish{Fun: "test.ping"},
					Options{}, func(_ string, r Return) {
						v, _ := r.Return.Text()
						got = append(got, v)
					})
				if err != nil || len(got) != 1 || got[0] != "VALUE_TRIMMED" {
					t.Errorf("got %q, %v", got, err)
				}
				s.wg.Wait()
			})
		})
	}
}

// TestARunThatEndsDuringARead leaves nothing behind; synctest sees goroutines that stay.
func TestARunThatEndsDuringARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{subs: make(map[*stream]string), began: time.Now(),
			minions: map[string]minion{"a": {after: time.Millisecond, trimmed: true}}}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := Run(ctx, &uncached{s, true}, Publish{Fun: "test.ping"}, Options{},
			func(string, Return) { t.Error("a return") }); err == nil {
			t.Error("no error")
		}
		s.wg.Wait()
	})
}

// uncached is a master whose job cache is empty, or hangs.
type uncached struct {
	*simulated
	hangs bool
}

func (u *uncached) ReadReturns(ctx context.Context, _ string, _ []string,
	_ func(string, Return) error) error {
	if u.hangs {
		<-ctx.Done()
	}
	return ctx.Err()
}
