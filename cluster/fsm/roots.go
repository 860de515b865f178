package fsm

import (
	"sort"
	"time"
)

// The commands about roots.
const OpSetRootsHead Op = 32

// Trees of roots. The numbers are in the log: append only.
const (
	TreeFile   uint8 = 1 // file_roots
	TreePillar uint8 = 2 // pillar_roots
)

// RootsHead says which contents of one tree every master should have. The manifest lists the
// contents; the masters hold both in their blob stores (package statesync).
type RootsHead struct {
	Tree     uint8    `msgpack:"tree"`
	Seq      uint64   `msgpack:"seq"` // 1 for the first head of the tree
	Manifest [32]byte `msgpack:"manifest"`
	Size     int64    `msgpack:"size"`   // of the manifest in bytes
	Source   string   `msgpack:"source"` // id of the master whose tree it is
	// replace local changes on other masters by the source's contents
	Force bool      `msgpack:"force"`
	At    time.Time `msgpack:"at"`
}

// RootsHead returns the head of a tree; false if none was published yet.
func (s *State) RootsHead(tree uint8) (RootsHead, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h, ok := s.roots[tree]
	return h, ok
}

// RootsHeads returns all heads, sorted by tree.
func (s *State) RootsHeads() []RootsHead {
	s.mu.RLock()
	out := make([]RootsHead, 0, len(s.roots))
	for _, h := range s.roots {
		out = append(out, h)
	}
	s.mu.RUnlock()
	sort.Slice(out, func(i, j int) bool { return out[i].Tree < out[j].Tree })
	return out
}

// SetRootsHead publishes a head. The state refuses it as stale unless Head.Seq is the next number,
// so of two masters that publish from the same head only one succeeds. A repeat of the command that
// made the current head changes nothing.
type SetRootsHead struct {
	Head RootsHead `msgpack:"head"`
}

// Op implements Command.
func (*SetRootsHead) Op() Op { return OpSetRootsHead }

func (c *SetRootsHead) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	h := c.Head
	h.At = h.At.UTC()
	if h.Tree != TreeFile && h.Tree != TreePillar || h.Size <= 0 {
		return Result{Refused: RefusedInvalid}
	}
	now := s.roots[h.Tree]
	if h == now {
		return Result{Epoch: h.Seq}
	}
	if h.Seq != now.Seq+1 {
		return Result{Refused: RefusedStale}
	}
	s.roots[h.Tree] = h
	return Result{Changed: true, Epoch: h.Seq, change: Change{Roots: true}}
}
