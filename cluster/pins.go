package cluster

import (
	"sync"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/cluster/level"
	"clustermaster/transport/peer"
)

// Pins tells the peer port which node key belongs to which member. It is made before the port,
// which is made before the Node; until Open it knows no member. Safe for concurrent use.
//
// Beside the replicated members it holds those that a proved member named in the join channel: a
// joiner must know the leader before it has any state, and a member that missed a change of members
// must find the others. They count only while the state here is older than the members' index.
type Pins struct {
	// guards all below; never held across a call out of this package except the state's reads
	mu       sync.RWMutex
	state    *fsm.State
	self     fsm.Member
	learnt   map[string]fsm.Member // by node
	learntAt uint64
	// by node: members that named an address other than the one in their record
	moved map[string]newAddr
}

// newAddr is the address that a member named. It counts while the member's record stays as it was
// then.
type newAddr struct{ addr, instead string }

var _ peer.Pins = (*Pins)(nil)

// NewPins returns pins that know no member yet.
func NewPins() *Pins { return &Pins{} }

func (p *Pins) open(state *fsm.State, self fsm.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.self = state, self
}

// Level returns the cluster's level as far as this master knows it.
func (p *Pins) Level() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.state == nil {
		return level.Base
	}
	return p.state.Level()
}

// learn adds the members that a member named, as of a Raft index.
func (p *Pins) learn(members []fsm.Member, index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.learnt != nil && index < p.learntAt {
		return
	}
	p.learnt, p.learntAt = make(map[string]fsm.Member, len(members)), index
	for _, m := range members {
		p.learnt[m.Node] = m
	}
}

// hearsay returns the learnt members while they are newer than the state, else nil. The caller
// holds mu.
func (p *Pins) hearsay() map[string]fsm.Member {
	if p.learnt == nil || p.state.AppliedIndex() >= p.learntAt {
		return nil
	}
	return p.learnt
}

// known lists the members that are known, from the state or by hearsay.
func (p *Pins) known() []fsm.Member {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.state == nil {
		return nil
	}
	if h := p.hearsay(); h != nil {
		out := make([]fsm.Member, 0, len(h))
		for _, m := range h {
			out = append(out, m)
		}
		return out
	}
	return p.state.Members()
}

// lists reports whether node is a member by the newest knowledge: what a member said counts while
// the state here is older.
func (p *Pins) lists(node string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if _, ok := p.hearsay()[node]; ok {
		return true
	}
	_, ok := p.state.MemberByNode(node)
	return ok
}

func (p *Pins) member(node string) (fsm.Member, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.state == nil {
		return fsm.Member{}, false
	}
	if m, ok := p.hearsay()[node]; ok {
		return m, true
	}
	if m, ok := p.state.MemberByNode(node); ok {
		return m, true
	}
	if node == p.self.Node {
		return p.self, true
	}
	return fsm.Member{}, false
}

// NodeBySPKI implements peer.Pins.
func (p *Pins) NodeBySPKI(spki [32]byte) (string, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.state == nil {
		return "", false
	}
	if m, ok := p.state.MemberBySPKI(spki); ok {
		return m.Node, true
	}
	for _, m := range p.hearsay() {
		if m.SPKI == spki {
			return m.Node, true
		}
	}
	return "", false
}

// SPKIOf implements peer.Pins.
func (p *Pins) SPKIOf(node string) ([32]byte, bool) {
	m, ok := p.member(node)
	return m.SPKI, ok
}

// AddrOf implements peer.Pins.
func (p *Pins) AddrOf(node string) (string, bool) {
	m, ok := p.member(node)
	if at, said := p.said(node); said && at.instead == m.Addr {
		return at.addr, ok
	}
	return m.Addr, ok && m.Addr != ""
}

func (p *Pins) said(node string) (newAddr, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	at, ok := p.moved[node]
	return at, ok
}

// believe takes the address that the owner of a node key names. It reports whether a member has
// moved by that.
//
// All masters may get new addresses at once, and without a quorum no record can change. So a
// member's own word counts instead of its record until the record changes.
func (p *Pins) believe(spki [32]byte, addr string) bool {
	node, ok := p.NodeBySPKI(spki)
	if !ok || node == p.self.Node { // a copy of this master's data directory has its key
		return false
	}
	if at, ok := p.AddrOf(node); ok && at == addr {
		return false
	}
	m, ok := p.member(node)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved == nil {
		p.moved = make(map[string]newAddr)
	}
	p.moved[node] = newAddr{addr: addr, instead: m.Addr} // bounded, as only members get here
	return true
}

func toPeer(m fsm.Member) *clusterpb.Peer {
	return &clusterpb.Peer{Node: m.Node, Id: m.ID, Incarnation: m.Incarnation, Addr: m.Addr,
		Spki: m.SPKI[:], Version: m.Version}
}

// fromPeer reads a member from a message. It returns false if the message holds none.
func fromPeer(p *clusterpb.Peer) (fsm.Member, bool) {
	m := fsm.Member{Node: p.GetNode(), ID: p.GetId(), Incarnation: p.GetIncarnation(),
		Addr: p.GetAddr(), Version: p.GetVersion()}
	if len(p.GetSpki()) != len(m.SPKI) || m.ID == "" || m.Incarnation == "" ||
		m.Node != fsm.NodeName(m.ID, m.Incarnation) {
		return fsm.Member{}, false
	}
	copy(m.SPKI[:], p.GetSpki())
	return m, true
}
