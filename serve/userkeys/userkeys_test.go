package userkeys_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/serve/userkeys"
	"clustermaster/wire"
)

// agreed is the replicated state, with one copy for all masters: what Raft makes of it is tested in
// package cluster.
type agreed struct {
	state    *fsm.State
	noQuorum atomic.Bool
	tries    atomic.Int32

	confirmed atomic.Uint64

	mu     sync.Mutex // guards the rest
	index  uint64
	follow []func(uint64, fsm.Change)
}

func newAgreed(t testing.TB) *agreed {
	t.Helper()
	a := &agreed{state: fsm.New(), index: 1}
	m := fsm.Member{Node: fsm.NodeName("m1", "0000000000000001"), ID: "m1",
		Incarnation: "0000000000000001", Addr: "127.0.0.1:4520", SPKI: [32]byte{1}, Version: "test"}
	r, _ := a.state.Apply(1, &fsm.Found{
		Cluster: fsm.Cluster{UUID: strings.Repeat("a", 32), ClusterID: "c", ClusterKey: "PEM",
			JoinKey: []byte("k"), Partitions: 256},
		Member: m, AES: "aes", Session: []byte("session"),
	})
	if r.Refused != "" {
		t.Fatal(r.Refused)
	}
	return a
}

func (a *agreed) State() *fsm.State { return a.state }

func (a *agreed) Propose(_ context.Context, c fsm.Command) (fsm.Result, uint64, error) {
	a.tries.Add(1)
	if a.noQuorum.Load() {
		return fsm.Result{}, 0, errors.New("no quorum")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index++
	r, change := a.state.Apply(a.index, c)
	for _, f := range a.follow {
		f(a.index, change)
	}
	return r, a.index, nil
}

// ConfirmEverywhere notes that it was asked: what a file holds must be known to all before.
func (a *agreed) ConfirmEverywhere(_ context.Context, index uint64) []string {
	a.confirmed.Store(index)
	return nil
}

// master runs the keys of one master until the test's bubble is to end.
func (a *agreed) master(t *testing.T, dir string, users ...userkeys.User) *userkeys.Keys {
	t.Helper()
	k := userkeys.New(a, dir, users, slog.New(slog.DiscardHandler))
	a.mu.Lock()
	a.follow = append(a.follow, k.Follow)
	a.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return k
}

func put(t *testing.T, dir, user, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(dir, "."+user+"_key")
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600),
		os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// content is a user's file, which must be his alone.
func content(t *testing.T, dir, user string) string {
	t.Helper()
	path := filepath.Join(dir, "."+user+"_key")
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%s: mode %v, %v", path, info.Mode(), err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func newKey(t *testing.T) string {
	t.Helper()
	k, err := wire.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k.String()
}

var me = userkeys.User{Name: "root", UID: os.Geteuid()}

// TestOneKeyForAllMasters: whatever lies in the folders, all masters end with one key per user, in
// the form of Salt's.
func TestOneKeyForAllMasters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAgreed(t)
		first, second, third := t.TempDir(), t.TempDir(), t.TempDir()
		left := newKey(t)
		put(t, first, "root", left, 0o600)
		put(t, second, "root", newKey(t), 0o600)
		gone := userkeys.User{Name: "gone", UID: -1}
		for _, dir := range []string{first, second, third} {
			a.master(t, dir, me, gone)
		}
		for _, dir := range []string{first, second, third} {
			if got := content(t, dir, "root"); got != left {
				t.Errorf("root's key is not the one that a Salt master left to the first: %q", got)
			}
			if got, want := content(t, dir, "gone"), content(t, first, "gone"); got != want {
				t.Errorf("the masters differ on a new key")
			}
		}
		if key, err := wire.ParseKey(content(t, third, "gone")); err != nil ||
			len(key.String()) != 76 {
			t.Errorf("a new key is none of Salt's: %v", err)
		}
	})
}

func TestFilesThatAreNotKept(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, dir, key string){
		"others may read it": func(t *testing.T, dir,
			key string) {
			put(t, dir, "root", key, 0o644)
		},
		"no key": func(t *testing.T, dir,
			key string) {
			put(t, dir, "root", key[:75], 0o600)
		},
		"more than a key": func(t *testing.T, dir,
			key string) {
			put(t, dir, "root", key+"\n", 0o600)
		},
		"a link": func(t *testing.T, dir, key string) {
			put(t, dir, "elsewhere", key, 0o600)
			if err := os.Symlink(".elsewhere_key", filepath.Join(dir, ".root_key")); err != nil {
				t.Fatal(err)
			}
		},
		"a pipe": func(t *testing.T, dir, _ string) {
			if err := syscall.Mkfifo(filepath.Join(dir, ".root_key"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir, key := t.TempDir(), newKey(t)
				prepare(t, dir, key)
				k := newAgreed(t).master(t, dir, me)
				got := content(t, dir, "root")
				if got == key {
					t.Error("the key was kept")
				}
				if agreed, ok := k.Key("root"); !ok || agreed != got {
					t.Errorf("agreed on %v, which is not in the file", ok)
				}
			})
		})
	}
}

// TestFilesBelongToTheirUsers: nobody else reads a key, and what another user wrote is none.
func TestFilesBelongToTheirUsers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: files are given to another user")
	}
	const carol, mallory = 54321, 54322
	synctest.Test(t, func(t *testing.T) {
		dir, planted, own := t.TempDir(), newKey(t), newKey(t)
		put(t, dir, "root", planted, 0o600)
		put(t, dir, "dave", own, 0o600)
		for user, uid := range map[string]int{"root": mallory, "dave": carol} {
			if err := os.Chown(filepath.Join(dir, "."+user+"_key"), uid, -1); err != nil {
				t.Fatal(err)
			}
		}
		newAgreed(t).master(t, dir, userkeys.User{Name: "root", UID: 0},
			userkeys.User{Name: "carol", UID: carol}, userkeys.User{Name: "dave", UID: carol})
		if content(t, dir, "root") == planted {
			t.Error("a key that another user planted for root is taken")
		}
		if content(t, dir, "dave") != own {
			t.Error("a user's own file is not kept")
		}
		for user, uid := range map[string]uint32{"root": 0, "carol": carol, "dave": carol} {
			info, err := os.Lstat(filepath.Join(dir, "."+user+"_key"))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Sys().(*syscall.Stat_t).Uid; got != uid {
				t.Errorf("the key of %s belongs to %d, want %d", user, got, uid)
			}
		}
	})
}

// TestRotationReachesFiles: a key that is replaced, or a file that was touched before a restart, is
// written anew.
func TestRotationReachesFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, dir := newAgreed(t), t.TempDir()
		k := a.master(t, dir, me)
		old, next := content(t, dir, "root"), newKey(t)
		if _, _, err := a.Propose(t.Context(),
			&fsm.SetUserKeys{Keys: []fsm.UserKey{{User: "root", Key: next}},
				Replace: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := content(t, dir, "root"); got != next || got == old {
			t.Error("the new key is not in the file")
		}
		if got, _ := k.Key("root"); got != next {
			t.Error("the old key is still good")
		}
		if at := a.state.AppliedIndex(); a.confirmed.Load() != at {
			t.Errorf("the others confirmed index %d, not %d", a.confirmed.Load(), at)
		}
		put(t, dir, "root", "spoilt", 0o600)
		a.master(t, dir, me) // as after a restart
		if got := content(t, dir, "root"); got != next {
			t.Error("a spoilt file is not mended")
		}
	})
}

// TestWithoutAQuorum: nothing is written that other masters don't know, and it is tried again.
func TestWithoutAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, dir := newAgreed(t), t.TempDir()
		a.noQuorum.Store(true)
		k := a.master(t, dir, me)
		if _, err := os.Lstat(filepath.Join(dir, ".root_key")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file without a key that was agreed on: %v", err)
		}
		a.noQuorum.Store(false)
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		if got, _ := k.Key("root"); got == "" || content(t, dir, "root") != got {
			t.Error("not tried again")
		}
		if n := a.tries.Load(); n < 2 {
			t.Errorf("%d tries", n)
		}
	})
}

func TestUsers(t *testing.T) {
	t.Parallel()
	const passwd = "root:x:0:0::/root:/bin/sh\n# comment\ncarol:x:1001:1001::/:\ndev1:x:1002:1:::\ndev2:x:1003:1:::\nodd\nbad:x:no:1\ncarol:x:7:7:::\n"
	matches := func(user string) bool { return user == "carol" || strings.HasPrefix(user, "dev") }
	named := []string{"carol", "dev.*", "ghost", "a/b", "x\x00y"}
	for _, tt := range []struct {
		name string
		w    userkeys.Wanted
		want string
	}{
		{"patterns mean the system's users",
			userkeys.Wanted{Master: "root", Named: named, Matches: matches, Verify: true},
			"[{carol 1001} {dev1 1002} {dev2 1003} {root 0}]"},
		{"without client_acl_verify names are taken as they stand",
			userkeys.Wanted{Master: "root", Named: named, Matches: matches},
			"[{carol 1001} {dev.* -1} {ghost -1} {root 0}]"},
		{"the master's user need not be known", userkeys.Wanted{Master: "4711", Matches: matches},
			"[{4711 -1}]"},
	} {
		if got := fmt.Sprint(userkeys.Users(passwd, tt.w)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := userkeys.Open(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := userkeys.Open(filepath.Join(dir, "missing")); err == nil {
		t.Error("no error for a folder that is not there")
	}
}
