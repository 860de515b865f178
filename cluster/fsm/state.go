package fsm

import (
	"sync"
	"time"
)

// State is everything that the masters agree on. Reads are safe for concurrent use with Apply and
// Restore; single look-ups (Key, KeyState, MemberByNode, MemberBySPKI) allocate nothing.
// Slices and maps in returned values are shared: read only.
type State struct {
	mu sync.RWMutex // guards all below; never held across a call out of this package

	applied uint64 // index of the last command applied

	cluster Cluster
	members map[string]*Member // by node
	bySPKI  map[[32]byte]*Member
	bars    map[string]Bar // by id
	version uint64         // membership version: index of the last change of members
	keys    map[string]*Key
	denied  map[string][]Denied
	deniedN int // sum of the lists' lengths
	// pending keys, or keys rejected by policy, that minions caused and no operator has looked at
	unvetted int
	offered  map[string]int // unvetted keys by source; without sources that have none
	keysAt   uint64
	aes      epochs
	session  epochs
	ring     Ring
	done     []doneOnce          // oldest first
	roots    map[uint8]RootsHead // by tree
	parts    []RestorePart       // of the restore under way, by number
	userKeys map[string]string   // by user; never changed in place

	reactors  Reactors
	scheduled map[string]Scheduled  // by name of the entry
	tokens    map[[32]byte]*Token   // by hash
	audits    map[auditList][]Audit // oldest first; no list is empty
	git       map[string]*GitMirror // by key; never changed in place

	level   int    // the cluster's level; 0: the first one
	release string // the first release that supports the level
	later   laterState

	lowered map[string]int // bounds that tests lower, see most
}

// Cluster holds what founding fixes. The zero value means: not founded.
type Cluster struct {
	UUID string `msgpack:"uuid"` // random, 32 hexadecimal digits
	// the option cluster_id; empty on a stand-alone master
	ClusterID  string `msgpack:"cluster_id"`
	ClusterKey string `msgpack:"cluster_key"` // RSA key that signs Salt's messages, PEM
	// K, what a joiner must prove to know; empty when stand-alone
	JoinKey    []byte    `msgpack:"join_key"`
	Partitions int       `msgpack:"partitions"` // of the ring
	At         time.Time `msgpack:"at"`
}

// New returns an empty state.
func New() *State {
	return &State{
		members: make(map[string]*Member),
		bySPKI:  make(map[[32]byte]*Member),
		bars:    make(map[string]Bar),
		keys:    make(map[string]*Key),
		denied:  make(map[string][]Denied),
		offered: make(map[string]int),
		roots:   make(map[uint8]RootsHead),

		userKeys:  make(map[string]string),
		scheduled: make(map[string]Scheduled),
		tokens:    make(map[[32]byte]*Token),
		audits:    make(map[auditList][]Audit),
		git:       make(map[string]*GitMirror),
	}
}

// Apply applies one committed command to the state. It uses no clock, disk, environment,
// configuration, randomness, log or goroutine.
func (s *State) Apply(index uint64, c Command) (Result, Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied = index
	r := s.fold(c, index)
	if once, ok := c.(*Once); ok {
		c = once.command
	}
	if audited, ok := c.(*Audited); ok {
		c = audited.command
	}
	r.change.Op = c.Op()
	if !r.repeat {
		r.change.Keys = r.Keys
	}
	change := r.change
	r.change, r.repeat = Change{}, false
	return r, change
}

// AppliedIndex returns the Raft index of the last command applied. Entries without a command don't
// change it.
func (s *State) AppliedIndex() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.applied
}

// Cluster returns the founding record; false before founding.
func (s *State) Cluster() (Cluster, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster, s.cluster.UUID != ""
}

// Found founds the cluster: its identity, its first member, its first secrets and its first ring.
type Found struct {
	Cluster Cluster   `msgpack:"cluster"`
	Member  Member    `msgpack:"member"`
	AES     string    `msgpack:"aes"`     // 76 characters, see wire.Key
	Session []byte    `msgpack:"session"` // 32 random bytes
	At      time.Time `msgpack:"at"`
}

// Op implements Command.
func (*Found) Op() Op { return OpFound }

func (c *Found) apply(s *State, index uint64) Result {
	if s.cluster.UUID != "" {
		return Result{Refused: RefusedFounded}
	}
	if c.Cluster.UUID == "" || c.Cluster.Partitions <= 0 || !c.Member.valid() || c.AES == "" ||
		len(c.Session) == 0 {
		return Result{Refused: RefusedInvalid}
	}
	s.cluster = c.Cluster
	s.cluster.At = c.At.UTC()
	m := s.putMember(c.Member, c.At, index)
	s.aes.active = Epoch{Number: 1, Secret: []byte(c.AES), At: c.At.UTC()}
	s.session.active = Epoch{Number: 1, Secret: c.Session, At: c.At.UTC()}
	s.ring = Ring{Epoch: 1, Members: []string{m.Node}}
	return Result{Changed: true, Epoch: 1, change: Change{Added: []Member{*m}, Secrets: true,
		Ring: true}}
}

// SetJoinKey replaces K, so that only joiners with the new cluster_secret are admitted. Earlier
// bars keep the K that the barred peers knew.
type SetJoinKey struct {
	JoinKey []byte `msgpack:"join_key"`
}

// Op implements Command.
func (*SetJoinKey) Op() Op { return OpSetJoinKey }

func (c *SetJoinKey) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if len(c.JoinKey) == 0 {
		return Result{Refused: RefusedInvalid}
	}
	for id, b := range s.bars {
		if len(b.JoinKey) == 0 {
			b.JoinKey = s.cluster.JoinKey
			s.bars[id] = b
		}
	}
	s.cluster.JoinKey = c.JoinKey
	return Result{Changed: true, change: Change{Secrets: true}}
}
