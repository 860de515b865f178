package orders

import (
	"context"
	"testing"

	"clustermaster/salt/gather"
	"clustermaster/salt/runner"
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

// A job for an unknown nodegroup is not published, as with Salt's local client.
func TestUnknownNodegroups(t *testing.T) {
	j := NewJobs(JobsDeps{Targets: kept{}, ConfFile: "/etc/salt/master"})
	const text = "Node group red unavailable in /etc/salt/master"
	for _, tt := range []struct{ tgtType, tgt string }{
		{"nodegroup", "red"}, {"compound", "web-a or N@red"},
	} {
		asked, err := j.Ask(t.Context(), runner.Ask{TgtType: tt.tgtType, Tgt: tt.tgt})
		if asked.Refused != text || err != nil {
			t.Errorf("%s %q: asked: %q, %v", tt.tgtType, tt.tgt, asked.Refused, err)
		}
		done, err := j.Publish(t.Context(), gather.Publish{TgtType: tt.tgtType, Tgt: tt.tgt})
		if done.Error != text || err != nil {
			t.Errorf("%s %q: published: %q, %v", tt.tgtType, tt.tgt, done.Error, err)
		}
	}
}
