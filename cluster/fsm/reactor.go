package fsm

import (
	"slices"
	"time"
)

// OpChangeReactor is apart from the numbers in command.go.
const OpChangeReactor Op = 64

// Bounds of operators' additions to the option reactor.
const (
	MaxReactors     = 1000 // added and deleted tags together
	MaxReactorTag   = 1 << 10
	MaxReactorFiles = 100 // of one tag
	MaxReactorPath  = 4 << 10
)

// Reactor is one entry of the option reactor: a pattern for tags and the SLS files that react.
type Reactor struct {
	Tag   string   `msgpack:"tag"`
	Files []string `msgpack:"files"`
}

// Reactors holds operators' changes of the option reactor while the cluster runs.
type Reactors struct {
	Added   []Reactor `msgpack:"added"`   // in order of addition, after those of the option
	Deleted []string  `msgpack:"deleted"` // tags of the option that are disabled, sorted
	Off     bool      `msgpack:"off"`     // all reactors are off
	Index   uint64    `msgpack:"index"`   // of the last change
}

// tidy normalizes r so that equal ones have equal bytes.
func (r *Reactors) tidy() {
	if len(r.Added) == 0 {
		r.Added = nil
	}
	if len(r.Deleted) == 0 {
		r.Deleted = nil
	}
}

func (r Reactors) empty() bool { return len(r.Added)+len(r.Deleted) == 0 && !r.Off }

// added returns the index of an added reactor by its tag.
func (r Reactors) added(tag string) int {
	return slices.IndexFunc(r.Added, func(a Reactor) bool { return a.Tag == tag })
}

// Reactors returns operators' changes of the option reactor.
func (s *State) Reactors() Reactors {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.reactors
}

// ReactorAction is what ChangeReactor does. The numbers are in the log: append only.
type ReactorAction uint8

// The actions.
const (
	AddReactor    ReactorAction = 1
	DeleteReactor ReactorAction = 2
	ReactorsOn    ReactorAction = 3
	ReactorsOff   ReactorAction = 4
)

// ChangeReactor adds or deletes a reactor, or turns all of them on or off. A Result without Changed
// says that nothing had to change, because the tag to add was present or the tag to delete was
// absent.
type ChangeReactor struct {
	Action ReactorAction `msgpack:"action"`
	Tag    string        `msgpack:"tag"`
	Files  []string      `msgpack:"files"`
	// Configured says that the proposer's option reactor has the tag.
	Configured bool      `msgpack:"configured"`
	At         time.Time `msgpack:"at"`
}

// Op implements Command.
func (*ChangeReactor) Op() Op { return OpChangeReactor }

func (c *ChangeReactor) apply(s *State, index uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	r := s.reactors
	hidden, deleted := slices.BinarySearch(r.Deleted, c.Tag)
	added := r.added(c.Tag)
	switch c.Action {
	case AddReactor:
		if c.Tag == "" || len(c.Tag) > MaxReactorTag || len(c.Files) > MaxReactorFiles ||
			slices.ContainsFunc(c.Files, func(f string) bool { return len(f) > MaxReactorPath }) {
			return Result{Refused: RefusedInvalid}
		}
		if added >= 0 || c.Configured && !deleted {
			return Result{}
		}
		if len(r.Added)+len(r.Deleted) >= MaxReactors {
			return Result{Refused: RefusedFull}
		}
		r.Added = append(slices.Clip(r.Added), Reactor{Tag: c.Tag, Files: c.Files})
	case DeleteReactor:
		switch {
		case added >= 0:
			r.Added = slices.Delete(slices.Clone(r.Added), added, added+1)
		case !c.Configured || deleted:
			return Result{}
		case len(r.Added)+len(r.Deleted) >= MaxReactors || len(c.Tag) > MaxReactorTag:
			return Result{Refused: RefusedFull}
		default:
			r.Deleted = slices.Insert(slices.Clone(r.Deleted), hidden, c.Tag)
		}
	case ReactorsOn, ReactorsOff:
		off := c.Action == ReactorsOff
		if r.Off == off {
			return Result{}
		}
		r.Off = off
	default:
		return Result{Refused: RefusedInvalid}
	}
	r.Index = index
	r.tidy()
	s.reactors = r
	return Result{Changed: true, change: Change{Reactors: true}}
}
