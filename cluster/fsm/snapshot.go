package fsm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/vmihailenco/msgpack/v5"

	"clustermaster/cluster/level"
)

const snapshotMagic = "clustermaster-fsm"

// record numbers are written to snapshots: append only, never renumber, never reuse.
type record uint8

const (
	recordState  record = 1 // scalars; always the first
	recordMember record = 2
	recordBar    record = 3
	recordKey    record = 4
	recordDenied record = 5
	recordEnd    record = 6 // with the number of records before it
	recordDone   record = 7 // of a Once
	recordPart   record = 8 // of a restore under way
	recordToken  record = 9
	recordAudit  record = 10

	recordRootsHead record = 32
	recordUserKey   record = 48
	recordReactors  record = 64
	recordScheduled record = 65
	recordGit       record = 80
)

// scalars are the parts of the state that occur once.
type scalars struct {
	Applied uint64      `msgpack:"applied"`
	Version uint64      `msgpack:"version"`
	KeysAt  uint64      `msgpack:"keys_at"`
	Cluster Cluster     `msgpack:"cluster"`
	AES     savedEpochs `msgpack:"aes"`
	Session savedEpochs `msgpack:"session"`
	Ring    Ring        `msgpack:"ring"`

	Level   int    `msgpack:"level,omitempty"`
	Release string `msgpack:"level_release,omitempty"`
}

type savedEpochs struct {
	Staged Epoch   `msgpack:"staged"`
	Active Epoch   `msgpack:"active"`
	Old    []Epoch `msgpack:"old"`
}

// Snapshot is a copy of the state at one index. It shares its records with the state, which never
// changes a record in place.
type Snapshot struct {
	scalars scalars
	members map[string]*Member
	bars    map[string]Bar
	keys    map[string]*Key
	denied  map[string][]Denied
	roots   map[uint8]RootsHead
	done    []doneOnce
	parts   []RestorePart

	userKeys  map[string]string
	reactors  Reactors
	scheduled map[string]Scheduled
	tokens    map[[32]byte]*Token
	audits    map[auditList][]Audit
	git       map[string]*GitMirror
	later     laterState
}

// Snapshot copies the state cheaply, in memory.
func (s *State) Snapshot() *Snapshot {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &Snapshot{
		scalars: scalars{
			Applied: s.applied, Version: s.version, KeysAt: s.keysAt, Cluster: s.cluster,
			Ring:    s.ring,
			AES:     savedEpochs{s.aes.staged, s.aes.active, s.aes.old},
			Session: savedEpochs{s.session.staged, s.session.active, s.session.old},
			Level:   s.level, Release: s.release,
		},
		members: maps.Clone(s.members),
		bars:    maps.Clone(s.bars),
		keys:    maps.Clone(s.keys),
		denied:  maps.Clone(s.denied),
		roots:   maps.Clone(s.roots),
		done:    s.done,
		parts:   s.parts,

		userKeys: s.userKeys,
		reactors: s.reactors, scheduled: maps.Clone(s.scheduled),
		tokens: maps.Clone(s.tokens),
		audits: maps.Clone(s.audits),
		git:    maps.Clone(s.git),
		later:  s.later,
	}
}

// WriteTo writes the snapshot: magic, level, from level 2 on the first release that supports the
// level, then records of number and value. Records are sorted by name, so equal states give equal
// bytes.
func (sn *Snapshot) WriteTo(w io.Writer) (int64, error) {
	counted := &countingWriter{w: w}
	buf := bufio.NewWriterSize(counted, 64<<10)
	enc := msgpack.NewEncoder(buf)
	at := max(sn.scalars.Level, level.Base)
	err := errors.Join(enc.EncodeString(snapshotMagic), enc.EncodeUint(uint64(at)))
	if at > level.Base {
		err = errors.Join(err, enc.EncodeString(sn.scalars.Release))
	}
	records := uint64(0)
	put := func(r record, v any) {
		if err != nil {
			return
		}
		records++
		if err = enc.EncodeUint(uint64(r)); err == nil {
			err = enc.Encode(v)
		}
	}
	put(recordState, &sn.scalars)
	for _, name := range sortedNames(sn.members) {
		put(recordMember, sn.members[name])
	}
	for _, name := range sortedNames(sn.bars) {
		put(recordBar, sn.bars[name])
	}
	for _, name := range sortedNames(sn.keys) {
		put(recordKey, sn.keys[name])
	}
	for _, name := range sortedNames(sn.denied) {
		put(recordDenied, &DeniedOf{ID: name, Keys: sn.denied[name]})
	}
	for _, tree := range slices.Sorted(maps.Keys(sn.roots)) {
		head := sn.roots[tree]
		put(recordRootsHead, &head)
	}
	if !sn.reactors.empty() {
		put(recordReactors, &sn.reactors)
	}
	for _, name := range sortedNames(sn.scheduled) {
		e := sn.scheduled[name]
		put(recordScheduled, &e)
	}
	for i := range sn.done {
		put(recordDone, &sn.done[i])
	}
	for i := range sn.parts {
		put(recordPart, &sn.parts[i])
	}
	for _, user := range sortedNames(sn.userKeys) {
		put(recordUserKey, &UserKey{user, sn.userKeys[user]})
	}
	for _, t := range sortedTokens(sn.tokens) {
		put(recordToken, t)
	}
	for _, a := range sortedAudits(sn.audits) {
		put(recordAudit, &a)
	}
	for _, key := range sortedNames(sn.git) {
		put(recordGit, sn.git[key])
	}
	sn.putLater(put)
	put(recordEnd, records)
	if err == nil {
		err = buf.Flush()
	}
	if err != nil {
		return counted.n, fmt.Errorf("write snapshot: %w", err)
	}
	return counted.n, nil
}

// Restore reads a snapshot and replaces the whole state with it. On error the state is unchanged.
func (s *State) Restore(r io.Reader) error {
	next, err := read(bufio.NewReaderSize(r, 64<<10))
	if err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied, s.version, s.keysAt = next.applied, next.version, next.keysAt
	s.cluster, s.ring, s.aes, s.session = next.cluster, next.ring, next.aes, next.session
	s.members, s.bySPKI, s.bars = next.members, next.bySPKI, next.bars
	s.keys, s.denied, s.deniedN, s.unvetted, s.offered = next.keys, next.denied, next.deniedN,
		next.unvetted, next.offered
	s.roots, s.done, s.parts, s.userKeys = next.roots, next.done, next.parts, next.userKeys
	s.reactors, s.scheduled = next.reactors, next.scheduled
	s.tokens, s.audits, s.git = next.tokens, next.audits, next.git
	s.level, s.release, s.later = next.level, next.release, next.later
	return nil
}

func read(r io.Reader) (*State, error) {
	dec := newDecoder(r)
	if magic, err := dec.DecodeString(); err != nil || magic != snapshotMagic {
		return nil, fmt.Errorf("magic %q: %w", magic, ErrCorrupt)
	}
	at, err := dec.DecodeUint8()
	if err != nil {
		return nil, fmt.Errorf("level %w: %w", ErrCorrupt, err)
	}
	if at == 0 {
		return nil, fmt.Errorf("level 0: %w", ErrCorrupt)
	}
	release := ""
	if at > level.Base {
		if release, err = dec.DecodeString(); err != nil {
			return nil, fmt.Errorf("release %w: %w", ErrCorrupt, err)
		}
	}
	if int(at) > level.Supported() {
		return nil, tooNew(int(at), release)
	}
	s := New()
	for n := uint64(0); ; n++ {
		number, err := dec.DecodeUint8()
		if err != nil {
			return nil, fmt.Errorf("record %d %w: %w", n, ErrCorrupt, err)
		}
		if of := level.OfRecord(number); of == 0 {
			return nil, fmt.Errorf("record %d of kind %d: %w", n, number, tooNew(0, ""))
		} else if of > int(at) {
			return nil,
				fmt.Errorf("record %d of kind %d and level %d in a snapshot of level %d: %w", n,
					number, of, at, ErrCorrupt)
		}
		if (n == 0) != (record(number) == recordState) {
			return nil, fmt.Errorf("record %d is of kind %d: %w", n, number, ErrCorrupt)
		}
		end, err := s.readRecord(dec, record(number), n)
		if err != nil {
			return nil, fmt.Errorf("record %d of kind %d: %w", n, number, err)
		}
		if end {
			return s, nil
		}
	}
}

// readRecord reads the value of record n into s. End reports that it was the last record.
func (s *State) readRecord(dec *msgpack.Decoder, kind record, n uint64) (end bool, err error) {
	decode := func(v any) bool {
		err = decodeInto(dec, v)
		return err == nil
	}
	switch kind {
	case recordState:
		var v scalars
		if decode(&v) {
			s.applied, s.version, s.keysAt, s.cluster, s.ring = v.Applied, v.Version, v.KeysAt,
				v.Cluster, v.Ring
			s.cluster.At = s.cluster.At.UTC()
			s.aes, s.session = v.AES.load(), v.Session.load()
			s.level, s.release = v.Level, v.Release
		}
	case recordMember:
		m := new(Member)
		if decode(m) {
			m.Since = m.Since.UTC()
			if !m.Demoted.IsZero() {
				m.Demoted = m.Demoted.UTC()
			}
			s.members[m.Node] = m
			s.bySPKI[m.SPKI] = m
		}
	case recordBar:
		var b Bar
		if decode(&b) {
			b.At = b.At.UTC()
			s.bars[b.ID] = b
		}
	case recordKey:
		k := new(Key)
		if decode(k) {
			k.Since = k.Since.UTC()
			s.keys[k.ID] = k
			s.countUnvetted(k, 1)
		}
	case recordDenied:
		var d DeniedOf
		if decode(&d) {
			for i := range d.Keys {
				d.Keys[i].At = d.Keys[i].At.UTC()
			}
			s.denied[d.ID] = d.Keys
			s.deniedN += len(d.Keys)
		}
	case recordRootsHead:
		var h RootsHead
		if decode(&h) {
			h.At = h.At.UTC()
			s.roots[h.Tree] = h
		}
	case recordReactors:
		if decode(&s.reactors) {
			s.reactors.tidy()
		}
	case recordScheduled:
		var e Scheduled
		if decode(&e) {
			e.tidy()
			s.scheduled[e.Name] = e
		}
	case recordDone:
		var d doneOnce
		if decode(&d) {
			for i := range d.Result.Keys {
				d.Result.Keys[i].Key.Since = d.Result.Keys[i].Key.Since.UTC()
			}
			s.done = append(s.done, d)
		}
	case recordPart:
		var p RestorePart
		if decode(&p) {
			s.parts = append(s.parts, p)
		}
	case recordUserKey:
		var k UserKey
		if decode(&k) {
			s.userKeys[k.User] = k.Key
		}
	case recordToken:
		t := new(Token)
		if decode(t) {
			t.Expire = t.Expire.UTC()
			s.tokens[t.Hash] = t
		}
	case recordAudit:
		var a Audit
		if decode(&a) {
			s.putAudit(a)
		}
	case recordGit:
		m := new(GitMirror)
		if decode(m) {
			m.tidy()
			s.git[m.Key] = m
		}
	case recordEnd:
		var records uint64
		if decode(&records) && records != n {
			err = fmt.Errorf("%d records instead of %d: %w", n, records, ErrCorrupt)
		}
		return true, err
	default:
		return false, s.readLaterRecord(dec, kind)
	}
	return false, err
}

func (v savedEpochs) load() epochs {
	utc := func(e Epoch) Epoch {
		if !e.At.IsZero() {
			e.At = e.At.UTC()
		}
		if !e.Retired.IsZero() {
			e.Retired = e.Retired.UTC()
		}
		return e
	}
	out := epochs{staged: utc(v.Staged), active: utc(v.Active)}
	for _, e := range v.Old {
		out.old = append(out.old, utc(e))
	}
	return out
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
