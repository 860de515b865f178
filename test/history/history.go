package history

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Call is one operation on one register: a minion key, a vote, a drain.
type Call struct {
	Register string
	Verb     string
	At       string // the master asked; for readers
}

// Outcome is how a call ended.
type Outcome struct {
	Unknown bool   // no answer, or one that leaves open whether the call took effect or ever will
	Changed bool   // by a change's own answer
	Value   string // the answer of a look
}

// History collects calls as they happen. Safe for concurrent use.
type History struct {
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// New makes an empty history that begins now.
func New() *History { return &History{start: time.Now()} }

// Now is when a call begins, in nanoseconds since New.
func (h *History) Now() int64 { return int64(time.Since(h.start)) }

// Add records a call that began at the given time and ends now. A call with an unknown outcome
// never ends: it may take effect at any later time, or never.
func (h *History) Add(client int, begun int64, c Call, out Outcome) {
	end := h.Now()
	if out.Unknown {
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: begun, Output: out,
		Return: end})
}

// repeated is the value of an offer that AddOffer adds.
const repeated = "repeated"

// AddOffer records an offered key, as Add. A master that loses the answer to its proposal proposes
// the offer again. So the key may first have become pending, and been accepted, rejected or deleted
// before the second proposal: that is recorded as an offer of its own. An offer that took no time
// was answered from memory.
func (h *History) AddOffer(client int, begun int64, c Call, out Outcome) {
	if !out.Unknown && h.Now() > begun {
		h.Add(client, begun, c, Outcome{Value: repeated})
	}
	h.Add(client, begun, c, out)
}

// Calls is the number of recorded calls.
func (h *History) Calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// Told is the number of calls with that verb whose answer says what became of them: looks and
// offers that were answered, and changes that changed something. An offer that was answered from
// memory does not count.
func (h *History) Told(verb string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range h.ops {
		out := op.Output.(Outcome)
		offered := verb == "offer" && op.Return > op.Call && out.Value != repeated
		if op.Input.(Call).Verb == verb && !out.Unknown && (out.Changed || verb == "look" || offered) {
			n++
		}
	}
	return n
}

// KeyModel is a minion key: absent, pending, accepted or rejected. It begins absent. An offer is
// answered by "accepted", "rejected", "pending", or "stored": that is pending, and not from memory.
func KeyModel() Model {
	const absent, pending, accepted, rejected = "", "minions_pre", "minions", "minions_rejected"
	const ever = " ever" // after the states of a key that was accepted before
	// become is a change from some states. Its answer says truly whether it changed anything.
	become := func(state, to string, out Outcome, from ...string) []string {
		changes := slices.Contains(from, state)
		switch {
		case !out.Unknown && out.Changed != changes:
			return nil
		case changes:
			return []string{to}
		}
		return []string{state}
	}
	step := func(state string, before bool, c Call, out Outcome) []string {
		switch c.Verb {
		case "accept":
			return become(state, accepted, out, pending)
		case "reject":
			return become(state, rejected, out, pending, accepted)
		case "delete":
			return become(state, absent, out, pending, accepted, rejected)
		case "offer":
			switch {
			case !out.Unknown && out.Value == "rejected" && state != rejected:
				return nil // it ends a minion for good, so it must be true
			case !out.Unknown && out.Value == "accepted":
				if !before && state != accepted {
					return nil // memory may be old, but was right once
				}
				return []string{state}
			case state != absent:
				return []string{state}
			case !out.Unknown && out.Value == "stored":
				return []string{pending}
			case !out.Unknown && out.Value != "pending" && out.Value != repeated:
				return []string{absent}
			}
			// memory, and a master without quorum, answer pending and store nothing
			return []string{pending, absent}
		}
		return look(state, c, out)
	}
	return Model{absent, func(state string, c Call, out Outcome) []string {
		state, before := strings.CutSuffix(state, ever)
		after := step(state, before, c, out)
		for i, s := range after {
			if before || s == accepted {
				after[i] = s + ever
			}
		}
		return after
	}}
}

// look is the step of a call that changes nothing.
func look(state string, c Call, out Outcome) []string {
	if c.Verb != "look" {
		panic("no verb " + c.Verb)
	}
	if !out.Unknown && out.Value != state {
		return nil
	}
	return []string{state}
}

// SwitchModel is a fact about a member, such as its vote: on or off. It begins as given.
func SwitchModel(initially string) Model {
	return Model{initially, func(state string, c Call, out Outcome) []string {
		if c.Verb == "on" || c.Verb == "off" {
			return []string{c.Verb}
		}
		return look(state, c, out)
	}}
}

// TokenModel is a token that is stored once, and dropped and looked for by many. It begins absent.
func TokenModel() Model {
	const there, absent = "there", ""
	return Model{absent, func(state string, c Call, out Outcome) []string {
		switch c.Verb {
		case "put":
			if out.Unknown || out.Changed {
				return []string{there}
			}
			return []string{state}
		case "drop":
			if !out.Unknown && out.Changed != (state == there) {
				return nil // it says truly whether there was a token
			}
			return []string{absent}
		}
		return look(state, c, out)
	}}
}

// ClaimModel is a counter of turns, in decimal. The verb of a claim is the turn that it was made
// from: it succeeds if that is the present turn, which then rises by one. Its answer, and that of a
// look, is the turn afterwards. It begins with 0.
func ClaimModel() Model {
	return Model{"0", func(state string, c Call, out Outcome) []string {
		if c.Verb == "look" {
			return look(state, c, out)
		}
		after := state
		if c.Verb == state {
			turn, err := strconv.Atoi(state)
			if err != nil {
				panic(err)
			}
			after = strconv.Itoa(turn + 1)
		}
		if !out.Unknown && (out.Changed != (after != state) || out.Value != after) {
			return nil
		}
		return []string{after}
	}}
}
