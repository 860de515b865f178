package keystore_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"clustermaster/cluster/fsm"
	"clustermaster/keystore"
	"clustermaster/test/logtest"
)

// accepted lists the ids of the accepted keys in a pki directory.
func accepted(t *testing.T, dir string) []string {
	t.Helper()
	keys, err := keystore.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, k := range keys {
		if k.State == keystore.Accepted {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// exported is the pki directory of a master that had two minions and whose cachedir is gone.
func exported(t *testing.T) string {
	t.Helper()
	g := newGroup(t)
	s := store(t, g)
	dir := t.TempDir()
	e, err := keystore.NewExporter(s, dir, neverFounding, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.followed = e.Follow
	e.Follow(g.index, fsm.Change{Restored: true})
	keys := []keystore.Key{{ID: "web1", State: keystore.Accepted, Pub: pems()[0]},
		{ID: "web2", State: keystore.Accepted, Pub: pems()[1]}}
	if n, err := s.Import(t.Context(), keys); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := keystore.CountExported(dir); n != 2 || err != nil {
		t.Fatalf("%d keys are exported, %v", n, err)
	}
	return dir
}

// TestFoundedAnew founds again over the files of a former cluster: it takes its minions over. Files
// stay at each moment at which this master may end.
func TestFoundedAnew(t *testing.T) {
	t.Parallel()
	dir := exported(t)
	g := &group{state: fsm.New(), quorum: true}
	s, founding := store(t, g), false
	e, err := keystore.NewExporter(s, dir, func() bool { return founding }, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.followed = e.Follow
	has := func(when string, want ...string) {
		t.Helper()
		if got := accepted(t, dir); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	e.Follow(g.index, fsm.Change{Restored: true})
	has("in no cluster", "web1", "web2")
	founding = true
	g.found()
	has("founded", "web1", "web2")
	again, err := keystore.NewExporter(s, dir, func() bool { return founding }, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.Follow(g.index, fsm.Change{Restored: true})
	has("started again while it founds", "web1", "web2")
	if err := errors.Join(e.Close(), s.ImportDirs(t.Context(), again, dir, dir)); err != nil {
		t.Fatal(err)
	}
	g.followed = again.Follow
	has("taken over", "web1", "web2")
	if _, ok := s.Accepted("web2"); !ok {
		t.Error("the key of web2 was not taken over")
	}
	if _, _, err := s.Change(t.Context(), keystore.DeleteKeys, []string{"web2"}); err != nil {
		t.Fatal(err)
	}
	has("after a key was deleted, still founding", "web1")
	founding = false
	g.apply(&fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1"},
		From: fsm.StateSet(fsm.KeyAccepted)})
	has("after a key was deleted")
}

// TestJoinedAnew joins the same cluster with an empty cachedir, after a key was deleted there: its
// file goes, and is no preseeded key.
func TestJoinedAnew(t *testing.T) {
	t.Parallel()
	dir := exported(t)
	g := &group{state: fsm.New(), quorum: true}
	s := store(t, g)
	e, err := keystore.NewExporter(s, dir, neverFounding, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Follow(g.index, fsm.Change{Restored: true})
	if got := accepted(t, dir); len(got) != 2 {
		t.Errorf("before it has joined: %q", got)
	}
	g.found()
	if _, err := s.Import(t.Context(), []keystore.Key{{ID: "web1", State: keystore.Accepted, Pub: pems()[0]}}); err != nil {
		t.Fatal(err)
	}
	e.Follow(g.index, fsm.Change{})
	if n, err := e.TakeIn(t.Context()); n != 0 || err != nil {
		t.Errorf("%d keys came back, %v", n, err)
	}
	if got := accepted(t, dir); !slices.Equal(got, []string{"web1"}) {
		t.Errorf("once it has joined: %q", got)
	}
}

// TestNoFileWithoutItsLine: while the journal can't be written no key gets a file, because one that
// no line names would be a preseeded key once its minion was deleted.
func TestNoFileWithoutItsLine(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	s := store(t, g)
	dir := t.TempDir()
	journal := filepath.Join(dir, keystore.JournalName)
	log := new(logtest.Buffer)
	open := func() *keystore.Exporter {
		e, err := keystore.NewExporter(s, dir, neverFounding, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open()
	has := func(when string, want ...string) {
		t.Helper()
		if got := accepted(t, dir); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	once, cancel := context.WithCancel(t.Context())
	cancel() // Run tries once
	if _, err := s.Import(t.Context(), []keystore.Key{{ID: "web1", State: keystore.Accepted,
		Pub: pems()[0]}}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(journal, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	e.Follow(g.index, fsm.Change{Restored: true})
	has("no journal")
	// Run tries again, not each change: whatever else follows the state waits for Follow.
	tried, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		e.Follow(g.index, fsm.Change{})
		e.Follow(g.index, fsm.Change{Restored: true})
	}
	if again, err := os.Stat(dir); err != nil || !again.ModTime().Equal(tried.ModTime()) {
		t.Errorf("a change made the journal anew: %v", err)
	}
	if err := e.Run(once); err != nil || strings.Count(log.String(), "keys not exported") != 1 {
		t.Errorf("%v, log: %s", err, log)
	}
	if err := os.RemoveAll(journal); err != nil {
		t.Fatal(err)
	}
	if err := e.Run(once); err != nil {
		t.Fatal(err)
	}
	has("a journal again", "web1")
	if strings.Count(log.String(), "exported to files again") != 1 {
		t.Errorf("log: %s", log)
	}
	// A file that can't be written is tried again too, and holds up no other.
	g.followed = e.Follow
	blocked := filepath.Join(dir, "minions", "web2")
	if err := os.MkdirAll(filepath.Join(blocked, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Import(t.Context(), []keystore.Key{
		{ID: "web2", State: keystore.Accepted, Pub: pems()[1]},
		{ID: "web3", State: keystore.Accepted, Pub: pems()[1]}}); err != nil {
		t.Fatal(err)
	}
	has("a file is blocked", "web1", "web3")
	if err := errors.Join(os.RemoveAll(blocked), e.Run(once)); err != nil {
		t.Fatal(err)
	}
	has("no file is blocked", "web1", "web2", "web3")
	g.followed = nil
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	// A kill or a full disk left half a line.
	f, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("-minions/web1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	g.apply(&fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1", "web2", "web3"},
		From: fsm.StateSet(fsm.KeyAccepted)})
	e = open()
	e.Follow(g.index, fsm.Change{Restored: true})
	if n, err := e.TakeIn(t.Context()); n != 0 || err != nil {
		t.Errorf("%d deleted keys came back, %v", n, err)
	}
	has("deleted")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// A removed file keeps its line while the folder can't be synced. The line goes as soon as it can
// be: it would take a key that is preseeded later for this program's own, and delete it.
func TestARemovalThatIsNotSyncedIsRepeated(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	s := store(t, g)
	dir := t.TempDir()
	minions := filepath.Join(dir, "minions")
	e, err := keystore.NewExporter(s, dir, neverFounding, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := s.Import(t.Context(), []keystore.Key{{ID: "web1", State: keystore.Accepted,
		Pub: pems()[0]}}); err != nil {
		t.Fatal(err)
	}
	e.Follow(g.index, fsm.Change{Restored: true})
	g.followed = e.Follow
	mayNotSync(t, minions, func() {
		g.apply(&fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1"},
			From: fsm.StateSet(fsm.KeyAccepted)})
	})
	if got := accepted(t, dir); len(got) > 0 {
		t.Fatalf("files of deleted keys: %q", got)
	}
	once, cancel := context.WithCancel(t.Context())
	cancel() // Run tries once
	if err := errors.Join(e.Run(once), os.WriteFile(filepath.Join(minions, "web1"), []byte(pems()[1]),
		0o644)); err != nil {
		t.Fatal(err)
	}
	if n, err := e.TakeIn(t.Context()); n != 1 || err != nil {
		t.Errorf("%d preseeded keys accepted, want 1: %v", n, err)
	}
}

// mayNotSync keeps the calling test, also as root, from opening a folder meanwhile. It may change
// what is in it.
func mayNotSync(t *testing.T, dir string, meanwhile func()) {
	t.Helper()
	do := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	do(os.Chmod(dir, 0o300))
	if os.Getuid() == 0 {
		const nobody = 65534
		runtime.LockOSThread() // the thread ends with the test
		up := filepath.Dir(dir)
		do(os.Chown(dir, nobody, nobody), os.Chmod(up, 0o755), os.Chmod(filepath.Dir(up), 0o755),
			syscall.Setfsuid(nobody))
	}
	meanwhile()
	if os.Getuid() == 0 {
		do(syscall.Setfsuid(0))
	}
	do(os.Chmod(dir, 0o700))
}
