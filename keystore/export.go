package keystore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/store/durable"
)

// JournalName is the file beside the key folders that lists the files that this program wrote, and
// the Raft index that they show.
const JournalName = ".clustermaster_export"

const (
	takeInEvery  = 5 * time.Second
	compactAfter = 20_000 // lines of the journal
	// coarse is how long a folder's time may stay the same while files come into it.
	coarse = 2 * time.Second
)

// Exporter keeps the folders of a pki directory equal to the keys, in one direction: Raft decides.
// It also imports files that others put into minions/ (preseeding). A file in minions/ counts as
// preseeded only if the journal does not list it, so a key that was deleted while this master was
// down is never imported again.
//
// While this master is in no cluster or is founding one, the files may be all that is left of the
// keys, so they stay as they are until the founder has imported them.
//
// Use one Exporter per directory. Call Follow from the goroutine that delivers the changes, and the
// other methods, except TakeIn, from one goroutine only.
type Exporter struct {
	store    *Store
	dir      string
	founding func() bool
	log      *slog.Logger

	mu      sync.Mutex // guards all below, and the files: export and import must not overlap
	ours    map[string]bool
	journal *os.File
	lines   int
	index   uint64
	synced  bool // the files were compared with all keys, and the journal lists them
	again   bool // the journal could not be written: compare all once more
	failing bool // the log says that files can't be written
	// owed are the ids whose files could not be brought up to date.
	owed map[string]bool
	// quiet is the time of minions/ at a look that left no file for later; zero: look again.
	quiet time.Time
}

// NewExporter makes the key folders of dir if absent and reads the journal. Founding reports
// whether this master is founding its cluster. Close releases it.
func NewExporter(s *Store, dir string, founding func() bool, log *slog.Logger) (*Exporter,
	error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &Exporter{store: s, dir: dir, founding: founding, log: log.With("component", "keystore"),
		ours: make(map[string]bool), owed: make(map[string]bool)}
	for _, st := range States {
		if err := os.MkdirAll(filepath.Join(dir, st.String()), 0o755); err != nil {
			return nil, fmt.Errorf("open key export: %w", err)
		}
	}
	if err := e.openJournal(); err != nil {
		return nil, fmt.Errorf("open key export: %w", err)
	}
	return e, nil
}

// Close closes the journal.
func (e *Exporter) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.journal == nil {
		return nil
	}
	return e.journal.Close()
}

// Index returns the Raft index up to which the folders show the keys.
func (e *Exporter) Index() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.index
}

// Follow handles a change; register it with cluster.Node.OnApply. It writes what changed, or at
// first and after a snapshot compares everything. While the journal can't be written it leaves that
// to Run: others wait for the end of Follow.
func (e *Exporter) Follow(index uint64, c fsm.Change) {
	_, member := e.store.node.State().Cluster()
	compared, failing := e.compared()
	if !member || failing || !compared && e.founding() {
		return
	}
	var err error
	switch {
	case c.Restored || !compared:
		err = e.Sync(index)
	case len(c.Keys) > 0:
		ids := make([]string, len(c.Keys))
		for i, k := range c.Keys {
			ids[i] = k.Key.ID
		}
		err = e.export(index, ids)
	}
	e.tell(err)
}

// tell logs when writing begins to fail, and when it works again.
func (e *Exporter) tell(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	failing := err != nil || e.again || len(e.owed) > 0
	switch {
	case err != nil && !e.failing:
		e.failing = true
		e.log.Warn("keys not exported to files; trying again; salt-key and the masters work without the files, "+
			"preseeded keys may wait", "dir", e.dir, "err", err)
	case e.failing && !failing:
		e.failing = false
		e.log.Info("keys are exported to files again", "dir", e.dir)
	}
}

// compared reports whether everything was compared, or is to be compared by Run.
func (e *Exporter) compared() (done, left bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.synced, e.again
}

// begin compares everything, after the founder has imported the keys of the folders. What the
// journal lists is of a former cluster: none of it is removed. A nil Exporter has no folders.
func (e *Exporter) begin() {
	if e == nil {
		return
	}
	e.mu.Lock()
	clear(e.ours)
	e.mu.Unlock()
	e.tell(e.Sync(e.store.node.State().AppliedIndex()))
}

// desired returns the files that an id should have, by folder.
func (e *Exporter) desired(id string) map[State]string {
	st := e.store.node.State()
	want := make(map[State]string, 2)
	if k, ok := st.Key(id); ok {
		want[State(k.State)] = k.Pub
	}
	if d := st.Denied(id); len(d) > 0 {
		// one file for all: the last one offered, as in Salt 3006 and 3007
		want[Denied] = d[len(d)-1].Pub
	}
	return want
}

func (e *Exporter) export(index uint64, ids []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.synced {
		return nil // the comparison of everything comes first
	}
	e.index = index
	var lines []string
	synced := false
	for _, id := range ids {
		for _, name := range e.unlisted(id) {
			lines = append(lines, "+"+name)
			synced = synced || strings.HasPrefix(name, Accepted.String()+"/")
		}
	}
	if err := e.note(lines, synced); err != nil {
		return err
	}
	for _, line := range lines {
		e.ours[line[1:]] = true
	}
	err := e.update(ids)
	if e.synced && e.lines > compactAfter+4*len(e.ours) {
		err = errors.Join(err, e.writeJournal())
	}
	return err
}

// unlisted returns the files of an id that the journal lacks: those that it should have, and those
// that a known id has, in whichever folder: the state decides over them.
func (e *Exporter) unlisted(id string) (names []string) {
	want := e.desired(id)
	if !keyName(id) || len(want) == 0 {
		return nil
	}
	for _, st := range States {
		name := st.String() + "/" + id
		if e.ours[name] {
			continue
		}
		info, err := os.Lstat(filepath.Join(e.dir, name))
		if _, wanted := want[st]; wanted || err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	return names
}

// update brings the files of ids up to date; the journal lists those that they should have. It
// lists a file until its removal is on stable storage: one that came back without its line would be
// a preseeded key.
func (e *Exporter) update(ids []string) error {
	var errs []error
	var gone []string
	synced := false
	for _, id := range ids {
		if !keyName(id) {
			continue
		}
		removed, err := e.write(id)
		for _, st := range removed {
			gone = append(gone, st.String()+"/"+id)
			synced = synced || st == Accepted
		}
		delete(e.owed, id)
		if err != nil {
			e.owed[id] = true
			errs = append(errs, err)
		}
	}
	if synced {
		if err := durable.SyncDir(filepath.Join(e.dir, Accepted.String())); err != nil {
			for _, name := range gone { // the lines stay until the removal is repeated
				_, id, _ := strings.Cut(name, "/")
				e.owed[id] = true
			}
			return errors.Join(append(errs, err)...)
		}
	}
	lines := make([]string, 0, len(gone)+1)
	for _, name := range gone {
		delete(e.ours, name)
		lines = append(lines, "-"+name)
	}
	lines = append(lines, "@"+strconv.FormatUint(e.index, 10))
	return errors.Join(append(errs, e.note(lines, false))...)
}

// write brings the files of an id up to date and returns the folders from which it removed one.
func (e *Exporter) write(id string) (removed []State, err error) {
	want := e.desired(id)
	for _, st := range States {
		name := st.String() + "/" + id
		pub, ok := want[st]
		if !ok {
			if !e.ours[name] {
				continue
			}
			if err := removeKeyFile(e.dir, st, id); err != nil {
				return removed, err
			}
			removed = append(removed, st)
			continue
		}
		if !e.ours[name] {
			continue // it is wanted since a moment ago; its change comes next
		}
		if have, err := readKeyFile(filepath.Join(e.dir, name)); err == nil && have == pub {
			continue
		}
		if err := writeKeyFile(e.dir, st, id, pub); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// Sync compares all files with all keys.
func (e *Exporter) Sync(index uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.compare(index)
}

func (e *Exporter) compare(index uint64) error {
	var ids []string
	for name := range e.ours {
		_, id, _ := strings.Cut(name, "/")
		ids = append(ids, id)
	}
	keys, _ := e.store.node.State().Keys()
	for _, k := range keys {
		ids = append(ids, k.ID)
	}
	ids = append(ids, e.store.node.State().DeniedIDs()...)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for _, id := range ids {
		for _, name := range e.unlisted(id) {
			e.ours[name] = true
		}
	}
	e.index = index
	// No file gets its name before the journal lists it on stable storage.
	if err := e.writeJournal(); err != nil {
		return err
	}
	return e.update(ids)
}

// retry repeats what could not be written.
func (e *Exporter) retry() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.again {
		return e.compare(e.store.node.State().AppliedIndex())
	}
	if !e.synced || len(e.owed) == 0 {
		return nil
	}
	return e.update(slices.Sorted(maps.Keys(e.owed)))
}

// Run imports preseeded keys, and repeats what could not be written, until ctx ends.
func (e *Exporter) Run(ctx context.Context) error {
	tick := time.NewTicker(takeInEvery)
	defer tick.Stop()
	for {
		e.tell(e.retry())
		if _, err := e.TakeIn(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("keys in minions/ not accepted yet; trying again", "dir", e.dir,
				"err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// TakeIn proposes the keys that others put into minions/ for unknown ids, and returns how many were
// accepted. It leaves files of other folders and of known ids alone. A nil Exporter has no folders.
// Call it from any goroutine: a key that two calls propose is accepted once.
func (e *Exporter) TakeIn(ctx context.Context) (int, error) {
	if e == nil {
		return 0, nil
	}
	found, err := e.preseeded()
	if err != nil || len(found) == 0 {
		return 0, err
	}
	if err := e.store.Fresh(ctx); err != nil {
		return 0, err
	}
	n, err := e.store.Import(ctx, found)
	if n > 0 {
		e.log.Info("preseeded keys accepted", "n", n, "dir", e.dir)
	}
	return n, err
}

// TakeInChanged is TakeIn for those who call it often: it costs a stat while no file has come into
// minions/ or left it.
func (e *Exporter) TakeInChanged(ctx context.Context) (int, error) {
	if e == nil {
		return 0, nil
	}
	info, err := os.Stat(filepath.Join(e.dir, Accepted.String()))
	e.mu.Lock()
	quiet := e.quiet
	e.mu.Unlock()
	if err == nil && info.ModTime().Equal(quiet) {
		return 0, nil
	}
	return e.TakeIn(ctx)
}

func (e *Exporter) preseeded() ([]Key, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.quiet = time.Time{}
	if !e.synced {
		return nil, nil
	}
	folder := filepath.Join(e.dir, Accepted.String())
	began, later := time.Now(), false
	info, err := os.Stat(folder)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", folder, err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", folder, err)
	}
	var found []Key
	for _, f := range entries {
		id := f.Name()
		if !keyName(id) || !f.Type().IsRegular() || e.ours[Accepted.String()+"/"+id] {
			continue
		}
		if _, known := e.store.node.State().Key(id); known {
			continue
		}
		pub, err := readKeyFile(filepath.Join(folder, id))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !strings.Contains(pub, "-----END") {
			later = true
			continue // deleted meanwhile, or still being written
		}
		if err != nil {
			return nil, err
		}
		found = append(found, Key{ID: id, State: Accepted, Pub: pub})
	}
	if !later && len(found) == 0 && began.Sub(info.ModTime()) > coarse {
		e.quiet = info.ModTime()
	}
	return found, nil
}

// note appends lines to the journal, with synced on stable storage.
func (e *Exporter) note(lines []string, synced bool) error {
	if len(lines) == 0 {
		return nil
	}
	e.lines += len(lines)
	_, err := e.journal.WriteString(strings.Join(lines, "\n") + "\n")
	if err == nil && synced {
		err = e.journal.Sync()
	}
	if err != nil {
		e.synced, e.again = false, true // half a line may be there: the journal is written anew
		return fmt.Errorf("write key export journal: %w", err)
	}
	return nil
}

func (e *Exporter) openJournal() error {
	f, err := os.OpenFile(filepath.Join(e.dir, JournalName), os.O_RDWR|os.O_APPEND|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	e.journal = f
	e.index, e.lines, err = readJournal(f, e.ours)
	return err
}

// readJournal adds to ours the files that a journal lists.
func readJournal(from io.Reader, ours map[string]bool) (index uint64, lines int, err error) {
	sc := bufio.NewScanner(from)
	sc.Split(wholeLine)
	for ; sc.Scan(); lines++ {
		line := sc.Text()
		if len(line) < 2 {
			continue
		}
		switch line[0] {
		case '+':
			ours[line[1:]] = true
		case '-':
			delete(ours, line[1:])
		case '@':
			index, _ = strconv.ParseUint(line[1:], 10, 64)
		}
	}
	return index, lines, sc.Err()
}

// wholeLine splits at line ends. A torn last line counts as none: its file has no name yet,
// or is gone.
func wholeLine(b []byte, _ bool) (int, []byte, error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return 0, nil, nil
	}
	return end + 1, b[:end], nil
}

// CountExported counts the accepted keys that this program wrote into a pki directory.
func CountExported(dir string) (n int, err error) {
	f, err := os.OpenFile(filepath.Join(dir, JournalName), os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	ours := make(map[string]bool)
	if _, _, err := readJournal(f, ours); err != nil {
		return 0, err
	}
	for name := range ours {
		if folder, _, _ := strings.Cut(name, "/"); folder == Accepted.String() {
			n++
		}
	}
	return n, nil
}

// writeJournal rewrites the journal without undone lines, and puts it on stable storage.
func (e *Exporter) writeJournal() error {
	e.synced, e.again = false, true
	f, err := os.CreateTemp(e.dir, ".new-*")
	if err != nil {
		return fmt.Errorf("write key export journal: %w", err)
	}
	w := bufio.NewWriter(f)
	for name := range e.ours {
		fmt.Fprintf(w, "+%s\n", name)
	}
	fmt.Fprintf(w, "@%d\n", e.index)
	err = errors.Join(w.Flush(), f.Sync())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(e.dir, JournalName))
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return fmt.Errorf("write key export journal: %w", err)
	}
	if e.journal != nil {
		_ = e.journal.Close() // replaced; its contents no longer count
	}
	e.journal, e.lines = f, len(e.ours)+1
	if err := durable.SyncDir(e.dir); err != nil {
		return fmt.Errorf("write key export journal: %w", err)
	}
	e.synced, e.again = true, false
	return nil
}
