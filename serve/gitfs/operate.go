package gitfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermaster/serve/gitfs/gitpb"
	"clustermaster/value/fnmatch"
)

// RemoteStatus is one remote as operators see it.
type RemoteStatus struct {
	Remote, Role, URL string
	Locked            bool
	Seq               uint64 // of the commits that all masters serve; 0: never fetched
	Tried, Good       time.Time
	Error, Refused    string
	Holders           []string // nodes that serve these commits
	Behind            []string // nodes that don't, or that did not answer
	Envs              []EnvStatus
}

// EnvStatus says what an environment is served from.
type EnvStatus struct {
	Env, Commit, Subject, Author string
	At                           time.Time // of the commit
	PinnedBy                     string    // "" if it is not pinned
}

// named finds remotes by name, id, URL or a pattern of these; "" means all.
func (s *Store) named(remote string) []*Remote {
	var out []*Remote
	for _, r := range s.Remotes() {
		for _, name := range []string{r.Name, r.ID, r.URL, r.Label()} {
			if remote == "" || name != "" && (name == remote || fnmatch.Match(remote, name)) {
				out = append(out, r)
				break
			}
		}
	}
	return out
}

// one finds a single remote; the error lists the existing ones.
func (s *Store) one(remote string) (*Remote, error) {
	found := s.named(remote)
	if len(found) == 1 {
		return found[0], nil
	}
	var labels []string
	for _, r := range s.Remotes() {
		labels = append(labels, r.Label())
	}
	why := "no remote"
	if len(found) > 1 {
		why = "more than one remote"
	}
	return nil, fmt.Errorf("%s is named %q; the remotes are %s", why, redact(remote),
		strings.Join(labels, ", "))
}

// Status describes remotes ("" means all) and which masters serve what.
func (s *Store) Status(ctx context.Context, remote string) ([]RemoteStatus, error) {
	remotes := s.named(remote)
	if len(remotes) == 0 {
		_, err := s.one(remote)
		return nil, err
	}
	told := s.ask(ctx)
	leader, _ := s.with.Leader()
	tables, v := s.with.Tables(), s.view.Load()
	var out []RemoteStatus
	for _, r := range remotes {
		t, b := tables[r.key], v.by[r]
		st := RemoteStatus{Remote: r.Label(), Role: r.Role, URL: redact(r.URL), Locked: t.Locked,
			Seq: t.Seq}
		for _, node := range sorted(told) {
			m := told[node][r.key]
			if m != nil && m.GetSeq() == t.Seq && t.Seq > 0 {
				st.Holders = append(st.Holders, node)
			} else {
				st.Behind = append(st.Behind, node)
			}
			if m != nil && m.GetTried() > st.Tried.UnixNano() &&
				(node == leader || st.Tried.IsZero() || leader == "") {
				st.Tried, st.Error, st.Refused = time.Unix(0,
					m.GetTried()), m.GetError(), m.GetRefused()
				if m.GetGood() > 0 {
					st.Good = time.Unix(0, m.GetGood())
				}
			}
		}
		var err error
		if st.Envs, err = s.envStatus(ctx, b); err != nil {
			return nil, fmt.Errorf("remote %s: %w", r.Label(), err)
		}
		out = append(out, st)
	}
	return out, nil
}

// ask gets the status of all masters.
func (s *Store) ask(ctx context.Context) map[string]map[string]*gitpb.Mirror {
	read := func(r *gitpb.StatusReply) map[string]*gitpb.Mirror {
		out := make(map[string]*gitpb.Mirror)
		for _, m := range r.GetMirrors() {
			out[m.GetMirror()] = m
		}
		return out
	}
	own, _ := (&service{s: s}).Status(ctx, nil)
	if s.peers == nil {
		return map[string]map[string]*gitpb.Mirror{"": read(own)}
	}
	out := map[string]map[string]*gitpb.Mirror{s.peers.Self(): read(own)}
	var (
		mu sync.Mutex // guards out
		wg sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, node := range s.peers.Members() {
		if node == s.peers.Self() {
			continue
		}
		mu.Lock()
		out[node] = nil
		mu.Unlock()
		wg.Go(func() {
			c, err := s.client(node)
			if err != nil || !s.peers.Alive(node) {
				return
			}
			r, err := c.Status(ctx, &gitpb.StatusRequest{})
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[node] = read(r)
		})
	}
	wg.Wait()
	return out
}

// envStatus lists the environments of one remote.
func (s *Store) envStatus(ctx context.Context, b *bound) ([]EnvStatus, error) {
	envs := envsOf([]*bound{b})
	if b.Role == RolePillar {
		envs = nil
		if b.Branch != anyEnv {
			envs = []string{"base"}
		} else {
			for name := range b.refs {
				if ref, ok := strings.CutPrefix(name, "refs/remotes/origin/"); ok {
					if ref == b.Base {
						ref = "base"
					}
					envs = append(envs, ref)
				}
			}
			slices.Sort(envs)
		}
	}
	var out []EnvStatus
	for _, env := range envs {
		var t target
		var err error
		if b.Role == RolePillar {
			var tree *PillarTree
			if tree, err = s.pillarTree(ctx, b, "", env); tree != nil {
				env = tree.Env
				t = target{tree.commit, tree.tree}
			}
		} else {
			t, err = b.target(ctx, env)
		}
		if err != nil && !errors.Is(err, errMissing) && !errors.Is(err, errAwaited) {
			return nil, err
		}
		if t.commit == "" {
			continue
		}
		st, err := b.m.describe(ctx, t.commit)
		if err != nil {
			return nil, err
		}
		st.Env, st.PinnedBy = env, b.pins[env].By
		out = append(out, st)
	}
	return out, nil
}

// describe reads subject, author and time of a commit.
func (m *mirror) describe(ctx context.Context, commit string) (EnvStatus, error) {
	st := EnvStatus{Commit: commit}
	_, raw, err := m.whole(ctx, commit, "commit", maxTree)
	if err != nil {
		return st, err
	}
	head, body, _ := bytes.Cut(raw, []byte("\n\n"))
	for line := range strings.SplitSeq(string(head), "\n") {
		rest, ok := strings.CutPrefix(line, "committer ")
		if author, is := strings.CutPrefix(line, "author "); is {
			rest, ok = author, false
			if i := strings.LastIndex(rest, " <"); i >= 0 {
				st.Author = shown(rest[:i])
			}
		}
		if i := strings.LastIndex(rest, "> "); ok && i >= 0 {
			var sec int64
			if _, err := fmt.Sscan(rest[i+2:], &sec); err == nil {
				st.At = time.Unix(sec, 0).UTC()
			}
		}
	}
	subject, _, _ := bytes.Cut(body, []byte("\n"))
	st.Subject = shown(string(subject))
	return st, nil
}

// shown makes a text from a repository safe for a terminal.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200])
	}
	return s
}

// Change is the effect of a pin on an environment.
type Change struct {
	Remote, Env, From, To string
	// files that differ: a letter as in git diff --name-status, a blank, the path
	Files []string
	More  int // files that are not listed
}

// maxChanges bounds the files that a Change lists.
const maxChanges = 1000

// Pin keeps an environment of a remote at a commit, branch or tag, on all masters, until it is
// unpinned. With dry it only returns the files that would change.
func (s *Store) Pin(ctx context.Context, remote, env, rev, by string, dry bool) (Change, error) {
	r, err := s.one(remote)
	if err != nil {
		return Change{}, err
	}
	b := s.view.Load().by[r]
	_, to, err := b.resolve(ctx, rev)
	if errors.Is(err, errMissing) || err == nil && to.commit == "" {
		hint := ""
		if s.opts.Signers != "" {
			hint = "; with git_allowed_signers the id of a commit is known while a branch or tag stands at it, or did lately"
		}
		return Change{},
			fmt.Errorf("remote %s has no commit, branch or tag %q here; fetch it first with fileserver.update%s", r.Label(), rev, hint)
	}
	if err != nil {
		return Change{}, err
	}
	return s.pin(ctx, b, env, to.commit, by, dry)
}

func (s *Store) pin(ctx context.Context, b *bound, env, to, by string, dry bool) (Change, error) {
	if env == "" || len(env) > maxRefLen || !safeRef(env) {
		return Change{}, fmt.Errorf("%q is not the name of an environment", env)
	}
	change, err := s.change(ctx, b, env, to)
	if err != nil || dry {
		return change, err
	}
	b.m.pinning.Lock()
	defer b.m.pinning.Unlock()
	if err := b.m.complete(ctx, []string{to}); err != nil {
		return change, err
	}
	if err := s.spread(ctx, b.m, []string{to}); err != nil {
		return change, err
	}
	if err := s.with.Pin(ctx, b.key, env, to, by); err != nil {
		return change, err
	}
	s.adopt()
	if change.From != change.To {
		s.announce(b.key)
	}
	return change, nil
}

// now returns what an environment is served from now.
func (s *Store) now(ctx context.Context, b *bound, env string) (target, error) {
	if b.Role == RoleFiles {
		return b.target(ctx, env)
	}
	pillarenv := env
	if b.Branch != anyEnv {
		pillarenv = ""
	}
	tree, err := s.pillarTree(ctx, b, "", pillarenv)
	if errors.Is(err, errNoBranch) {
		return target{}, nil
	}
	if err != nil || tree == nil || tree.Env != env {
		return target{}, err
	}
	return target{tree.commit, tree.tree}, nil
}

// change compares the present target of an environment with another commit.
func (s *Store) change(ctx context.Context, b *bound, env, to string) (Change, error) {
	from, err := s.now(ctx, b, env)
	if err != nil && !errors.Is(err, errMissing) {
		return Change{}, err
	}
	c := Change{Remote: b.Label(), Env: env, From: from.commit, To: to}
	if from.commit == "" || from.commit == to {
		return c, nil
	}
	args := []string{"diff-tree", "-r", "-z", "--no-renames", "--name-status", from.commit,
		to, "--"}
	if root := b.Root(env); root != "" {
		args = append(args, ":(literal)"+root)
	}
	out, err := b.m.run(ctx, nil, args...)
	if err != nil {
		return c, err
	}
	fields := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		if len(c.Files) == maxChanges {
			c.More++
			continue
		}
		c.Files = append(c.Files, fields[i]+" "+shown(fields[i+1]))
	}
	return c, nil
}

// Unpin makes an environment follow its branch or tag again.
func (s *Store) Unpin(ctx context.Context, remote, env, by string, dry bool) (Change, error) {
	r, err := s.one(remote)
	if err != nil {
		return Change{}, err
	}
	b := s.view.Load().by[r]
	if _, ok := s.with.Tables()[r.key].Pins[env]; !ok {
		return Change{}, fmt.Errorf("environment %q of remote %s is not pinned", env, r.Label())
	}
	free := &bound{Remote: b.Remote, m: b.m, refs: b.refs, known: b.known}
	to, err := s.now(ctx, free, env)
	if err != nil {
		return Change{}, err
	}
	change, err := s.change(ctx, b, env, to.commit)
	if to.commit == "" {
		change, err = Change{Remote: r.Label(), Env: env,
			From: s.with.Tables()[r.key].Pins[env].Commit}, nil
	}
	if err != nil || dry {
		return change, err
	}
	if err := s.with.Pin(ctx, r.key, env, "", by); err != nil {
		return change, err
	}
	s.adopt()
	if change.From != change.To {
		s.announce(r.key)
	}
	return change, nil
}

// Rollback pins an environment to the commit that was served before the present one.
func (s *Store) Rollback(ctx context.Context, remote, env, by string, dry bool) (Change, error) {
	r, err := s.one(remote)
	if err != nil {
		return Change{}, err
	}
	b := s.view.Load().by[r]
	name, ok := b.ref(env)
	if r.Role == RolePillar {
		if name = b.Branch; name == anyEnv {
			if name = env; env == "base" {
				name = b.Base
			}
		}
	}
	ref := ""
	if ok {
		ref, _, err = (&bound{Remote: &Remote{RefTypes: refKinds}, m: b.m,
			refs: b.refs}).resolve(ctx, name)
	}
	if err != nil && !errors.Is(err, errMissing) {
		return Change{}, err
	}
	t := s.with.Tables()[r.key]
	before := t.Before[ref]
	if pin, pinned := t.Pins[env]; pinned {
		if i := slices.Index(before, pin.Commit); i >= 0 {
			before = before[i+1:]
		}
	}
	if len(before) == 0 {
		return Change{},
			fmt.Errorf("nothing is known of what environment %q of remote %s was served from before; name a commit with cluster.git_pin", env, r.Label())
	}
	return s.pin(ctx, b, env, before[0], by, dry)
}

// SetLock locks remotes of a role against fetches, or unlocks them: those that a name or pattern
// matches, or all for "". It returns the ids of those that changed.
func (s *Store) SetLock(ctx context.Context, role, remote string, on bool) (ids []string,
	err error) {
	// Another master may have just changed a lock.
	if err := s.with.Refresh(ctx); err != nil {
		return nil, err
	}
	done := make(map[string]bool)
	for _, r := range s.named(remote) {
		if r.Role != role {
			continue
		}
		if s.with.Tables()[r.key].Locked == on && !done[r.key] {
			continue
		}
		if !done[r.key] {
			if err := s.with.Lock(ctx, r.key, on); err != nil {
				return ids, err
			}
			done[r.key] = true
		}
		ids = append(ids, redact(r.ID))
	}
	return ids, nil
}

// Fetched is the result of fetching one remote.
type Fetched struct {
	ID string
	Outcome
}

// UpdateRemotes fetches remotes of a role now; match selects them, nil means all.
func (s *Store) UpdateRemotes(ctx context.Context, role string,
	match func(r *Remote) bool) ([]Fetched, error) {
	var chosen []*Remote
	var keys []string
	for _, r := range s.Remotes() {
		if r.Role == role && (match == nil || match(r)) {
			chosen = append(chosen, r)
			if !slices.Contains(keys, r.key) {
				keys = append(keys, r.key)
			}
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	outcomes, err := s.Update(ctx, keys)
	if err != nil {
		return nil, err
	}
	var out []Fetched
	for _, r := range chosen {
		out = append(out, Fetched{redact(r.ID), outcomes[r.key]})
	}
	return out, nil
}

// ClearCaches drops cached contents and lists. Agreed commits stay, and are still served.
func (s *Store) ClearCaches() {
	s.caches.clear()
	s.dropContents(time.Now().Add(time.Hour))
}
