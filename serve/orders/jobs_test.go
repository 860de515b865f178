package orders

import (
	"context"
	"reflect"
	"testing"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/salt/runner"
	"clustermaster/salt/target"
	"clustermaster/serve/master"
	"clustermaster/serve/operator"
	"clustermaster/serve/origin"
	"clustermaster/store/jobcache"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
	"clustermaster/value"
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

type serving struct{}

func (serving) WaitServing(context.Context) error { return nil }
func (serving) NotServing() string                { return "" }

// A call of a function takes no other job's id, and what it stores and orders belongs to the user
// of external_auth who ordered it, not to one of the system with the same name.
func TestJobsOfARun(t *testing.T) {
	cache := jobcache.New(ringtest.Alone(t, ringstore.Options{}), 86400, time.Now, nil)
	var published master.PublishRequest
	j := NewJobs(JobsDeps{Jobs: cache, Targets: kept{}, Node: serving{},
		TakeIn: func(context.Context) (int, error) { return 0, nil },
		Publish: func(_ context.Context, r master.PublishRequest) (master.Published, error) {
			published = r
			return master.Published{}, nil
		}})
	reg, err := runner.NewRegistry(runner.Test())
	if err != nil {
		t.Fatal(err)
	}
	f := &Functions{Runners: runner.New(runner.RunnerClient, reg, runner.Deps{ID: "m1", Store: j})}
	const roots, alices, local = "20261129101500000001", "20261129101500000002",
		"20261129101500000003"
	if err := cache.SaveLoad(t.Context(), roots, value.Map{{Key: "fun", Value: "cmd.run"},
		{Key: "user", Value: "root"}}, []string{"web-a"}); err != nil {
		t.Fatal(err)
	}
	external := origin.With(t.Context(), origin.Origin{User: "alice", Eauth: "pam"})
	for _, tt := range []struct {
		ctx              context.Context
		jid, user, eauth string
	}{
		{external, roots, "root", ""}, {external, alices, "alice", "pam"},
		{origin.With(t.Context(), origin.Origin{User: "alice"}), local, "alice", ""},
	} {
		res, err := f.Run(tt.ctx, operator.RunRequest{Fun: "test.arg", JID: tt.jid, User: "alice"}, nil)
		if err != nil || !res.Success {
			t.Fatal(err, res)
		}
		user, eauth, found, err := j.Owner(t.Context(), tt.jid)
		if user != tt.user || eauth != tt.eauth || !found || err != nil {
			t.Errorf("job %s belongs to %q of %q, %v, %v", tt.jid, user, eauth, found, err)
		}
		stored := 0
		if err := j.ReadReturns(t.Context(), tt.jid, []string{"m1"},
			func(string, gather.Return) error { stored++; return nil }); err != nil || stored != 1 {
			t.Errorf("job %s: %d results, %v", tt.jid, stored, err)
		}
	}
	for user, want := range map[string]value.Map{
		"alice": {{Key: "batch", Value: true}, {Key: "eauth", Value: "pam"},
			{Key: "username", Value: "alice"}},
		"root": {{Key: "batch", Value: true}},
	} {
		_, err := j.Publish(external, gather.Publish{Tgt: "*", Fun: "test.ping", User: user,
			Kwargs: value.Map{{Key: "batch", Value: true}}})
		if err != nil || !reflect.DeepEqual(published.Kwargs, want) {
			t.Errorf("an order of a function as %s: %v, %v", user, published.Kwargs, err)
		}
	}
}
