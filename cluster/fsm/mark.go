package fsm

import "time"

// Mark is an order about a member that is kept across restarts. The numbers are in the log: append
// only.
type Mark uint8

// The marks.
const (
	MarkDrain   Mark = 1 // not ready until MarkUndrain
	MarkUndrain Mark = 2
	MarkLearner Mark = 3 // loses its vote and gets none until MarkVoter
	MarkVoter   Mark = 4 // may get a vote
	MarkDemoted Mark = 5 // lost its vote because it was not heard; it may get one again
)

// MarkMember marks a member. A repeat changes nothing, except of MarkDemoted, which sets a new
// time.
type MarkMember struct {
	Node string    `msgpack:"node"`
	Mark Mark      `msgpack:"mark"`
	At   time.Time `msgpack:"at"`
}

// Op implements Command.
func (*MarkMember) Op() Op { return OpMarkMember }

func (c *MarkMember) apply(s *State, index uint64) Result {
	old, ok := s.members[c.Node]
	if !ok {
		return Result{Refused: RefusedNotMember}
	}
	m := *old
	switch c.Mark {
	case MarkDrain:
		m.Draining = true
	case MarkUndrain:
		m.Draining = false
	case MarkLearner:
		if !m.Learner {
			m.Learner, m.Demoted = true, c.At.UTC()
		}
	case MarkVoter:
		m.Learner, m.Demoted = false, time.Time{}
	case MarkDemoted:
		m.Demoted = c.At.UTC()
	default:
		return Result{Refused: RefusedInvalid}
	}
	if m == *old {
		return Result{}
	}
	s.members[m.Node] = &m
	s.bySPKI[m.SPKI] = &m
	s.version = index
	return Result{Changed: true, change: Change{Added: []Member{m}}}
}

// BarBySPKI returns the bar of a node key.
func (s *State) BarBySPKI(spki [32]byte) (Bar, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, b := range s.bars {
		if b.SPKI == spki {
			return b, true
		}
	}
	return Bar{}, false
}
