package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/cluster/fsm"
)

const boltPage = 4096

// tears are the contents that a file may have after a power cut between two commits: data pages
// come first, then the page that makes them count. Each may end at any byte.
func tears(old, next []byte, step int, try func(what string, content []byte)) {
	old = append(bytes.Clone(old), make([]byte, max(0, len(next)-len(old)))...)
	now := bytes.Clone(old)
	var pages, metas []int
	for at := 0; at < len(next); at += boltPage {
		if end := min(at+boltPage, len(next)); !bytes.Equal(old[at:end], next[at:end]) {
			if at < 2*boltPage {
				metas = append(metas, at)
			} else {
				pages = append(pages, at)
			}
		}
	}
	for _, at := range pages {
		for cut := 0; cut < boltPage; cut += step {
			copy(now[at:at+cut], next[at:at+cut])
			try(fmt.Sprintf("data page at %d cut at %d", at, cut), now)
		}
		copy(now[at:at+boltPage], next[at:])
	}
	for _, at := range metas {
		for cut := range 128 { // a page of this kind has 80 bytes
			copy(now[at:at+cut], next[at:at+cut])
			try(fmt.Sprintf("meta page at %d cut at %d", at, cut), now)
		}
		copy(now[at:at+boltPage], next[at:])
	}
	try("nothing cut", now)
}

// commits is how many commits a file of bbolt has had: the transaction in the newer of its two meta
// pages.
func commits(file []byte) uint64 {
	const at = 16 + 16 + 16 + 8 + 8 // behind the page's header, four numbers, the root, two pages
	return max(binary.NativeEndian.Uint64(file[at:]), binary.NativeEndian.Uint64(file[boltPage+at:]))
}

// The last commit to raft's log may be cut off at any byte: the log opens, and has all that came
// before it.
func TestTornRaftLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	quiet := slog.New(slog.DiscardHandler)
	store, err := openBolt(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(n uint64) *raft.Log {
		return &raft.Log{Index: n, Term: 1, Data: bytes.Repeat([]byte{byte(n)}, 700)}
	}
	const before = 20
	for n := range uint64(before) {
		if err := store.StoreLog(entry(n + 1)); err != nil {
			t.Fatal(err)
		}
	}
	read := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	old := read()
	if err := store.StoreLog(entry(before + 1)); err != nil {
		t.Fatal(err)
	}
	next := read()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(dir, "torn.db")
	tried, had := 0, 0
	tears(old, next, 101, func(what string, content []byte) {
		tried++
		if err := os.WriteFile(torn, content, 0o600); err != nil {
			t.Fatal(err)
		}
		store, err := openBolt(torn, quiet)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer store.Close()
		last, err := store.LastIndex()
		if err != nil || last < before || last > before+1 {
			t.Fatalf("%s: the last entry is %d, %v", what, last, err)
		}
		if last > before {
			had++
		}
		for n := uint64(1); n <= last; n++ {
			var got raft.Log
			if err := store.GetLog(n, &got); err != nil || !bytes.Equal(got.Data, entry(n).Data) {
				t.Fatalf("%s: entry %d: %v", what, n, err)
			}
		}
		if what == "nothing cut" && last != before+1 {
			t.Errorf("%s: the last entry is %d", what, last)
		}
	})
	if tried < 200 || had == 0 || had == tried {
		t.Errorf("%d tears, the last entry was there after %d", tried, had)
	}
}

// A master whose last commit was cut off starts again with all that it had acknowledged before.
func TestMasterWithATornRaftLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(dir string) string { return filepath.Join(dir, "raft", "raft.db") }
	var old, next []byte
	kept := filepath.Join(t.TempDir(), "kept")
	put := func(n *Node, id string) {
		c := &fsm.ImportKeys{Keys: []fsm.Key{{ID: id, State: fsm.KeyAccepted, Pub: "key"}},
			At: time.Now()}
		if _, _, err := n.Propose(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	last := ""
	openedAlone(t, dir, func(n *Node) {
		put(n, "web1")
		for i := 2; i == 2 || commits(next) != commits(old)+1; i++ { // the node writes by itself, too
			if i == 100 {
				t.Fatal("there are never two logs with one commit between them")
			}
			var err1, err2 error
			old, err1 = os.ReadFile(file(dir))
			last = fmt.Sprint("web", i)
			put(n, last)
			next, err2 = os.ReadFile(file(dir))
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	})
	n := 0
	tears(old, next, 1024, func(string, []byte) { n++ })
	tried := rand.New(rand.NewPCG(1, 1)).Perm(n - 1)[:5]
	i := -1
	tears(old, next, 1024, func(what string, content []byte) {
		whole := what == "nothing cut"
		if i++; !whole && !slices.Contains(tried, i) {
			return
		}
		at := filepath.Join(t.TempDir(), "master")
		if err := os.CopyFS(at, os.DirFS(kept)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file(at), content, 0o600); err != nil {
			t.Fatal(err)
		}
		openedAlone(t, at, func(n *Node) {
			if stateOf(n, "web1") != fsm.KeyAccepted {
				t.Errorf("%s: the key that was accepted before is gone", what)
			}
			if whole && stateOf(n, last) != fsm.KeyAccepted {
				t.Error("nothing is cut, and the last key is gone")
			}
		})
	})
}

// A log that was cut off or overwritten is no reason to end with a panic: the start says which file
// it is and what to do, and changes nothing.
func TestDamagedRaftLogStopsTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openedAlone(t, dir, func(n *Node) {
		for i := range 200 {
			c := &fsm.ImportKeys{Keys: []fsm.Key{{ID: fmt.Sprint("web", i), State: fsm.KeyAccepted,
				Pub: strings.Repeat("k", 3000)}}, At: time.Now()}
			if _, _, err := n.Propose(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	})
	path := filepath.Join(dir, "raft", "raft.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	used := len(bytes.TrimRight(whole, "\x00"))
	r := rand.New(rand.NewPCG(1, 2))
	garbage := func(from, to int) []byte {
		b := bytes.Clone(whole)
		for i := from; i < to; i++ {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for what, content := range map[string][]byte{
		"cut to one page":         whole[:boltPage],
		"cut to both metas":       whole[:2*boltPage],
		"cut to some pages":       whole[:9*boltPage],
		"cut in the middle":       whole[:used/2/boltPage*boltPage],
		"cut within a page":       whole[:used/2+77],
		"garbage at the end":      garbage(used-3*boltPage, used),
		"garbage after the metas": garbage(2*boltPage, 4*boltPage),
		"garbage all over":        garbage(0, len(whole)),
		"both metas garbage":      garbage(0, 2*boltPage),
	} {
		at := filepath.Join(t.TempDir(), "master")
		if err := os.CopyFS(at, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(at, "raft", "raft.db")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := Open(Config{ID: "m1", DataDir: at, SnapshotThreshold: 1 << 20}, nil, nil, nil)
		if err == nil {
			// Only where the garbage hit no page that is in use: then nothing may be missing.
			n.Close()
			openedAlone(t, at, func(n *Node) {
				for i := range 200 {
					if id := fmt.Sprint("web", i); stateOf(n, id) != fsm.KeyAccepted {
						t.Errorf("%s: it opens without %s", what, id)
					}
				}
			})
			continue
		}
		if text := err.Error(); !strings.Contains(text, path) ||
			!strings.Contains(text, "nothing was changed") || strings.Contains(text, "\n") {
			t.Errorf("%s: %v", what, err)
		}
		inEntry := strings.Contains(err.Error(), "damaged: entry") // found when the store was open
		if now, err := os.ReadFile(path); err != nil || !inEntry && !bytes.Equal(now, content) {
			t.Errorf("%s: the file was changed: %d bytes, %v", what, len(now), err)
		}
	}
	openedAlone(t, dir, func(n *Node) {
		if stateOf(n, "web199") != fsm.KeyAccepted {
			t.Error("a key is gone from the log that is whole")
		}
	})
}

func stateOf(n *Node, id string) fsm.KeyState {
	k, _ := n.state.Key(id)
	return k.State
}
