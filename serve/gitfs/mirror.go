package gitfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermaster/store/durable"
)

// Bounds of a mirror.
const (
	maxRefs   = 10_000 // branches and tags of one repository
	maxRefLen = 512    // bytes of one name
)

// keepRefs is the prefix of refs that protect commits that are, or may be, served.
const keepRefs = "refs/clustermaster/keep/"

// Refs maps the branches (refs/remotes/...) and tags (refs/tags/...) of a repository to their
// commits in hexadecimal.
type Refs map[string]string

// caches are shared by all mirrors, each with a bound in bytes. They keep what many minions request
// at a time; everything else is read from files, which the system caches.
type caches struct {
	trees  *lru[string, *tree]  // by id
	blobs  *lru[string, []byte] // small contents, by id; never written to
	sums   sums                 // hash_type of contents
	lists  *lru[string, *lists] // by environment and what it is made of
	folder string               // of requested contents, by id
}

// newCaches keeps hashes of hashSize bytes, and contents in files below folder.
func newCaches(folder string, hashSize int) *caches {
	return &caches{
		sums:  sums{width: hashSize},
		trees: newLRU[string, *tree](8 << 20),
		blobs: newLRU[string, []byte](1 << 20),
		lists: newLRU[string, *lists](24 << 20), folder: folder,
	}
}

func (c *caches) clear() {
	c.trees.clear()
	c.blobs.clear()
	c.sums.clear()
	c.lists.clear()
}

// mirror is the bare copy of one repository.
type mirror struct {
	key     string
	remote  *Remote // the first that uses it: for access
	dir     string
	git     *program
	caches  *caches
	readers readers
	broken  atomic.Bool // an object is missing or corrupt: Run makes the mirror anew

	working places    // one: to fetch and publish, catch up, mend or tidy; guards the next four
	mending attempt   // the last one to make the mirror anew
	behind  time.Time // of the last attempt to catch up
	tidied  time.Time
	hung    bool // the last fetch failed after a long time

	pinning  sync.Mutex // held while a commit is pinned, and while a new mirror replaces this one
	fetching sync.Mutex // one fetch, pack or maintenance at a time

	mu      sync.Mutex      // guards all below
	held    map[string]bool // commits of which this mirror has all objects
	served  Refs            // in force here; nil: none yet
	seq     uint64          // of served
	fetched Fetch
	asked   chan struct{} // closed when the last fetch for a missing branch has ended; nil: none
	spent   time.Time     // until when such fetches have used up their share
}

// Fetch describes this master's last fetch of a remote.
type Fetch struct {
	At      time.Time     // of the last attempt; zero: none
	Good    time.Time     // of the last that succeeded
	Took    time.Duration // of the last that succeeded
	Error   string        // of the last attempt; "" if it succeeded
	Failed  int           // failed attempts since the last that succeeded
	Refused string        // refs that were left out, with the reason
}

// openMirror opens the mirror of a remote, and makes it if it does not exist.
func openMirror(ctx context.Context, git *program, c *caches, dir string, r *Remote) (*mirror,
	error) {
	m := &mirror{
		key: r.key, remote: r, dir: filepath.Join(dir, r.key), git: git, caches: c,
		held:    make(map[string]bool),
		readers: readers{slots: make(chan struct{}, maxReaders)},
		working: make(places, 1), tidied: time.Now(),
	}
	if m.removed() {
		if err := m.initialise(ctx); err != nil {
			return nil, err
		}
	}
	m.unlock("refs")
	m.sweep()
	if err := m.readHeld(ctx); err != nil {
		// An unreadable mirror is made anew: all its contents can be fetched again.
		if err := errors.Join(os.RemoveAll(m.dir), m.initialise(ctx)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// removed reports whether there is no mirror on the disk.
func (m *mirror) removed() bool {
	_, err := os.Stat(filepath.Join(m.dir, "HEAD"))
	return errors.Is(err, fs.ErrNotExist)
}

// unlock removes the locks that a killed git left behind, below folders of refs. No git may be
// writing there.
func (m *mirror) unlock(dirs ...string) {
	for _, name := range []string{"packed-refs.lock", "config.lock", "shallow.lock", "gc.pid"} {
		_ = os.Remove(filepath.Join(m.dir, name))
	}
	for _, dir := range dirs {
		_ = filepath.WalkDir(filepath.Join(m.dir, dir),
			func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() && strings.HasSuffix(path, ".lock") {
					_ = os.Remove(path)
				}
				return nil
			})
	}
}

// sweep removes what a git that failed left of packs: parts of them, and the marks that keep a pack
// of a fetch from being packed again. No git may be writing there.
func (m *mirror) sweep() {
	dir := filepath.Join(m.dir, "objects", "pack")
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		name := f.Name()
		if strings.HasPrefix(name, "tmp_") || strings.HasPrefix(name, ".tmp-") ||
			strings.HasSuffix(name, ".keep") {
			_ = os.Remove(filepath.Join(dir, name))
		}
	}
}

func (m *mirror) initialise(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(m.dir), 0o700); err != nil {
		return fmt.Errorf("make folder of mirrors: %w", err)
	}
	if _, err := m.git.do(ctx, run{dir: filepath.Dir(m.dir),
		args: []string{"init", "-q", "--bare", "--template=", m.dir}}); err != nil {
		return err
	}
	return nil
}

func (m *mirror) run(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	return m.git.do(ctx, run{dir: m.dir, stdin: bytes.NewReader(stdin), args: args})
}

// readHeld lists the complete commits: a commit's ref is written once it is complete.
func (m *mirror) readHeld(ctx context.Context) error {
	out, err := m.run(ctx, nil, "for-each-ref", "--format=%(objectname)", keepRefs)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range strings.FieldsSeq(string(out)) {
		m.held[id] = true
	}
	return nil
}

// fetch updates the mirror from the remote, and returns the remote's refs.
func (m *mirror) fetch(ctx context.Context, r *Remote) (Refs, error) {
	m.fetching.Lock()
	defer m.fetching.Unlock()
	args := slices.Concat([]string{"fetch", "-q", "--prune", "--force", "--no-write-fetch-head",
		"--", r.URL}, r.Refspecs)
	if _, err := m.git.do(ctx, run{dir: m.dir, remote: r, args: args}); err != nil {
		m.unlock("refs/remotes", "refs/tags")
		m.sweep()
		return nil, err
	}
	return m.refs(ctx)
}

// refs reads the refs that the last fetch left.
func (m *mirror) refs(ctx context.Context) (Refs, error) {
	out, err := m.run(ctx, nil, "for-each-ref", "--count=200000",
		"--format=%(objecttype) %(objectname) %(*objecttype) %(*objectname) %(refname)",
		"refs/remotes/", "refs/tags/")
	if err != nil {
		return nil, err
	}
	refs := make(Refs)
	for line := range strings.Lines(string(out)) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		id, rest, _ := strings.Cut(rest, " ")
		peeledKind, rest, _ := strings.Cut(rest, " ")
		peeled, name, _ := strings.Cut(rest, " ")
		if kind == "tag" {
			kind, id = peeledKind, peeled
			if kind == "tag" { // of a tag
				if full, _, err := m.commitTree(ctx, name); err == nil {
					kind, id = "commit", full
				}
			}
		}
		if kind != "commit" || len(name) > maxRefLen || !safeRef(name) {
			continue
		}
		if refs[name] = id; len(refs) > maxRefs {
			return nil,
				fmt.Errorf("it has more than %d branches and tags; narrow the option refspecs",
					maxRefs)
		}
	}
	return refs, nil
}

// safeRef refuses names of refs that could lead elsewhere when used as names of environments.
func safeRef(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if !safeName(part) {
			return false
		}
	}
	return true
}

// keep notes that commits are complete here, by refs that protect them from garbage collection. It
// is short and does not end with ctx: a killed update-ref leaves locks, and no later run could keep
// the same commit.
func (m *mirror) keep(ctx context.Context, commits []string) error {
	m.mu.Lock()
	var in strings.Builder
	var fresh []string
	for _, id := range commits {
		if !m.held[id] {
			fresh = append(fresh, id)
			fmt.Fprintf(&in, "update %s%s %s\n", keepRefs, id, id)
		}
	}
	m.mu.Unlock()
	if len(fresh) == 0 {
		return nil
	}
	if _, err := m.run(context.WithoutCancel(ctx), []byte(in.String()), "update-ref",
		"--stdin"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range fresh {
		m.held[id] = true
	}
	return nil
}

// lacks lists the commits that are not complete here.
func (m *mirror) lacks(commits []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, id := range commits {
		if !m.held[id] {
			out = append(out, id)
		}
	}
	return out
}

// tips lists the commits of refs, distinct and sorted.
func (r Refs) tips() []string {
	seen := make(map[string]bool, len(r))
	for _, id := range r {
		seen[id] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// complete checks that commits and everything they refer to are here, and keeps them.
func (m *mirror) complete(ctx context.Context, commits []string) error {
	lacking := m.lacks(commits)
	if len(lacking) == 0 {
		return nil
	}
	in := strings.Join(lacking, "\n") + "\n"
	if _, err := m.git.do(ctx, run{
		dir: m.dir, stdin: strings.NewReader(in), stdout: io.Discard,
		args: []string{"rev-list", "--objects", "--quiet", "--stdin", "--not",
			"--glob=" + keepRefs + "*"},
	}); err != nil {
		return fmt.Errorf("%w: %w", errMissing, err)
	}
	return m.keep(ctx, lacking)
}

// pack writes everything that want refers to and have does not.
func (m *mirror) pack(ctx context.Context, want, have []string, to io.Writer) error {
	var in strings.Builder
	for _, id := range want {
		in.WriteString(id + "\n")
	}
	for _, id := range have {
		if _, _, err := m.commitTree(ctx, id); err == nil {
			in.WriteString("^" + id + "\n")
		}
	}
	_, err := m.git.do(ctx, run{
		dir: m.dir, stdin: strings.NewReader(in.String()), stdout: to,
		args: []string{"pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "-q"},
	})
	return err
}

// take reads a pack from another master, and checks that commits are then complete.
func (m *mirror) take(ctx context.Context, from io.Reader, commits []string) error {
	m.fetching.Lock()
	defer m.fetching.Unlock()
	if _, err := m.git.do(ctx, run{
		dir: m.dir, stdin: from, args: []string{"index-pack", "--stdin", "--fix-thin"},
	}); err != nil {
		m.sweep()
		return err
	}
	return m.complete(ctx, commits)
}

// tidy drops the refs of commits that are no longer named, and packs the objects of many fetches.
func (m *mirror) tidy(ctx context.Context, named map[string]bool) error {
	m.fetching.Lock()
	defer m.fetching.Unlock()
	m.mu.Lock()
	var in strings.Builder
	for _, id := range sorted(m.held) {
		if !named[id] {
			fmt.Fprintf(&in, "delete %s%s\n", keepRefs, id)
			delete(m.held, id)
		}
	}
	m.mu.Unlock()
	if in.Len() > 0 {
		if _, err := m.run(context.WithoutCancel(ctx), []byte(in.String()), "update-ref",
			"--stdin"); err != nil {
			return err
		}
	}
	packs, _ := filepath.Glob(filepath.Join(m.dir, "objects", "pack", "*.pack"))
	loose, _ := filepath.Glob(filepath.Join(m.dir, "objects", "17", "*"))
	if len(packs) < 40 && len(loose) < 40 { // about 10,000 loose ones
		return nil
	}
	_, err := m.run(ctx, nil, "-c", "gc.reflogExpire=now", "gc", "-q", "--prune=1.day.ago")
	if err != nil {
		m.sweep()
	}
	return err
}

const servedFile = "clustermaster-served"

// saveServed stores what is in force here, so that it survives a restart.
func (m *mirror) saveServed(seq uint64, refs Refs) error {
	var b strings.Builder
	fmt.Fprintf(&b, "1 %d %d\n", seq, len(refs))
	for _, name := range sorted(refs) {
		fmt.Fprintf(&b, "%s %s\n", refs[name], name)
	}
	return durable.WriteFile(filepath.Join(m.dir, servedFile), []byte(b.String()))
}

// loadServed reads the state of saveServed; ok is false if there is no complete one.
func (m *mirror) loadServed() (seq uint64, refs Refs, ok bool) {
	b, err := os.ReadFile(filepath.Join(m.dir, servedFile))
	if err != nil {
		return 0, nil, false
	}
	head, body, _ := strings.Cut(string(b), "\n")
	version, n := 0, 0
	if _, err := fmt.Sscanf(head, "%d %d %d", &version, &seq, &n); err != nil || version != 1 {
		return 0, nil, false
	}
	refs = make(Refs)
	for line := range strings.Lines(body) {
		id, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		refs[name] = id
	}
	return seq, refs, len(refs) == n
}
