package fsm

import (
	"slices"
	"sort"
	"time"
)

// KeyState is the state of a minion's key. The numbers are written to the log and equal those of
// the mmap_key format.
type KeyState uint8

// The states. An id has at most one key that is accepted, pending or rejected, and beside it a list
// of denied keys.
const (
	KeyUnknown  KeyState = 0
	KeyAccepted KeyState = 1
	KeyPending  KeyState = 2
	KeyRejected KeyState = 3
	KeyDenied   KeyState = 4
)

// maxDeniedPerID bounds the list of distinct denied keys of one id; a new key replaces the oldest.
const maxDeniedPerID = 8

// Key is a minion's key and its state.
type Key struct {
	ID    string    `msgpack:"id"`
	State KeyState  `msgpack:"state"`
	Pub   string    `msgpack:"pub"`   // PEM as cleaned by wire.CleanKey
	Since time.Time `msgpack:"since"` // time of the last change of State
	// Raft index at which the id got this state and key; session keys are derived from it
	Index uint64 `msgpack:"index"`
	// Unvetted says that a minion's request made this record and no operator has looked at it yet.
	Unvetted bool   `msgpack:"unvetted,omitempty"`
	Source   string `msgpack:"source,omitempty"` // address that offered it, if Unvetted
}

// Denied is a key that was offered for an id with another key.
type Denied struct {
	Pub string    `msgpack:"pub"`
	At  time.Time `msgpack:"at"`
}

// Auto is what the options say about a key that no operator has decided on (auto_accept, autosign,
// autoreject).
type Auto uint8

// The decisions of the options.
const (
	AutoNone   Auto = 0
	AutoAccept Auto = 1
	AutoReject Auto = 2
)

// OfferKey decides on the key that a minion shows in _auth: rows 3 to 9 of the order of checks.
type OfferKey struct {
	ID   string `msgpack:"id"`
	Pub  string `msgpack:"pub"` // cleaned PEM
	Open bool   `msgpack:"open,omitempty"`
	Auto Auto   `msgpack:"auto,omitempty"`
	// bound on unvetted keys, and on denied ones; 0: none
	MaxPending int `msgpack:"max_pending,omitempty"`
	// bound on unvetted keys from one Source; 0: none
	MaxPerSource int       `msgpack:"max_per_source,omitempty"`
	Source       string    `msgpack:"source,omitempty"`
	At           time.Time `msgpack:"at"`
}

// Op implements Command.
func (*OfferKey) Op() Op { return OpOfferKey }

func (c *OfferKey) apply(s *State, index uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if c.ID == "" {
		return Result{Refused: RefusedInvalid}
	}
	old, known := s.keys[c.ID]
	switch {
	case c.Open && c.Pub == "":
		return Result{Act: "error"}
	case c.Open && known && old.State == KeyAccepted && old.Pub == c.Pub:
		return Result{Act: "accept"}
	case c.Open:
		return s.settle(c, KeyAccepted, index, "accept")
	case known && old.State == KeyRejected:
		return Result{Act: "reject"}
	case known && old.State == KeyAccepted && old.Pub == c.Pub:
		return Result{Act: "accept"}
	case known && old.State == KeyAccepted:
		return s.deny(c, index)
	case !known && c.Auto == AutoAccept:
		return s.settle(c, KeyAccepted, index, "accept")
	case !known:
		if s.full(c.MaxPending, c.MaxPerSource, c.Source) != "" {
			return Result{Act: "full"}
		}
		if c.Auto == AutoReject {
			return s.settle(c, KeyRejected, index, "reject")
		}
		return s.settle(c, KeyPending, index, "pend")
	case c.Auto == AutoReject: // pending from here on
		return s.settle(c, KeyRejected, index, "reject")
	case old.Pub != c.Pub:
		return s.deny(c, index)
	case c.Auto == AutoAccept:
		return s.settle(c, KeyAccepted, index, "accept")
	default:
		return Result{Act: "pend"}
	}
}

// full returns the bound that one more unvetted key would exceed; "" if none.
func (s *State) full(maxPending, maxPerSource int, source string) Bound {
	switch {
	case maxPending > 0 && s.unvetted >= maxPending:
		return BoundPending
	case maxPerSource > 0 && source != "" && s.offered[source] >= maxPerSource:
		return BoundSource
	}
	return ""
}

// settle stores the offered key in the given state.
func (s *State) settle(c *OfferKey, state KeyState, index uint64, act string) Result {
	k := Key{ID: c.ID, State: state, Pub: c.Pub, Since: c.At.UTC(), Index: index}
	if state != KeyAccepted {
		k.Unvetted, k.Source = true, c.Source
		if old, ok := s.keys[c.ID]; ok {
			k.Pub, k.Source = old.Pub, old.Source // autoreject moves the stored key
		}
	}
	from := s.putKey(k, index)
	return Result{Act: act, Changed: true, Keys: []KeyChange{{Key: k, From: from}}}
}

// deny adds the offered key to the list of denied ones unless the list has it or the bound is
// reached.
func (s *State) deny(c *OfferKey, index uint64) Result {
	list := s.denied[c.ID]
	for _, d := range list {
		if d.Pub == c.Pub {
			return Result{Act: "denied"}
		}
	}
	if len(list) < maxDeniedPerID && s.deniedFull(c.MaxPending) {
		return Result{Act: "denied"}
	}
	d := Denied{Pub: c.Pub, At: c.At.UTC()}
	s.addDenied(c.ID, d, index)
	k := Key{ID: c.ID, State: KeyDenied, Pub: d.Pub, Since: d.At, Index: index}
	return Result{Act: "denied", Changed: true, Keys: []KeyChange{{Key: k}}}
}

func (s *State) addDenied(id string, d Denied, index uint64) {
	list := s.denied[id]
	if len(list) >= maxDeniedPerID {
		list = list[len(list)-maxDeniedPerID+1:]
	}
	list = append(slices.Clone(list), d) // a snapshot shares the old one
	s.deniedN += len(list) - len(s.denied[id])
	s.denied[id] = list
	s.keysAt = index
}

func (s *State) dropDenied(id string, index uint64) {
	s.deniedN -= len(s.denied[id])
	delete(s.denied, id)
	s.keysAt = index
}

// putKey stores k as a new record, so that records in snapshots never change, and returns the
// previous state.
func (s *State) putKey(k Key, index uint64) KeyState {
	from := s.dropKey(k.ID, index)
	s.keys[k.ID] = &k
	s.countUnvetted(&k, 1)
	return from
}

// countUnvetted adjusts the counts for a record by 1 or -1.
func (s *State) countUnvetted(k *Key, by int) {
	if !k.Unvetted {
		return
	}
	s.unvetted += by
	if k.Source == "" {
		return
	}
	if s.offered[k.Source] += by; s.offered[k.Source] == 0 {
		delete(s.offered, k.Source)
	}
}

func (s *State) dropKey(id string, index uint64) KeyState {
	s.keysAt = index
	old, ok := s.keys[id]
	if !ok {
		return KeyUnknown
	}
	s.countUnvetted(old, -1)
	delete(s.keys, id)
	return old.State
}

// KeyAction is what an operator does to keys.
type KeyAction uint8

// The actions.
const (
	AcceptKeys KeyAction = 1
	RejectKeys KeyAction = 2
	DeleteKeys KeyAction = 3
)

// KeyStates is a set of key states.
type KeyStates uint8

// StateSet makes a set.
func StateSet(states ...KeyState) KeyStates {
	var set KeyStates
	for _, st := range states {
		set |= 1 << st
	}
	return set
}

// Has reports whether st is in the set.
func (set KeyStates) Has(st KeyState) bool { return set&(1<<st) != 0 }

// ChangeKeys accepts, rejects or deletes the keys of IDs that are in one of the states From. Other
// keys stay as they are. With KeyDenied in From, an id without another key in From uses its last
// denied key (accept, reject) or loses all denied keys (delete).
type ChangeKeys struct {
	Action KeyAction `msgpack:"action"`
	IDs    []string  `msgpack:"ids"`
	From   KeyStates `msgpack:"from"`
	At     time.Time `msgpack:"at"`
}

// Op implements Command.
func (*ChangeKeys) Op() Op { return OpChangeKeys }

func (c *ChangeKeys) apply(s *State, index uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	var to KeyState
	switch c.Action {
	case AcceptKeys:
		to = KeyAccepted
	case RejectKeys:
		to = KeyRejected
	case DeleteKeys:
	default:
		return Result{Refused: RefusedInvalid}
	}
	var out []KeyChange
	for _, id := range c.IDs {
		old, known := s.keys[id]
		if known && !c.From.Has(old.State) {
			known = false
		}
		list := s.denied[id]
		denied := len(list) > 0 && c.From.Has(KeyDenied)
		if c.Action == DeleteKeys {
			if known {
				s.dropKey(id, index)
				out = append(out, KeyChange{Key: Key{ID: id, Pub: old.Pub, Since: c.At.UTC(),
					Index: index}, From: old.State})
			}
			if denied {
				pub := list[len(list)-1].Pub
				s.dropDenied(id, index)
				out = append(out, KeyChange{Key: Key{ID: id, Pub: pub, Since: c.At.UTC(),
					Index: index}, From: KeyDenied})
			}
			continue
		}
		k := Key{ID: id, State: to, Since: c.At.UTC(), Index: index}
		switch {
		case known && old.State == to:
			continue
		case known:
			k.Pub = old.Pub
			out = append(out, KeyChange{Key: k, From: s.putKey(k, index)})
		case denied:
			k.Pub = list[len(list)-1].Pub
			s.dropDenied(id, index)
			s.putKey(k, index)
			out = append(out, KeyChange{Key: k, From: KeyDenied})
		}
	}
	return Result{Changed: len(out) > 0, Keys: out}
}

// ImportKeys adds keys from files: those of unknown ids, or all of them with Overwrite. A record
// with KeyDenied adds to the denied keys of its id.
type ImportKeys struct {
	Keys      []Key     `msgpack:"keys"`
	Overwrite bool      `msgpack:"overwrite,omitempty"`
	At        time.Time `msgpack:"at"`
}

// Op implements Command.
func (*ImportKeys) Op() Op { return OpImportKeys }

func (c *ImportKeys) apply(s *State, index uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	var out []KeyChange
	for _, in := range c.Keys {
		k := Key{ID: in.ID, State: in.State, Pub: in.Pub, Since: c.At.UTC(), Index: index}
		if k.ID == "" || k.State < KeyAccepted || k.State > KeyDenied {
			continue
		}
		if k.State == KeyDenied {
			if !slices.ContainsFunc(s.denied[k.ID], func(d Denied) bool { return d.Pub == k.Pub }) {
				s.addDenied(k.ID, Denied{Pub: k.Pub, At: k.Since}, index)
				out = append(out, KeyChange{Key: k})
			}
			continue
		}
		if old, ok := s.keys[k.ID]; ok &&
			(!c.Overwrite || old.State == k.State && old.Pub == k.Pub) {
			continue
		}
		out = append(out, KeyChange{Key: k, From: s.putKey(k, index)})
	}
	return Result{Changed: len(out) > 0, Keys: out}
}

// Key returns the accepted, pending or rejected key of an id.
func (s *State) Key(id string) (Key, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if k, ok := s.keys[id]; ok {
		return *k, true
	}
	return Key{}, false
}

// Denied returns the denied keys of an id, oldest first.
func (s *State) Denied(id string) []Denied {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.denied[id]
}

// IsDenied reports whether pub is among the denied keys of an id.
func (s *State) IsDenied(id, pub string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, d := range s.denied[id] {
		if d.Pub == pub {
			return true
		}
	}
	return false
}

// KeysVersion is the Raft index of the last change of any key. A cache of key lists compares it.
func (s *State) KeysVersion() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.keysAt
}

// Keys returns all accepted, pending and rejected keys sorted by id, and the KeysVersion of the
// list.
func (s *State) Keys() ([]Key, uint64) {
	s.mu.RLock()
	out, version := s.copyKeys(), s.keysAt
	s.mu.RUnlock()
	sortKeys(out)
	return out, version
}

// copyKeys returns all keys, in no order. Its caller holds mu.
func (s *State) copyKeys() []Key {
	out := make([]Key, 0, len(s.keys))
	for _, k := range s.keys {
		out = append(out, *k)
	}
	return out
}

func sortKeys(keys []Key) {
	sort.Slice(keys, func(i, j int) bool { return keys[i].ID < keys[j].ID })
}

// DeniedIDs returns the ids with denied keys, sorted.
func (s *State) DeniedIDs() []string {
	s.mu.RLock()
	out := make([]string, 0, len(s.denied))
	for id := range s.denied {
		out = append(out, id)
	}
	s.mu.RUnlock()
	sort.Strings(out)
	return out
}

// Bound names the bound that an offered key would exceed; "": none.
type Bound string

// The bounds.
const (
	BoundPending Bound = "pending" // OfferKey.MaxPending, of unvetted keys
	BoundSource  Bound = "source"  // OfferKey.MaxPerSource
	// OfferKey.MaxPending of denied keys, maxDeniedPerID or maxDenied
	BoundDenied Bound = "denied"
	BoundKeys   Bound = "keys" // maxKeys
)

// Full returns the bound that a new unvetted key of an unknown id would exceed; "" if none.
func (s *State) Full(maxPending, maxPerSource int, source string) Bound {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.full(maxPending, maxPerSource, source)
}

// DeniedFull returns a bound if a new denied key for an id should not be stored, because the id's
// list would lose its oldest key or the list of all ids is full; "" if there is room.
func (s *State) DeniedFull(id string, maxPending int) Bound {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.denied[id]) >= maxDeniedPerID || s.deniedFull(maxPending) {
		return BoundDenied
	}
	return ""
}

func (s *State) deniedFull(maxPending int) bool {
	return maxPending > 0 && s.deniedN >= maxPending || s.limited() &&
		s.deniedN >= s.most("State.denied")
}

// Unvetted returns the number of keys that minions' requests made and no operator has looked at.
func (s *State) Unvetted() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.unvetted
}
