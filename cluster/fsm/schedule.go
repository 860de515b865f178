package fsm

import (
	"maps"
	"slices"
	"time"
)

// The commands of the schedule have numbers apart from those in command.go.
const (
	OpClaimRun  Op = 65
	OpClearRuns Op = 66
)

// Bounds of what is stored about a schedule.
const (
	maxScheduled     = 4096 // entries
	maxScheduledName = 1 << 10
	maxScheduledRuns = 256 // of one entry at the same time
)

// Scheduled is the agreed state of one entry of the option schedule: its position in its periods,
// and its unfinished runs. Times are UTC; the zero time means none.
type Scheduled struct {
	Name string `msgpack:"name"`
	// Turn counts the changes. A claim names the turn that it was made from.
	Turn  uint64    `msgpack:"turn"`
	Entry [32]byte  `msgpack:"entry"` // hash of the entry; an edited entry starts anew
	Next  time.Time `msgpack:"next"`  // when it is due
	Splay time.Time `msgpack:"splay"` // when it is due with its splay
	Last  time.Time `msgpack:"last"`  // when it ran last, or was due and skipped
	// when it is due because a range that delayed it has ended
	After   time.Time `msgpack:"after"`
	Started bool      `msgpack:"started"`
	At      time.Time `msgpack:"at"`   // of the last change
	Runs    []Run     `msgpack:"runs"` // unfinished runs, oldest first
}

// Run is one run of an entry.
type Run struct {
	JID  string `msgpack:"jid"`
	Node string `msgpack:"node"` // the master on which it runs
}

// tidy normalizes e so that equal ones have equal bytes.
func (e *Scheduled) tidy() {
	if len(e.Runs) == 0 {
		e.Runs = nil
	}
	for _, t := range []*time.Time{&e.Next, &e.Splay, &e.Last, &e.After, &e.At} {
		if *t = t.UTC(); t.IsZero() {
			*t = time.Time{}
		}
	}
}

// Scheduled returns the state of an entry of the schedule; false if there is none.
func (s *State) Scheduled(name string) (Scheduled, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.scheduled[name]
	return e, ok
}

// ScheduledEntries returns the state of all entries, sorted by name.
func (s *State) ScheduledEntries() []Scheduled {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Scheduled, 0, len(s.scheduled))
	for _, name := range sortedNames(s.scheduled) {
		out = append(out, s.scheduled[name])
	}
	return out
}

// ClaimRun advances an entry, and with a JID claims one run of it. Of two masters that claim from
// the same turn only one succeeds, and the other is refused as stale. So no period runs twice, even
// if two masters believe that they lead.
type ClaimRun struct {
	Entry Scheduled `msgpack:"entry"` // Turn is that of the claim; Runs is ignored
	JID   string    `msgpack:"jid,omitempty"`
	Node  string    `msgpack:"node,omitempty"`
}

// Op implements Command.
func (*ClaimRun) Op() Op { return OpClaimRun }

func (c *ClaimRun) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	e := c.Entry
	if e.Name == "" || len(e.Name) > maxScheduledName || len(c.JID) > maxScheduledName ||
		len(c.Node) > maxScheduledName {
		return Result{Refused: RefusedInvalid}
	}
	old, known := s.scheduled[e.Name]
	if old.Turn != e.Turn {
		return Result{Refused: RefusedStale, Epoch: old.Turn}
	}
	if !known && len(s.scheduled) >= s.most("State.scheduled") {
		return Result{Refused: s.beyond("State.scheduled")}
	}
	if c.JID != "" && len(old.Runs) >= s.most("Scheduled.Runs") {
		return Result{Refused: s.beyond("Scheduled.Runs")}
	}
	e.tidy()
	e.Turn, e.Runs = old.Turn+1, old.Runs
	if c.JID != "" {
		e.Runs = append(slices.Clip(old.Runs), Run{JID: c.JID, Node: c.Node})
	}
	s.scheduled[e.Name] = e
	return Result{Changed: true, Epoch: e.Turn}
}

// ClearRuns records that runs have ended: those of the jobs, and all of Node, which masters of
// release 0.1.0 name when they start. It forgets the entries in Forget unless they advanced since
// Before.
type ClearRuns struct {
	JIDs   []string  `msgpack:"jids,omitempty"`
	Node   string    `msgpack:"node,omitempty"`
	Forget []string  `msgpack:"forget,omitempty"`
	Before time.Time `msgpack:"before"`
}

// Op implements Command.
func (*ClearRuns) Op() Op { return OpClearRuns }

func (c *ClearRuns) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	changed := false
	for _, name := range slices.Sorted(maps.Keys(s.scheduled)) {
		e := s.scheduled[name]
		if slices.Contains(c.Forget, name) && e.At.Before(c.Before) && len(e.Runs) == 0 {
			delete(s.scheduled, name)
			changed = true
			continue
		}
		ended := func(r Run) bool {
			return c.Node != "" && r.Node == c.Node ||
				slices.Contains(c.JIDs, r.JID)
		}
		if !slices.ContainsFunc(e.Runs, ended) {
			continue
		}
		e.Runs = slices.DeleteFunc(slices.Clone(e.Runs), ended)
		e.tidy()
		s.scheduled[name] = e
		changed = true
	}
	return Result{Changed: changed}
}
