package orders

import (
	"context"
	"testing"

	"clustermaster/salt/target"
)

// kept is a target.Source of two minions. Of web-a, and of nobody else, it has grains: the term
// asked about holds for them.
type kept struct{ cached bool }

func (kept) AcceptedIDs() []string        { return []string{"web-a", "web-b"} }
func (kept) Nodegroup(string) (any, bool) { return nil, false }
func (k kept) DataCache() bool            { return k.cached }

func (kept) Ask(_ context.Context, q target.Question, fn func(string, target.Hits)) (string, error) {
	fn("web-a", target.Hits{1<<len(q.Terms) - 1})
	return "", nil
}

// Rights of minions hang on match.compound_matches, so a minion of which nothing is known matches
// nothing (salt/runners/match.py, Salt 3008).
func TestMeansOnlyWhatIsKnown(t *testing.T) {
	for _, tt := range []struct {
		cached  bool
		tgt, id string
		means   bool
	}{
		{true, "G@os:Plan9", "web-a", true},
		{true, "G@os:Plan9", "web-b", false},
		{true, "S@10.0.0.0/8", "web-b", false},
		{true, "web-b", "web-b", true},
		{false, "G@os:Plan9", "web-a", false},
		{false, "not G@os:Plan9", "web-b", false},
		{false, "web-*", "web-a", false},
	} {
		j := NewJobs(JobsDeps{Targets: kept{tt.cached}})
		means, incomplete, err := j.Means(t.Context(), tt.tgt, tt.id)
		if means != tt.means || incomplete != "" || err != nil {
			t.Errorf("%s means %s, data kept %v: %v, %q, %v; want %v", tt.tgt, tt.id, tt.cached, means,
				incomplete, err, tt.means)
		}
	}
}
