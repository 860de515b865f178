package sim

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	gopath "path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"clustermaster/test/knownbug"
)

// disk is the disk of one master between two crashes. A crash loses or tears what was not synced.
// The disk can be full and slow.
type disk struct {
	*vfs.MemFS

	mu    sync.Mutex // guards the fields below
	full  bool
	slow  time.Duration // the longest delay of a sync
	still chan struct{} // nil: the disk works; closed when it works again
	ended time.Time     // when it was last full or still
	// closed while nothing waits for the disk: a store is opened or closed
	prompt chan struct{}
	rng    *rand.Rand
}

// promptly calls fn while nothing waits for the disk. Pebble opens and closes a store with a mutex
// held that its compactions and statistics wait for; if it waited for the disk meanwhile, fake time
// would stop.
func (d *disk) promptly(fn func()) {
	d.mu.Lock()
	close(d.prompt)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.prompt = make(chan struct{})
	}()
	fn()
}

func newDisk(fs *vfs.MemFS, chance *rand.Rand) *disk {
	return &disk{MemFS: fs, rng: chance, prompt: make(chan struct{})}
}

// crashed returns what a loss of power leaves.
func (d *disk) crashed(chance *rand.Rand) *vfs.MemFS {
	return d.MemFS.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 25 * chance.IntN(4), RNG: chance})
}

func (d *disk) setFull(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		d.ended = time.Now()
	}
	d.full = full
}

// tookAll reports whether the disk was neither full nor still since then.
func (d *disk) tookAll(since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.full && d.still == nil && d.ended.Before(since)
}

func (d *disk) setSlow(most time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = most
}

// setStill lets syncs wait until it is called with false.
func (d *disk) setStill(still bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case still && d.still == nil:
		d.still = make(chan struct{})
	case !still && d.still != nil:
		close(d.still)
		d.still, d.ended = nil, time.Now()
	}
}

// flip inverts a random bit in one of the ring store's tables. It returns the file's name, "" if
// there is none yet. No store may be open on the disk: what it has in memory would hide the bit.
func (d *disk) flip(chance *rand.Rand) (string, error) {
	names, err := d.MemFS.List(ringDir)
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".sst") })
	if len(names) == 0 {
		return "", nil
	}
	name := gopath.Join(ringDir, names[chance.IntN(len(names))])
	f, err := d.MemFS.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return "", err
	}
	st, err := f.Stat()
	if err != nil {
		return "", errors.Join(err, f.Close())
	}
	var b [1]byte
	at := chance.Int64N(st.Size())
	if _, err = f.ReadAt(b[:], at); err == nil {
		b[0] ^= 1 << chance.IntN(8)
		_, err = f.WriteAt(b[:], at)
	}
	return name, errors.Join(err, f.Sync(), f.Close())
}

func (d *disk) room() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return syscall.ENOSPC
	}
	return nil
}

// wait is the delay of a sync, in fake time.
func (d *disk) wait() {
	d.mu.Lock()
	still, prompt := d.still, d.prompt
	var slow <-chan time.Time
	select {
	case <-prompt:
	default:
		if d.slow > 0 {
			slow = time.After(time.Duration(d.rng.Int64N(int64(d.slow))))
		}
	}
	d.mu.Unlock()
	if (still != nil || slow != nil) && opening() {
		return
	}
	if still != nil {
		select {
		case <-still:
		case <-prompt:
		}
	}
	if slow != nil {
		select {
		case <-slow:
		case <-prompt:
		}
	}
}

// opening reports that the caller is pebble.Open. It holds the store's mutex while it syncs, and
// the store's own ticker waits for that mutex. In a bubble, fake time stands still while anybody
// waits for a mutex, so such a sync must not wait for fake time.
func opening() bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function == "github.com/cockroachdb/pebble/v2.Open" {
			return true
		}
	}
	return false
}

func (d *disk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &diskFile{f, d}, nil
}

// Create implements vfs.FS.
func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.room(); err != nil {
		return nil, err
	}
	return d.wrap(d.MemFS.Create(name, c))
}

// ReuseForWrite implements vfs.FS.
func (d *disk) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.MemFS.ReuseForWrite(old, name, c))
}

// OpenReadWrite implements vfs.FS.
func (d *disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return d.wrap(d.MemFS.OpenReadWrite(name, c, o...))
}

type diskFile struct {
	vfs.File
	d *disk
}

func (f *diskFile) Write(b []byte) (int, error) {
	if err := f.d.room(); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f *diskFile) Sync() error {
	f.d.wait()
	return f.File.Sync()
}

func (f *diskFile) SyncData() error {
	f.d.wait()
	return f.File.SyncData()
}

// ledger holds every entry that any master wrote to its log.
type ledger struct {
	mu      sync.Mutex // guards the fields below
	entries map[[2]uint64]uint32
	leaders map[uint64]string // by term, as nodes report their leader
	first   map[uint64]string // by term, the entry with which its leader begins
	votes   map[string]string // by voter and term
	faults  []string
	written int
}

func newLedger() *ledger {
	return &ledger{entries: map[[2]uint64]uint32{}, leaders: map[uint64]string{},
		first: map[uint64]string{}, votes: map[string]string{}}
}

// wrote compares an entry with those of others under the same term and index: two leaders of one
// term would have written different ones.
func (l *ledger) wrote(e *raft.Log) {
	sum := crc32.ChecksumIEEE(e.Data) ^ uint32(e.Type)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written++
	at := [2]uint64{e.Term, e.Index}
	if had, ok := l.entries[at]; ok && had != sum {
		l.faults = append(l.faults,
			fmt.Sprintf("two leaders in term %d: they wrote different entries %d", e.Term, e.Index))
	}
	l.entries[at] = sum
	if e.Type != raft.LogNoop { // a leader writes one, when it begins
		return
	}
	first := fmt.Sprintf("entry %d at %v", e.Index, e.AppendedAt.UTC())
	if had := l.first[e.Term]; had != "" && had != first {
		l.faults = append(l.faults,
			fmt.Sprintf("two leaders in term %d: they began with %s and %s", e.Term, had, first))
	}
	l.first[e.Term] = first
}

// voted notes a vote that a disk keeps.
func (l *ledger) voted(voter string, term uint64, candidate string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ballot := fmt.Sprintf("%s in term %d", voter, term)
	if had := l.votes[ballot]; had != "" && had != candidate {
		l.faults = append(l.faults,
			fmt.Sprintf("two votes of %s: it voted for %s and for %s", ballot, had, candidate))
	}
	l.votes[ballot] = candidate
}

func (l *ledger) leads(term uint64, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if had := l.leaders[term]; had != "" && had != node {
		l.faults = append(l.faults, fmt.Sprintf("two leaders in term %d: %s and %s", term, had, node))
	}
	l.leaders[term] = node
}

// raftLog is Raft's log on a disk: records with checksums, one after the other. Anything after an
// incomplete record is the rest of a write that was never acknowledged.
type raftLog struct {
	d      *disk
	f      vfs.File
	ledger *ledger
	voter  string       // whose votes these are
	dead   *atomic.Bool // the process lost power, and its disk with it
	// one write at a time; a channel, because waiting for a mutex would stop fake time
	turn   chan struct{}
	closed bool // guarded by turn

	mu      sync.Mutex // guards the fields below; not held during writes
	entries map[uint64]raft.Log
	first   uint64
	last    uint64
	values  map[string][]byte
}

// record is one change of the log.
type record struct {
	Entries  []raft.Log
	From, To uint64 // deleted
	Key      string
	Value    []byte
}

const raftLogName = "log"

func openRaftLog(d *disk, l *ledger, voter string, dead *atomic.Bool) (*raftLog, error) {
	r := &raftLog{d: d, ledger: l, voter: voter, dead: dead, turn: make(chan struct{}, 1), entries: map[uint64]raft.Log{},
		values: map[string][]byte{}}
	if err := d.MkdirAll("raft", 0o700); err != nil {
		return nil, err
	}
	name := gopath.Join("raft", raftLogName)
	if f, err := d.Open(name); err == nil {
		all, rerr := io.ReadAll(f)
		if err := errors.Join(rerr, f.Close()); err != nil {
			return nil, err
		}
		for len(all) >= 8 {
			n, sum := binary.BigEndian.Uint32(all), binary.BigEndian.Uint32(all[4:])
			if n == 0 || int(n) > len(all)-8 || crc32.ChecksumIEEE(all[8:8+n]) != sum {
				break
			}
			var rec record
			if err := gob.NewDecoder(bytes.NewReader(all[8 : 8+n])).Decode(&rec); err != nil {
				return nil, err
			}
			r.apply(rec)
			all = all[8+n:]
		}
	}
	f, err := d.MemFS.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	whole := []record{{Entries: r.sorted()}}
	for k, v := range r.values {
		whole = append(whole, record{Key: k, Value: v})
	}
	for _, rec := range whole {
		b, err := pack(rec)
		if err == nil {
			_, err = f.Write(b)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := errors.Join(f.Sync(), d.MemFS.Rename(name+".new", name)); err != nil {
		return nil, err
	}
	for _, dir := range []string{"raft", "/"} {
		folder, err := d.MemFS.OpenDir(dir)
		if err == nil {
			err = errors.Join(folder.Sync(), folder.Close())
		}
		if err != nil {
			return nil, err
		}
	}
	r.f = &diskFile{f, d}
	return r, nil
}

func (r *raftLog) sorted() []raft.Log {
	var out []raft.Log
	for i := r.first; i != 0 && i <= r.last; i++ {
		if e, ok := r.entries[i]; ok { // a snapshot of the leader may have left a gap
			out = append(out, e)
		}
	}
	return out
}

func pack(rec record) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	if err := gob.NewEncoder(&b).Encode(rec); err != nil {
		return nil, err
	}
	out := b.Bytes()
	binary.BigEndian.PutUint32(out, uint32(len(out)-8))
	binary.BigEndian.PutUint32(out[4:], crc32.ChecksumIEEE(out[8:]))
	return out, nil
}

func (r *raftLog) apply(rec record) {
	for _, e := range rec.Entries {
		if r.first == 0 {
			r.first = e.Index
		}
		r.entries[e.Index] = e
		r.last = e.Index
	}
	if rec.To > 0 {
		for i := rec.From; i <= rec.To; i++ {
			delete(r.entries, i)
		}
		switch {
		case rec.From <= r.first && rec.To >= r.last:
			r.first, r.last = 0, 0
		case rec.From <= r.first:
			r.first = rec.To + 1
		default:
			r.last = rec.From - 1
		}
	}
	if rec.Key != "" {
		r.values[rec.Key] = rec.Value
	}
}

// write acknowledges a record once it is synced.
func (r *raftLog) write(rec record) error {
	b, err := pack(rec)
	if err != nil {
		return err
	}
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.closed {
		return errors.New("the log is closed")
	}
	if _, err = r.f.Write(b); err == nil && !knownbug.Is(knownbug.LogNoSync) {
		err = r.f.Sync()
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apply(rec)
	return nil
}

func (r *raftLog) FirstIndex() (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first, nil
}

func (r *raftLog) LastIndex() (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, nil
}

func (r *raftLog) GetLog(index uint64, e *raft.Log) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	had, ok := r.entries[index]
	if !ok {
		return raft.ErrLogNotFound
	}
	*e = had
	return nil
}

func (r *raftLog) StoreLog(e *raft.Log) error { return r.StoreLogs([]*raft.Log{e}) }

func (r *raftLog) StoreLogs(entries []*raft.Log) error {
	var rec record
	for _, e := range entries {
		r.ledger.wrote(e)
		rec.Entries = append(rec.Entries, *e)
	}
	return r.write(rec)
}

func (r *raftLog) DeleteRange(from, to uint64) error { return r.write(record{From: from, To: to}) }

func (r *raftLog) Set(key, value []byte) error {
	err := r.write(record{Key: string(key), Value: bytes.Clone(value)})
	if err == nil && string(key) == "LastVoteCand" && !r.dead.Load() { // Raft writes it last
		term, terr := r.GetUint64([]byte("LastVoteTerm"))
		if terr != nil {
			return terr
		}
		r.ledger.voted(r.voter, term, string(value))
	}
	return err
}

func (r *raftLog) Get(key []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.values[string(key)]
	if !ok {
		return nil, errors.New("not found") // as raft expects it
	}
	return v, nil
}

func (r *raftLog) SetUint64(key []byte, value uint64) error {
	return r.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

func (r *raftLog) GetUint64(key []byte) (uint64, error) {
	v, err := r.Get(key)
	if err != nil || len(v) != 8 {
		return 0, errors.New("not found")
	}
	return binary.BigEndian.Uint64(v), nil
}

func (r *raftLog) Close() error {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.closed = true
	return r.f.Close()
}
