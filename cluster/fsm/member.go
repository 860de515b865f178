package fsm

import (
	"sort"
	"time"
)

// Member is one master of the cluster.
type Member struct {
	// id/incarnation: Raft's ServerID and the name in the ring
	Node        string    `msgpack:"node"`
	ID          string    `msgpack:"id"` // shown to operators
	Incarnation string    `msgpack:"incarnation"`
	Addr        string    `msgpack:"addr"` // host:port of the peer port; empty when stand-alone
	SPKI        [32]byte  `msgpack:"spki"` // SHA-256 of the node key's SubjectPublicKeyInfo
	Version     string    `msgpack:"version"`
	Learner     bool      `msgpack:"learner"` // stays a nonvoter: never promoted
	Since       time.Time `msgpack:"since"`
	Index       uint64    `msgpack:"index"` // of the command that added it
	// the node key's public part, PEM; "" until the member has sent it
	Pub string `msgpack:"pub,omitempty"`
	// not ready, by order: minions go to other masters
	Draining bool      `msgpack:"draining,omitempty"`
	Demoted  time.Time `msgpack:"demoted,omitempty"` // when it last lost its vote; zero: never
}

func (m *Member) valid() bool {
	return m.ID != "" && m.Incarnation != "" && m.Node == NodeName(m.ID, m.Incarnation)
}

// NodeName joins an id and an incarnation into the name of a node.
func NodeName(id, incarnation string) string { return id + "/" + incarnation }

// Bar keeps a removed peer out until it is allowed again.
type Bar struct {
	ID   string    `msgpack:"id"`
	SPKI [32]byte  `msgpack:"spki"`
	At   time.Time `msgpack:"at"`
	// JoinKey is the K that the peer knew, if K has been rotated since. With it and its own node
	// key the peer may still prove its identity, to learn that it was removed.
	JoinKey []byte `msgpack:"join_key,omitempty"`
}

// PutMember admits a member or updates its address, version or node key. It refuses another
// incarnation of a present member's id unless Replace names that member, which then leaves in the
// same step.
type PutMember struct {
	Member  Member    `msgpack:"member"`
	Replace string    `msgpack:"replace"` // node
	At      time.Time `msgpack:"at"`
}

// Op implements Command.
func (*PutMember) Op() Op { return OpPutMember }

func (c *PutMember) apply(s *State, index uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if !c.Member.valid() {
		return Result{Refused: RefusedInvalid}
	}
	for _, b := range s.bars {
		if b.ID == c.Member.ID || b.SPKI == c.Member.SPKI {
			return Result{Refused: RefusedBarred}
		}
	}
	var replaced *Member
	for _, m := range s.members {
		switch {
		case m.Node == c.Member.Node:
		case m.Node == c.Replace && m.ID == c.Member.ID:
			replaced = m
		}
	}
	for _, m := range s.members {
		if m.Node == c.Member.Node || m == replaced {
			continue
		}
		switch {
		case m.ID == c.Member.ID:
			return Result{Refused: RefusedIDTaken}
		case m.SPKI == c.Member.SPKI:
			return Result{Refused: RefusedKeyTaken}
		case m.Addr != "" && m.Addr == c.Member.Addr:
			return Result{Refused: RefusedAddrTaken}
		}
	}
	if old, ok := s.members[c.Member.Node]; ok && replaced == nil {
		same := *old
		same.Addr, same.SPKI, same.Version = c.Member.Addr, c.Member.SPKI, c.Member.Version
		if c.Member.Pub != "" {
			same.Pub = c.Member.Pub
		}
		if same == *old {
			return Result{}
		}
	}
	change := Change{}
	if replaced != nil { // operators' orders for the id continue to hold
		c.Member.Learner, c.Member.Draining = replaced.Learner, replaced.Draining
		s.dropMember(replaced, index)
		change.Removed = []Member{*replaced}
	}
	change.Added = []Member{*s.putMember(c.Member, c.At, index)}
	return Result{Changed: true, change: change}
}

// RemoveMember removes a member. With Bar its id and node key stay barred until AllowMember.
type RemoveMember struct {
	Node string    `msgpack:"node"`
	Bar  bool      `msgpack:"bar"`
	At   time.Time `msgpack:"at"`
}

// Op implements Command.
func (*RemoveMember) Op() Op { return OpRemoveMember }

func (c *RemoveMember) apply(s *State, index uint64) Result {
	m, ok := s.members[c.Node]
	if !ok {
		return Result{Refused: RefusedNotMember}
	}
	s.dropMember(m, index)
	if c.Bar {
		s.bars[m.ID] = Bar{ID: m.ID, SPKI: m.SPKI, At: c.At.UTC()}
	}
	return Result{Changed: true, change: Change{Removed: []Member{*m}}}
}

// AllowMember lifts the bar of a removed id.
type AllowMember struct {
	ID string `msgpack:"id"`
}

// Op implements Command.
func (*AllowMember) Op() Op { return OpAllowMember }

func (c *AllowMember) apply(s *State, _ uint64) Result {
	if _, ok := s.bars[c.ID]; !ok {
		return Result{}
	}
	delete(s.bars, c.ID)
	return Result{Changed: true}
}

// putMember stores m as a new record, so that records in snapshots never change.
func (s *State) putMember(m Member, at time.Time, index uint64) *Member {
	if old, ok := s.members[m.Node]; ok {
		m.Since, m.Index = old.Since, old.Index
		m.Learner, m.Draining, m.Demoted = old.Learner, old.Draining, old.Demoted
		if m.Pub == "" && m.SPKI == old.SPKI {
			m.Pub = old.Pub
		}
		delete(s.bySPKI, old.SPKI)
	} else {
		m.Since, m.Index = at.UTC(), index
	}
	s.members[m.Node] = &m
	s.bySPKI[m.SPKI] = &m
	s.version = index
	return &m
}

func (s *State) dropMember(m *Member, index uint64) {
	delete(s.members, m.Node)
	delete(s.bySPKI, m.SPKI)
	s.version = index
}

// MemberByNode returns the member with the given node name.
func (s *State) MemberByNode(node string) (Member, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if m, ok := s.members[node]; ok {
		return *m, true
	}
	return Member{}, false
}

// MemberBySPKI returns the member that pins the given node key.
func (s *State) MemberBySPKI(spki [32]byte) (Member, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if m, ok := s.bySPKI[spki]; ok {
		return *m, true
	}
	return Member{}, false
}

// MemberByID returns the member with the given operator-visible id.
func (s *State) MemberByID(id string) (Member, bool) {
	return s.memberWhere(func(m *Member) bool { return m.ID == id })
}

// MemberByAddr returns the member with the given peer address, host:port.
func (s *State) MemberByAddr(addr string) (Member, bool) {
	return s.memberWhere(func(m *Member) bool { return m.Addr == addr })
}

func (s *State) memberWhere(f func(*Member) bool) (Member, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.members {
		if f(m) {
			return *m, true
		}
	}
	return Member{}, false
}

// Members returns all members sorted by id.
func (s *State) Members() []Member {
	s.mu.RLock()
	out := make([]Member, 0, len(s.members))
	for _, m := range s.members {
		out = append(out, *m)
	}
	s.mu.RUnlock()
	sort.Slice(out, func(i, j int) bool { return out[i].Node < out[j].Node })
	return out
}

// MembershipVersion is the Raft index of the last change of members.
func (s *State) MembershipVersion() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.version
}

// Bars returns the removed peers that are kept out, sorted by id.
func (s *State) Bars() []Bar {
	s.mu.RLock()
	out := make([]Bar, 0, len(s.bars))
	for _, b := range s.bars {
		out = append(out, b)
	}
	s.mu.RUnlock()
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}
