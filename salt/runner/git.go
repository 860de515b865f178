package runner

import (
	"context"
	"errors"
	"strings"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// GitRemote is one git remote as operators see it.
type GitRemote struct {
	Remote, Role, URL string
	Locked            bool
	Fetched           time.Time // last fetch that succeeded; zero: unknown to the leader
	Tried             time.Time
	Error, Refused    string
	Holders, Behind   []string // ids of masters
	Envs              []GitEnv
}

// GitEnv says what an environment is served from.
type GitEnv struct {
	Env, Commit, Subject, Author string
	At                           time.Time
	PinnedBy                     string // "" if it is not pinned
}

// GitChange is the effect of a pin.
type GitChange struct {
	Remote, Env, From, To string
	Files                 []string
	More                  int
}

// GitRemotes are the remotes of gitfs and git_pillar. Callers name a remote by its name, id or URL.
type GitRemotes interface {
	GitStatus(ctx context.Context, remote string) ([]GitRemote, error)
	GitPin(ctx context.Context, remote, env, commit, by string, dry bool) (GitChange, error)
	GitUnpin(ctx context.Context, remote, env, by string, dry bool) (GitChange, error)
	GitRollback(ctx context.Context, remote, env, by string, dry bool) (GitChange, error)
	// UpdatePillars fetches remotes of git_pillar, by branch and by URL or name ("" is any). It
	// returns a map from id to True for new commits, None for none and False for an error.
	UpdatePillars(ctx context.Context, branch, repo string) (value.Map, error)
}

// Git is the family of functions about git remotes.
func Git(g GitRemotes) []Function {
	change := func(name, doc string, params []function.Param,
		run func(context.Context, *Call) (GitChange, error)) Function {
		return Function{
			Name: "cluster." + name, Params: append(params, function.Opt("test", false)),
			Doc: doc + `

test : False
    Only list the files that would change.

Example:

    salt-run cluster.` + name + " states base",
			Run: func(ctx context.Context, c *Call) (any, error) {
				done, err := run(ctx, c)
				if err != nil {
					return nil, err
				}
				out := value.Map{
					{Key: "remote", Value: done.Remote}, {Key: "environment", Value: done.Env},
					{Key: "from", Value: done.From},
					{Key: "to", Value: done.To}, {Key: "changed", Value: !c.True("test") &&
						done.From != done.To}, {Key: "files", Value: value.Texts(done.Files)},
				}
				if done.More > 0 {
					out = append(out, value.Pair{Key: "more", Value: int64(done.More)})
				}
				return out, nil
			},
		}
	}
	return []Function{
		{
			Name: "cluster.git_status", Params: []function.Param{function.Opt("remote", nil)},
			Doc: `Show which commits of git remotes are served, which masters serve them, and how the last fetch
ended.

Example:

    salt-run cluster.git_status`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				all, err := g.GitStatus(ctx, c.Text("remote"))
				if err != nil {
					return nil, err
				}
				out := value.Map{}
				for _, r := range all {
					out = append(out, value.Pair{Key: r.Remote, Value: gitRemote(r)})
				}
				return out, nil
			},
		},
		change("git_pin",
			"Pin an environment of a remote to a commit, branch or tag, on all masters, until cluster.git_unpin.",
			[]function.Param{function.Need("remote"), function.Need("environment"),
				function.Need("commit")}, func(ctx context.Context, c *Call) (GitChange, error) {
				return g.GitPin(ctx, c.Text("remote"), c.Text("environment"), c.Text("commit"),
					c.User, c.True("test"))
			}),
		change("git_unpin", "Let an environment of a remote follow its branch or tag again.",
			[]function.Param{function.Need("remote"),
				function.Need("environment")},
			func(ctx context.Context, c *Call) (GitChange, error) {
				return g.GitUnpin(ctx, c.Text("remote"), c.Text("environment"), c.User,
					c.True("test"))
			}),
		change("git_rollback",
			"Pin an environment of a remote to the commit served before. Each further call goes one commit back.",
			[]function.Param{function.Need("remote"),
				function.Need("environment")},
			func(ctx context.Context, c *Call) (GitChange, error) {
				return g.GitRollback(ctx, c.Text("remote"), c.Text("environment"), c.User,
					c.True("test"))
			}),
		{
			Name: "git_pillar.update", Params: []function.Param{function.Opt("branch", nil),
				function.Opt("repo", nil)},
			Doc: `Fetch remotes of git_pillar now: all, or those of a branch and of a URL or name. True says that
there are new commits, None that there are none, False that the fetch failed.

Example:

    salt-run git_pillar.update repo=https://git.example.org/pillar.git`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				done, err := g.UpdatePillars(ctx, c.Text("branch"), c.Text("repo"))
				switch {
				case err != nil:
					return nil, err
				case len(done) > 0:
					return done, nil
				case c.Given("branch") || c.Given("repo"):
					return nil,
						errors.New("Specified git branch/repo not found in ext_pillar config") // as Salt says it
				}
				return nil,
					errors.New("No git_pillar remotes are configured") // as Salt says it
			},
		},
	}
}

func gitRemote(r GitRemote) value.Map {
	ago := func(at time.Time) any {
		if at.IsZero() {
			return nil
		}
		return int64(time.Since(at).Seconds())
	}
	envs := value.Map{}
	for _, e := range r.Envs {
		one := value.Map{
			{Key: "commit", Value: e.Commit}, {Key: "subject", Value: e.Subject},
			{Key: "author", Value: e.Author},
			{Key: "age", Value: ago(e.At)},
		}
		if e.PinnedBy != "" {
			one = append(one, value.Pair{Key: "pinned_by", Value: e.PinnedBy})
		}
		envs = append(envs, value.Pair{Key: e.Env, Value: one})
	}
	out := value.Map{
		{Key: "role", Value: r.Role}, {Key: "url", Value: r.URL},
		{Key: "last_fetch", Value: ago(r.Fetched)},
		{Key: "holders", Value: value.Texts(r.Holders)}, {Key: "behind", Value: value.Texts(r.Behind)},
		{Key: "environments", Value: envs},
	}
	for _, more := range []struct{ key, text string }{{"error", r.Error}, {"refused", r.Refused}} {
		if text := strings.TrimSpace(more.text); text != "" {
			out = append(out, value.Pair{Key: more.key, Value: text})
		}
	}
	if r.Locked {
		out = append(out, value.Pair{Key: "locked", Value: true})
	}
	return out
}
