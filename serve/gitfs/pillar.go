package gitfs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// pillarGroup is one git entry of the option ext_pillar.
type pillarGroup struct {
	conf    string
	remotes []*Remote
}

// PillarTree is a folder of SLS files that a remote of git_pillar gives to an environment.
type PillarTree struct {
	Dir     string // only a name; the folder does not exist
	Env     string
	Mounted bool // only for the includes of others
	s       *Store
	b       *bound
	repo    string // the commit's tree; links may lead to any part of it
	root    string // of the folder in it
	tree    string // of the folder
	commit  string
	mount   string
}

// Pillars lists the folders that one entry of ext_pillar gives to a request, in its order. Remotes
// without the ref or the root give none; for a missing ref the leader fetches first. The error
// means that the configuration has no such entry, or that a remote's first fetch has not ended.
func (s *Store) Pillars(ctx context.Context, remotes []any, saltenv,
	pillarenv string) ([]PillarTree, error) {
	conf := confKey(remotes)
	i := slices.IndexFunc(s.pillars, func(g pillarGroup) bool { return g.conf == conf })
	if i < 0 {
		return nil, errors.New("these remotes are not in the option ext_pillar of this master")
	}
	v := s.view.Load()
	var out []PillarTree
	for _, r := range s.pillars[i].remotes {
		t, err := s.pillarTree(ctx, v.by[r], saltenv, pillarenv)
		if errors.Is(err, errNoBranch) {
			fetched, failed := s.fetchMissing(ctx, v.by[r].m)
			if failed != nil {
				return nil, fmt.Errorf("remote %s: %w", r.Label(), failed)
			}
			v = s.view.Load()
			t, err = s.pillarTree(ctx, v.by[r], saltenv, pillarenv)
			if env := shown(saltenv + " " + pillarenv); errors.Is(err, errNoBranch) && fetched {
				s.once("git_pillar remote has neither the branch nor a fallback; it gives no pillar",
					r.Label()+env, "remote", r.Label(), "environments", env)
			}
		}
		if errors.Is(err, errNoBranch) {
			if v.by[r].awaited {
				return nil, fmt.Errorf("remote %s: %w", r.Label(), errAwaited)
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("remote %s: %w", r.Label(), err)
		}
		if t != nil {
			out = append(out, *t)
		}
	}
	return out, nil
}

// pillarTree finds the folder that a remote gives to a request: nil if its root is missing, and
// errNoBranch without the branch.
func (s *Store) pillarTree(ctx context.Context, b *bound, saltenv, pillarenv string) (*PillarTree,
	error) {
	asked := "base"
	for _, env := range []string{pillarenv, saltenv} {
		if env != "" {
			asked = env
			break
		}
	}
	name := b.Branch
	if name == anyEnv {
		switch {
		case b.AllSaltenvs != "":
			name = b.AllSaltenvs
		case asked == "base":
			name = b.Base
		default:
			name = asked
		}
	}
	env := name
	switch {
	case b.Branch == anyEnv && b.AllSaltenvs != "":
		env = asked
	case b.Env != "":
		env = b.Env
	case name == b.Base:
		env = "base"
	}
	if env == anyEnv {
		switch {
		case pillarenv != "" || saltenv != "":
			env = asked
		default:
			env = b.Base
		}
	}
	t, err := b.checkout(ctx, env, name)
	if err != nil {
		return nil, err
	}
	tree, root := node{modeFolder, t.tree}, ""
	if root = b.Root(""); root != "" {
		tree, err = b.m.at(ctx, t.tree, path.Clean(root))
		if errors.Is(err, errMissing) || err == nil && !tree.is(modeFolder) {
			s.once("git_pillar remote has no folder of the option root; it gives no pillar",
				b.Label()+name, "remote", b.Label(), "root", root)
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	mount := b.Mountpoint("")
	return &PillarTree{
		Dir: filepath.Join(s.opts.CacheDir, RolePillar, b.key, name, b.Root(""), mount), Env: env,
		Mounted: mount != "",
		s:       s, b: b, repo: t.tree, root: root, tree: tree.id, commit: t.commit, mount: mount,
	}, nil
}

// checkout finds the commit of a pillar: a branch, a tag, then the same for fallback. A pin wins.
// Without any of them the error is errNoBranch.
func (b *bound) checkout(ctx context.Context, env, name string) (target, error) {
	if pin, ok := b.pins[env]; ok {
		return b.held(ctx, pin.Commit)
	}
	for _, n := range []string{name, b.Fallback} {
		if n == "" {
			continue
		}
		for _, ref := range []string{"refs/remotes/origin/" + n, "refs/tags/" + n} {
			if id, ok := b.refs[ref]; ok {
				return b.held(ctx, id)
			}
		}
	}
	return target{}, errNoBranch
}

// List returns the sorted paths of the files in the folder. It follows links to folders.
func (t *PillarTree) List(ctx context.Context) ([]string, error) {
	seen := make(map[string]bool)
	var into func(tree, prefix string, depth int) error
	into = func(tree, prefix string, depth int) error {
		if depth > maxLinkedFolders {
			return nil
		}
		_, err := t.b.m.walk(ctx, tree, func(w walked) error {
			name := path.Join(prefix, w.path)
			if w.is(modeLink) {
				n, err := t.open(ctx, name)
				if errors.Is(err, errMissing) {
					return nil
				}
				if err != nil {
					return err
				}
				if n.is(modeFolder) {
					return into(n.id, name, depth+1)
				}
			}
			if !w.is(modeFolder) && len(seen) < maxEntries {
				seen[path.Join(t.mount, name)] = true
			}
			return nil
		})
		return err
	}
	if err := into(t.tree, "", 0); err != nil {
		return nil, err
	}
	return sorted(seen), nil
}

// maxLinkedFolders bounds the nesting of links to folders.
const maxLinkedFolders = 4

// open finds the entry at a path in the folder. It follows links that stay in the repository.
func (t *PillarTree) open(ctx context.Context, rel string) (node, error) {
	if rel = path.Clean(rel); rel == ".." || strings.HasPrefix(rel, "../") {
		return node{}, errMissing
	}
	rel = path.Join(t.root, rel)
	for range maxLinks {
		done, rest := "", strings.Split(path.Clean(rel), "/")
		next := ""
		n := node{modeFolder, t.repo}
		for i, part := range rest {
			var err error
			if n, err = t.b.m.at(ctx, t.repo, path.Join(done, part)); err != nil {
				return node{}, err
			}
			if !n.is(modeLink) {
				done = path.Join(done, part)
				continue
			}
			to, err := t.b.m.link(ctx, n.id)
			if err == nil && to[0] == '/' {
				err = errMissing
			}
			if err != nil {
				return node{}, err
			}
			next = path.Join(append([]string{done, to}, rest[i+1:]...)...)
			break
		}
		if next == "" {
			return n, nil
		}
		rel = next
	}
	return node{}, errMissing
}

// Open returns a file's content and its name for messages.
func (t *PillarTree) Open(ctx context.Context, name string) (abs string, data []byte, found bool,
	err error) {
	rel := name
	if t.mount != "" {
		in, ok := strings.CutPrefix(name, t.mount+"/")
		if !ok {
			return "", nil, false, nil
		}
		rel = in
	}
	n, err := t.open(ctx, rel)
	if errors.Is(err, errMissing) || err == nil && !n.is(modeFile) {
		return "", nil, false, nil
	}
	if err != nil {
		return "", nil, false, err
	}
	c := &content{s: t.s, m: t.b.m, node: n}
	data, err = c.Whole(ctx, maxPillarFile)
	return filepath.Join(t.Dir, rel), data, err == nil, err
}

// maxPillarFile bounds one SLS file, in bytes.
const maxPillarFile = 64 << 20
