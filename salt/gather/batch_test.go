package gather

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/value"
)

func TestBatchSize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		spec string
		n    int
		want int
	}{{"3", 10, 3}, {"0", 10, 1}, {"50%", 3, 1}, {"10%", 3, 1}, {"100%", 7, 7}, {"25%", 8,
		2}, {"%50", 4, 2}, {"foo", 3, 0}, {"x%", 3, 0}}
	for _, tt := range tests {
		got, err := batchSize(tt.spec, tt.n)
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("batchSize(%q, %d) = %d, %v; want %d", tt.spec, tt.n, got, err, tt.want)
		}
	}
}

// TestBatch: who is silent on the ping gets nothing, and never more minions run than the window is
// wide.
func TestBatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		size string
		wait time.Duration
		want string
		took time.Duration
	}{
		{name: "one after the other", size: "1", want: "ping a b c | [a] [b] a [c] b c",
			took: 93 * time.Millisecond},
		{name: "two beside each other", size: "2", want: "ping a b c | [a b] [c] a b c",
			took: 62 * time.Millisecond},
		{name: "all", size: "100%", want: "ping a b c | [a b c] a b c",
			took: 32 * time.Millisecond},
		{name: "a pause after each", size: "1", wait: time.Second,
			want: "ping a b c | [a] a [b] b [c] c", took: 93*time.Millisecond + 2*time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := &simulated{subs: make(map[*stream]string), began: time.Now(),
					minions: map[string]minion{
						"a": {after: 30 * time.Millisecond}, "b": {after: 31 * time.Millisecond},
						"c": {after: 32 * time.Millisecond}, "mute": {mute: true},
					}}
				var seen []string
				var began time.Time
				b := Batch{
					Job: Publish{Tgt: "*", Fun: "x.y"}, Size: tt.size, Wait: tt.wait,
					OnPing: func(s Summary) {
						seen = append(seen, "ping "+strings.Join(s.Returned, " ")+" |")
						began = time.Now()
					},
					OnSlice:  func(ids []string) { seen = append(seen, fmt.Sprint(ids)) },
					OnReturn: func(id string, _ Return) { seen = append(seen, id) },
					OnSilent: func(id string) { seen = append(seen, "silent "+id) },
				}
				s, err := b.Run(t.Context(), sim)
				if err != nil || s.Live != 3 || s.JID == "" || s.Halted {
					t.Fatalf("%+v, %v", s, err)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if got := strings.Join(seen, " "); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				sim.wg.Wait()
			})
		})
	}
}

// TestBatchEvents: a batch tells how far it is before its window moves, and at its end, however it
// ends. Package commands compares the whole data with Salt's.
func TestBatchEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		interrupt string // when the window is at this minion
		want      []string
	}{
		{name: "a minion never returns", want: []string{
			"new pending [a b c] active {} done {} failed {} halted False",
			"progress pending [b c] active {a} done {} failed {} halted False",
			"progress pending [c] active {b} done {a} failed {} halted False",
			"progress pending [] active {c} done {a} failed {b: timeout} halted False",
			"progress pending [] active {} done {a} failed {b: timeout, c: timeout} halted False",
			"complete pending [] active {} done {a} failed {b: timeout, c: timeout} halted False"}},
		{name: "interrupted", interrupt: "b", want: []string{
			"new pending [a b c] active {} done {} failed {} halted False",
			"progress pending [b c] active {a} done {} failed {} halted False",
			"progress pending [c] active {b} done {a} failed {} halted False",
			"complete pending [c] active {b} done {a} failed {} halted False"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := &simulated{subs: make(map[*stream]string), began: time.Now(),
					minions: map[string]minion{
						"a": {after: time.Millisecond},
						"b": {after: time.Millisecond, deaf: true},
						"c": {after: time.Millisecond, deaf: true},
					}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var got []string
				b := Batch{Job: Publish{Tgt: "*", Fun: "x.y", JID: "j"}, Size: "1",
					OnSlice: func(ids []string) {
						if ids[0] == tt.interrupt {
							cancel()
						}
					},
					Fire: func(tag string, data value.Map) {
						got = append(got, told(t, tag, data))
					}}
				_, err := b.Run(ctx, sim)
				if (err != nil) != (tt.interrupt != "") {
					t.Errorf("run: %v", err)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"),
						strings.Join(tt.want, "\n"))
				}
				sim.wg.Wait()
			})
		})
	}
}

// told shortens an event of the batch j.
func told(t *testing.T, tag string, data value.Map) string {
	t.Helper()
	what, ok := strings.CutPrefix(tag, "salt/batch/j/")
	if !ok {
		t.Errorf("fired %s", tag)
	}
	state, _ := data.Get("state")
	get := func(key string) any { v, _ := state.(value.Map).Get(key); return v }
	keys := func(key string) string {
		var ids []string
		for _, p := range get(key).(value.Map) {
			text := p.Key.(string)
			if why, ok := p.Value.(string); ok {
				text += ": " + why
			}
			ids = append(ids, text)
		}
		return "{" + strings.Join(ids, ", ") + "}"
	}
	return fmt.Sprintf("%s pending %v active %s done %s failed %s halted %s", what, get("pending"),
		keys("active"), keys("done"), keys("failed"), value.Str(get("halted")))
}

// TestBatchOfBadSize: nothing runs.
func TestBatchOfBadSize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim := &simulated{subs: make(map[*stream]string), began: time.Now(),
			minions: map[string]minion{"a": {after: time.Millisecond}}}
		b := Batch{Job: Publish{Tgt: "*", Fun: "x.y"}, Size: "foo",
			OnSlice: func([]string) { t.Error("something runs") },
			Fire:    func(tag string, _ value.Map) { t.Errorf("fired %s", tag) }}
		_, err := b.Run(t.Context(), sim)
		if err == nil ||
			err.Error() != "Invalid batch specification 'foo': must be an integer or percentage string like '10' or '25%'." {
			t.Error(err)
		}
		sim.wg.Wait()
	})
}

// TestEventsOfLargeBatches: beyond manyReturns events take at most a tenth of the time.
func TestEventsOfLargeBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fired := 0
		b := &Batch{Fire: func(string, value.Map) {
			fired++
			time.Sleep(10 * time.Millisecond) // fake time
		}}
		s := newBatchState(b, nil, 1)
		for n := range 3 * manyReturns {
			s.returned(fmt.Sprint("m", n), Return{})
			s.progress()
			time.Sleep(time.Millisecond) // fake time
		}
		if most := manyReturns + 5; fired < manyReturns || fired > most {
			t.Errorf("%d events, want %d to %d", fired, manyReturns, most)
		}
	})
}
