package gather

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

// TestBatchOfBadSize: nothing runs.
func TestBatchOfBadSize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim := &simulated{subs: make(map[*stream]string), began: time.Now(),
			minions: map[string]minion{"a": {after: time.Millisecond}}}
		b := Batch{Job: Publish{Tgt: "*", Fun: "x.y"}, Size: "foo",
			OnSlice: func([]string) { t.Error("something runs") }}
		_, err := b.Run(t.Context(), sim)
		if err == nil ||
			err.Error() != "Invalid batch specification 'foo': must be an integer or percentage string like '10' or '25%'." {
			t.Error(err)
		}
		sim.wg.Wait()
	})
}
