package fsm

import (
	"slices"
	"time"
)

// MaxReplicas is R, the number of owners of a partition if the ring has that many members.
const MaxReplicas = 3

// Ring says who owns data. Package hashring computes the placement; it is never stored.
type Ring struct {
	Epoch   uint64   `msgpack:"epoch"`
	Members []string `msgpack:"members"` // nodes, sorted
}

// Replicas returns R for this ring.
func (r Ring) Replicas() int { return min(MaxReplicas, max(1, len(r.Members))) }

// Ring returns the current ring. Its Members are shared: read only.
func (s *State) Ring() Ring {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ring
}

// SetRing replaces the owners of data. The state refuses it as stale unless Epoch is the next
// number, so two changes made from the same ring can't both happen.
type SetRing struct {
	Epoch   uint64    `msgpack:"epoch"`
	Members []string  `msgpack:"members"`
	At      time.Time `msgpack:"at"`
}

// Op implements Command.
func (*SetRing) Op() Op { return OpSetRing }

func (c *SetRing) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if len(c.Members) == 0 {
		return Result{Refused: RefusedInvalid}
	}
	if c.Epoch != s.ring.Epoch+1 {
		return Result{Refused: RefusedStale}
	}
	for _, node := range c.Members {
		if _, ok := s.members[node]; !ok {
			return Result{Refused: RefusedNotMember}
		}
	}
	members := slices.Clone(c.Members)
	slices.Sort(members)
	members = slices.Compact(members)
	s.ring = Ring{Epoch: c.Epoch, Members: members}
	return Result{Changed: true, Epoch: c.Epoch, change: Change{Ring: true}}
}
