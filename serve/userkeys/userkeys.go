package userkeys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/store/durable"
	"clustermaster/wire"
)

// Node is what is asked of the cluster; *cluster.Node is one.
type Node interface {
	State() *fsm.State
	// Propose applies a command and returns when it is applied here; without a quorum it fails
	// soon.
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, uint64, error)
	// ConfirmEverywhere names the members that did not confirm in time that they applied index.
	ConfirmEverywhere(ctx context.Context, index uint64) (unconfirmed []string)
}

// Keys are the keys of users. Safe for concurrent use.
type Keys struct {
	node    Node
	dir     string
	users   []User
	log     *slog.Logger
	changed chan struct{} // holds one when secrets changed
}

// again is how long after a failure it is tried again.
const again = 2 * time.Second

// New makes the keys of these users, in files of dir. Register Follow with OnApply and call Run
// once.
func New(node Node, dir string, users []User, log *slog.Logger) *Keys {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Keys{node: node, dir: dir, users: users, log: log.With("component", "userkeys"),
		changed: make(chan struct{}, 1)}
}

// Key returns the key of a user; false if he has none on any master.
func (k *Keys) Key(user string) (string, bool) { return k.node.State().UserKey(user) }

// Follow is what Node.OnApply calls.
func (k *Keys) Follow(_ uint64, c fsm.Change) {
	if !c.Secrets && !c.Restored {
		return
	}
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Run agrees on the keys of users that have none, and keeps the files equal to what was agreed,
// until ctx ends.
func (k *Keys) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-retry.C:
		}
		err := k.sync(ctx)
		switch {
		case err == nil:
			told = ""
			continue
		case ctx.Err() != nil:
			return nil
		case err.Error() != told:
			told = err.Error()
			k.log.Warn("keys of users are not in their files yet; trying again", "err", err,
				"dir", k.dir)
		}
		retry.Reset(again)
	}
}

func (k *Keys) sync(ctx context.Context) error {
	state := k.node.State()
	if _, founded := state.Cluster(); !founded {
		return errors.New("agree on keys of users: no cluster yet")
	}
	var missing []fsm.UserKey
	for _, u := range k.users {
		if _, has := state.UserKey(u.Name); has {
			continue
		}
		key, err := k.left(u)
		if err != nil {
			return err
		}
		missing = append(missing, fsm.UserKey{User: u.Name, Key: key})
	}
	if len(missing) > 0 {
		r, _, err := k.node.Propose(ctx, &fsm.SetUserKeys{Keys: missing})
		if err == nil && r.Refused != "" {
			err = fmt.Errorf("refused: %s", r.Refused)
		}
		if err != nil {
			return fmt.Errorf("agree on keys of users: %w", err)
		}
	}
	confirmed := false
	var errs []error
	for _, u := range k.users {
		key, has := state.UserKey(u.Name)
		text, good, err := k.read(u)
		if !has || err == nil && good && text == key {
			continue
		}
		if err == nil && text != key {
			k.log.Warn("key file differs from what the masters agreed on; it is replaced", "user", u.Name,
				"path", k.path(u.Name))
		}
		if !confirmed { // who reads a file may order anywhere at once
			k.node.ConfirmEverywhere(ctx, state.AppliedIndex())
			confirmed = true
			key, _ = state.UserKey(u.Name)
		}
		errs = append(errs, k.write(u, key))
	}
	return errors.Join(errs...)
}

func (k *Keys) path(user string) string { return filepath.Join(k.dir, "."+user+"_key") }

// left is the key in a file that is there from before, such as a Salt master's, else a new one.
func (k *Keys) left(u User) (string, error) {
	text, good, err := k.read(u)
	switch {
	case err == nil && good:
		if _, err := wire.ParseKey(text); err == nil {
			return text, nil
		}
		fallthrough
	case err == nil:
		k.log.Warn("key file is replaced: others may know its key, or it holds none", "user",
			u.Name, "path", k.path(u.Name))
	case !errors.Is(err, fs.ErrNotExist):
		k.log.Warn("key file can't be read; it is replaced", "user", u.Name, "path", k.path(u.Name),
			"err", err)
	}
	key, err := wire.NewKey()
	return key.String(), err
}

// maxFile bounds what is read of a file: a key has 76 bytes.
const maxFile = 256

// read returns the content of a user's file, and whether nobody but he and the master can have read
// it.
func (k *Keys) read(u User) (text string, good bool, err error) {
	f, err := os.OpenFile(k.path(u.Name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", false, fmt.Errorf("read key of user %s: %w", u.Name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", false, fmt.Errorf("read key of user %s: %w", u.Name, err)
	}
	if !info.Mode().IsRegular() {
		return "", false, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return "", false, fmt.Errorf("read key of user %s: %w", u.Name, err)
	}
	return string(b), info.Mode().Perm()&^0o600 == 0 && k.owned(u, info), nil
}

// owned reports whether a file belongs to whom it should: the user, where this process may give it
// away.
func (k *Keys) owned(u User, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	owner, me := int(st.Uid), os.Geteuid()
	return owner == u.UID || owner == me && (me != 0 || u.UID < 0)
}

// write makes a user's file anew.
func (k *Keys) write(u User, key string) error {
	path := k.path(u.Name)
	if err := durable.WriteFile(path, []byte(key)); err != nil {
		return fmt.Errorf("write key of user %s: %w", u.Name, err)
	}
	if os.Geteuid() == 0 && u.UID > 0 {
		if err := os.Lchown(path, u.UID, -1); err != nil {
			return fmt.Errorf("give key to user %s: %w", u.Name, err)
		}
	}
	k.log.Info("key of a user written", "user", u.Name, "path", path)
	return nil
}

// Open lets users reach their files in dir, which they may not list (Salt 3008 does so with
// publisher_acl or external_auth).
func Open(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o001 == 0 {
		err = os.Chmod(dir, info.Mode().Perm()|0o001)
	}
	if err != nil {
		return fmt.Errorf("open %s to users: %w", dir, err)
	}
	return nil
}
