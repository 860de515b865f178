package statesync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"clustermaster/test/logtest"
)

// company is a set of masters in one process: real folders and real gRPC; only what they agree on
// is kept by the test.
type company struct {
	t testing.TB

	mu     sync.Mutex // guards all below
	heads  map[Tree]Head
	leader string
	boxes  []*box
}

// box is one master.
type box struct {
	*Store
	c       *company
	node    string
	dir     string // of the store
	file    string // folder of its only root
	pillar  string
	opts    Options
	server  *grpc.Server
	conn    *grpc.ClientConn
	log     *logtest.Buffer
	stopRun context.CancelFunc

	away    bool // guarded by company.mu, as is the next
	outside bool // it has not entered the ring
}

func newCompany(t testing.TB, n int, change ...func(i int, o *Options)) *company {
	t.Helper()
	c := &company{t: t, heads: make(map[Tree]Head)}
	for range n {
		b := c.add(change...)
		b.open()
	}
	c.leader = c.boxes[0].node
	return c
}

func (c *company) add(change ...func(i int, o *Options)) *box {
	c.t.Helper()
	id := fmt.Sprintf("m%d", len(c.boxes)+1)
	top := filepath.Join(c.t.TempDir(), id)
	b := &box{c: c, node: id + "/1", dir: filepath.Join(top, "data"),
		file: filepath.Join(top, "srv"), pillar: filepath.Join(top,
			"pillar"), log: &logtest.Buffer{}}
	b.opts = Options{
		ID: id, Isolated: true, Tick: 20 * time.Millisecond,
		File:   []Env{{Name: "base", Dirs: []string{b.file}}},
		Pillar: []Env{{Name: "base", Dirs: []string{b.pillar}}},
	}
	for _, dir := range []string{b.file, b.pillar, b.dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, f := range change {
		f(len(c.boxes), &b.opts)
	}
	c.mu.Lock()
	c.boxes = append(c.boxes, b)
	c.mu.Unlock()
	c.t.Cleanup(func() {
		b.halt()
		if c.t.Failed() {
			c.t.Logf("log of %s:\n%s", id, b.log)
		}
	})
	return b
}

// open starts the master's store and service on its folders.
func (b *box) open() {
	b.c.t.Helper()
	s, err := Open(b.dir, b, b, b.opts, slog.New(slog.NewTextHandler(b.log, nil)), nil)
	if err != nil {
		b.c.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.c.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	s.RegisterRPC(server)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(ln) }()
	b.c.t.Cleanup(func() { server.Stop(); <-done })
	conn, err := grpc.NewClient(ln.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.c.t.Fatal(err)
	}
	b.c.t.Cleanup(func() { conn.Close() })
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.Store, b.server, b.conn, b.away = s, server, conn, false
}

// run starts the master's own loop.
func (b *box) run() {
	ctx, cancel := context.WithCancel(b.c.t.Context())
	done := make(chan struct{})
	s := b.Store
	go func() { defer close(done); _ = s.Run(ctx) }()
	b.stopRun = func() { cancel(); <-done }
}

func (b *box) halt() {
	if b.stopRun != nil {
		b.stopRun()
		b.stopRun = nil
	}
}

// leave makes the master unreachable; its loop ends.
func (b *box) leave() {
	b.halt()
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.away = true
	b.server.Stop()
}

// Self implements Peers, as do the next three.
func (b *box) Self() string { return b.node }

func (b *box) Members() []string {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	var out []string
	for _, o := range b.c.boxes {
		out = append(out, o.node)
	}
	return out
}

func (b *box) find(node string) (*box, bool) {
	for _, o := range b.c.boxes {
		if o.node == node {
			return o, true
		}
	}
	return nil, false
}

func (b *box) Alive(node string) bool {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	o, ok := b.find(node)
	return ok && !o.away
}

func (b *box) Conn(node string) (grpc.ClientConnInterface, error) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	o, ok := b.find(node)
	if !ok || o.away {
		return nil, errors.New("not there")
	}
	return o.conn, nil
}

// Head implements Heads, as do the next four.
func (b *box) Head(t Tree) (Head, bool) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	h, ok := b.c.heads[t]
	return h, ok
}

func (b *box) Publish(_ context.Context, h Head) error {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.c.heads[h.Tree].Seq+1 != h.Seq {
		return ErrStale
	}
	b.c.heads[h.Tree] = h
	return nil
}

func (b *box) Refresh(ctx context.Context) error { return ctx.Err() }

func (b *box) Leader() (string, bool) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.c.leader, b.c.leader != ""
}

func (b *box) InRing() bool {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return !b.outside
}

// settled makes every master know that it has joined.
func (c *company) settled() *company {
	c.t.Helper()
	for _, b := range c.boxes {
		for _, tree := range []Tree{FileRoots, PillarRoots} {
			if err := b.markCopied(b.trees[tree]); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	return c
}

// sync runs Sync for file_roots and expects it to go through.
func (b *box) sync(req Request) Result {
	b.c.t.Helper()
	if req.Trees == nil {
		req.Trees = []Tree{FileRoots}
	}
	r, err := b.Sync(b.c.t.Context(), req, nil)
	if err != nil {
		b.c.t.Fatal(err)
	}
	return r[0]
}

func (r Result) of(t *testing.T, node string) Report {
	t.Helper()
	i := slices.IndexFunc(r.Reports, func(r Report) bool { return idOf(r.Node) == node })
	if i < 0 {
		t.Fatalf("no report of %s in %+v", node, r.Reports)
	}
	return r.Reports[i]
}

// counts is what a report says in short.
func counts(r Report) string {
	return fmt.Sprintf("+%d ~%d -%d drift %d kept %d %s", r.Added, r.Changed, r.Deleted, r.Drifted,
		r.Kept, r.Error)
}

// tree describes a folder: path to "644 text" for files, "755/" for folders (whose path ends with a
// slash), "-> text" for links.
type tree map[string]string

// made is the mode of a folder that was made with no word about its mode: it goes by the umask.
var made = func() string {
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	return fmt.Sprintf("%o", 0o755&^mask)
}()

// write makes a folder hold just this.
func (tr tree) write(t *testing.T, dir string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(tr)) {
		full, what := filepath.Join(dir, path), tr[path]
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var mode fs.FileMode
		var err error
		switch {
		case strings.HasPrefix(what, "-> "):
			_ = os.Remove(full)
			err = os.Symlink(what[3:], full)
		case strings.HasSuffix(path, "/"):
			if _, err = fmt.Sscanf(what, "%o", &mode); err == nil {
				err = errors.Join(os.MkdirAll(full, 0o755), os.Chmod(full, mode))
			}
		default:
			text := what[min(len(what), 4):]
			if _, err = fmt.Sscanf(what, "%o", &mode); err == nil {
				err = errors.Join(os.WriteFile(full, []byte(text), 0o600), os.Chmod(full, mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// read describes a folder without what this package keeps there.
func read(t *testing.T, dir string) tree {
	t.Helper()
	out, err := describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// describe is read for a folder that may change meanwhile: a file that has gone is an error.
func describe(dir string) (tree, error) {
	out := tree{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if d.Name() == StagingDir {
			return fs.SkipDir
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fmt.Sprintf("%o", info.Mode().Perm())
		switch {
		case d.IsDir():
			out[rel+"/"] = mode
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			out[rel] = "-> " + target
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out[rel] = mode + " " + string(b)
		default:
			out[rel] = "other"
		}
		return nil
	})
	return out, err
}

// differ describes how two folders differ; empty: not at all.
func (tr tree) differ(want tree) string {
	var out []string
	for path, what := range want {
		if got, ok := tr[path]; !ok {
			out = append(out, fmt.Sprintf("%q is not there, want %.60q", path, what))
		} else if got != what {
			out = append(out, fmt.Sprintf("%q is %.60q, want %.60q", path, got, what))
		}
	}
	for path, what := range tr {
		if _, ok := want[path]; !ok {
			out = append(out, fmt.Sprintf("%q is there, with %.60q", path, what))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func expect(t *testing.T, what, dir string, want tree) {
	t.Helper()
	if d := read(t, dir).differ(want); d != "" {
		t.Errorf("%s:\n%s", what, d)
	}
}

// eventually waits until f gives nil.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// has is an error unless the folder holds just this.
func has(dir string, want tree) func() error {
	return func() error {
		have, err := describe(dir)
		if err != nil {
			return err
		}
		if d := have.differ(want); d != "" {
			return errors.New(d)
		}
		return nil
	}
}
