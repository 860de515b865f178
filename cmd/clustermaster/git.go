package main

import (
	"context"
	"crypto/md5"  //nolint:gosec // hash_type is the operator's choice
	"crypto/sha1" //nolint:gosec // hash_type is the operator's choice
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"path/filepath"
	"slices"

	"clustermaster/cluster"
	"clustermaster/cluster/fsm"
	"clustermaster/config"
	"clustermaster/config/settings"
	"clustermaster/salt/pillar"
	"clustermaster/serve/fileserver"
	"clustermaster/serve/gitfs"
	"clustermaster/serve/gitfs/gitpb"
	"clustermaster/value"
)

// openGit opens what serves from git, and sets the file server's back ends. Without a remote there
// is none.
func (r *process) openGit() error {
	o := r.opts
	backends := []fileserver.Backend{}
	files := gitfs.Config{Role: gitfs.RoleFiles,
		Global: func(name string) any { return plainValue(o.Option("gitfs_" + name)) }}
	if slices.Contains(o.FileserverBackend, gitfs.RoleFiles) {
		files.Remotes, _ = plainValue(o.Option("gitfs_remotes")).([]any)
	}
	var pillars []gitfs.Config
	for _, e := range o.ExtPillar {
		m, _ := plainValue(e).(value.Map)
		remotes, _ := gitArgs(m)
		if len(remotes) > 0 {
			pillars = append(pillars, gitfs.Config{
				Role: gitfs.RolePillar, Remotes: remotes,
				Global: func(name string) any { return plainValue(o.Option("git_pillar_" + name)) },
			})
		}
	}
	if len(files.Remotes)+len(pillars) > 0 {
		var peers gitfs.Peers
		if r.port != nil {
			peers = gitPeers{r.node.Peers()}
		}
		store, problems, err := gitfs.New(gitfs.Options{
			Dir: filepath.Join(o.DataDir(), "git"), CacheDir: o.CacheDir, Files: files,
			Pillars: pillars, HashType: o.HashType,
			NewHash: hashOf(o.HashType), Timeout: o.GitFetchTimeout,
			Rate: int64(o.ClusterTransferRate), Signers: o.GitAllowedSigners,
			Low: func() error { return r.disk.Refuse("git", "") }, Changed: r.gitChanged,
		}, gitAgreement{r}, peers, r.log, r.reg)
		if err != nil {
			return err
		}
		for _, p := range problems {
			r.log.Error(p.Error(), "component", "gitfs")
		}
		r.git = store
		backends = append(backends, store)
		r.node.OnApply(func(_ uint64, c fsm.Change) {
			if c.Git || c.Restored {
				store.Follow()
			}
		})
		if r.port != nil {
			r.port.OnUp(func(string) { store.Kick() })
		}
	}
	r.files.Use(o.FileserverBackend, backends...)
	return nil
}

// gitArgs are the remotes of an entry git of ext_pillar.
func gitArgs(entry value.Map) (remotes []any, ok bool) {
	v, ok := entry.Get("git")
	if !ok {
		return nil, false
	}
	switch v := v.(type) {
	case []any:
		return v, true
	case nil:
		return nil, true
	}
	return []any{v}, true
}

// plainValue is wireValue with secrets as they are: for the room that needs them.
func plainValue(v any) any {
	switch x := value.Plain(v).(type) {
	case config.Secret:
		return x.Reveal()
	case value.Map:
		m := make(value.Map, len(x))
		for i, p := range x {
			m[i] = value.Pair{Key: plainValue(p.Key), Value: plainValue(p.Value)}
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = plainValue(e)
		}
		return l
	}
	return settings.Value(v)
}

// hashOf is the option hash_type, which the file server has checked.
func hashOf(name string) func() hash.Hash {
	switch name {
	case "md5":
		return md5.New
	case "sha1":
		return sha1.New
	case "sha224":
		return sha256.New224
	case "sha384":
		return sha512.New384
	case "sha512":
		return sha512.New
	}
	return sha256.New
}

// gitChanged fires the event of new commits: once in the cluster, for only the master that
// published calls it.
func (r *process) gitChanged() {
	if r.opts.Extra["fileserver_events"] == true {
		r.bus.Fire("salt/fileserver/gitfs/update",
			value.Map{{Key: "changed", Value: true}, {Key: "backend", Value: gitfs.RoleFiles}})
	}
}

// gitFolders are the folders of git_pillar as package pillar sees them. The configuration that it
// knows has no secrets, so the entry is found by its place among those of ext_pillar.
func (r *process) gitFolders(ctx context.Context, remotes []any, saltenv,
	pillarenv string) ([]pillar.GitFolder, error) {
	if r.git == nil {
		return nil, fmt.Errorf("no remote of git_pillar is in force; the log says why")
	}
	asked, err := value.Pack(remotes)
	if err != nil {
		return nil, err
	}
	for _, e := range r.opts.ExtPillar {
		shown, _ := settings.Value(e).(value.Map)
		plain, _ := plainValue(e).(value.Map)
		list, ok := gitArgs(shown)
		if packed, err := value.Pack(list); !ok || err != nil || string(packed) != string(asked) {
			continue
		}
		own, _ := gitArgs(plain)
		trees, err := r.git.Pillars(ctx, own, saltenv, pillarenv)
		out := make([]pillar.GitFolder, len(trees))
		for i, t := range trees {
			out[i] = pillar.GitFolder{Dir: t.Dir, Env: t.Env, Mounted: t.Mounted, Files: &trees[i]}
		}
		return out, err
	}
	return nil, fmt.Errorf("these remotes are not in the option ext_pillar of this master")
}

// gitPeers are the other masters as package gitfs sees them.
type gitPeers struct{ cluster.Peers }

func (p gitPeers) Git(node string) (gitpb.GitClient, error) {
	conn, err := p.Conn(node)
	if err != nil {
		return nil, err
	}
	return gitpb.NewGitClient(conn), nil
}

// gitAgreement is the replicated state as package gitfs sees it.
type gitAgreement struct{ r *process }

var _ gitfs.Agreement = gitAgreement{}

func (a gitAgreement) Tables() map[string]gitfs.Table {
	out := make(map[string]gitfs.Table)
	for _, m := range a.r.node.State().GitMirrors() {
		t := gitfs.Table{
			Seq: m.Seq, At: m.At, Locked: m.Locked, Refs: make(gitfs.Refs, len(m.Refs)),
			Before: make(map[string][]string),
			Pins:   make(map[string]gitfs.Pin),
		}
		for _, ref := range m.Refs {
			t.Refs[ref.Name] = ref.Commit
			if len(ref.Before) > 0 {
				t.Before[ref.Name] = ref.Before
			}
		}
		for _, p := range m.Pins {
			t.Pins[p.Env] = gitfs.Pin{Commit: p.Commit, By: p.By, At: p.At}
		}
		out[m.Key] = t
	}
	return out
}

func (a gitAgreement) Publish(ctx context.Context, key string, seq uint64, put gitfs.Refs,
	drop []string) error {
	c := &fsm.SetGitRefs{Key: key, Seq: seq, Drop: drop, At: a.r.node.Now().UTC()}
	for name, commit := range put {
		c.Put = append(c.Put, fsm.GitRef{Name: name, Commit: commit})
	}
	slices.SortFunc(c.Put, func(x, y fsm.GitRef) int {
		if x.Name < y.Name {
			return -1
		}
		return 1
	})
	res, _, err := a.r.node.Propose(ctx, c)
	switch {
	case err != nil:
		return err
	case res.Refused == fsm.RefusedStale:
		return gitfs.ErrStale
	case res.Refused != "":
		return fmt.Errorf("refused: %s", res.Refused)
	}
	return nil
}

func (a gitAgreement) change(ctx context.Context, c *fsm.ChangeGit) error {
	c.At = a.r.node.Now().UTC()
	res, _, err := a.r.node.Propose(ctx, c)
	if err == nil && res.Refused != "" {
		err = fmt.Errorf("refused: %s", res.Refused)
	}
	return err
}

func (a gitAgreement) Pin(ctx context.Context, key, env, commit, by string) error {
	c := &fsm.ChangeGit{Action: fsm.PinGit, Key: key, Env: env, Commit: commit, By: by}
	if commit == "" {
		c.Action = fsm.UnpinGit
	}
	return a.change(ctx, c)
}

func (a gitAgreement) Lock(ctx context.Context, key string, on bool) error {
	c := &fsm.ChangeGit{Action: fsm.UnlockGit, Key: key}
	if on {
		c.Action = fsm.LockGit
	}
	return a.change(ctx, c)
}

func (a gitAgreement) Leading() bool                     { return a.r.node.IsLeader() }
func (a gitAgreement) Leader() (string, bool)            { return a.r.node.Leader() }
func (a gitAgreement) Refresh(ctx context.Context) error { return a.r.node.ReadIndex(ctx) }
