package history

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
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

// AddOffer records an offered key, as Add. A master that loses the answer to its proposal proposes
// the offer again. So the key may first have become pending, and been accepted, rejected or deleted
// before the second proposal: that is recorded as an offer of its own. An offer that took no time
// was answered from memory.
func (h *History) AddOffer(client int, begun int64, c Call, out Outcome) {
	if !out.Unknown && h.Now() > begun {
		h.Add(client, begun, c, Outcome{Value: "pending"})
	}
	h.Add(client, begun, c, out)
}

// DropIdleClaims removes claims with an unknown outcome that had no effect, or none that was seen:
// those from a turn that another call claimed, or that no answer lies beyond. The history is as
// linearizable as before, and is checked in much less time.
func (h *History) DropIdleClaims() {
	h.mu.Lock()
	defer h.mu.Unlock()
	claimed, most := map[string]bool{}, map[string]int{}
	of := func(c Call) string { return c.Register + " " + c.Verb }
	for _, op := range h.ops {
		c, out := op.Input.(Call), op.Output.(Outcome)
		if out.Unknown {
			continue
		}
		claimed[of(c)] = claimed[of(c)] || out.Changed
		if turn, err := strconv.Atoi(out.Value); err == nil {
			most[c.Register] = max(most[c.Register], turn)
		}
	}
	h.ops = slices.DeleteFunc(h.ops, func(op porcupine.Operation) bool {
		c := op.Input.(Call)
		turn, err := strconv.Atoi(c.Verb)
		return op.Output.(Outcome).Unknown && err == nil &&
			(claimed[of(c)] || turn >= most[c.Register])
	})
}

// Calls is the number of recorded calls.
func (h *History) Calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// byRegister is sound: a history is linearizable if and only if its part for each register is
// (Herlihy and Wing, 1990).
func byRegister(ops []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, op := range ops {
		r := op.Input.(Call).Register
		parts[r] = append(parts[r], op)
	}
	var out [][]porcupine.Operation
	for _, p := range parts {
		out = append(out, p)
	}
	return out
}

// KeyModel is a minion key: absent, pending, accepted or rejected. Init is absent.
func KeyModel() porcupine.Model {
	const absent, pending, accepted, rejected = "", "minions_pre", "minions", "minions_rejected"
	// become is a change from some states. Its answer says truly whether it changed anything.
	become := func(state, to string, out Outcome, from ...string) []any {
		changes := false
		for _, f := range from {
			changes = changes || state == f
		}
		switch {
		case !out.Unknown && out.Changed != changes:
			return nil
		case changes:
			return []any{to}
		}
		return []any{state}
	}
	m := porcupine.NondeterministicModel{
		Partition: byRegister,
		Init:      func() []any { return []any{absent} },
		Step: func(s, input, output any) []any {
			state, in, out := s.(string), input.(Call), output.(Outcome)
			switch in.Verb {
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
				case !out.Unknown && out.Value != "pending" || state != absent:
					return []any{state} // a known key is answered from memory
				}
				// a master without quorum answers pending and stores nothing
				return []any{pending, absent}
			case "look":
				if out.Value != state {
					return nil
				}
				return []any{state}
			}
			panic("no verb " + in.Verb)
		},
		DescribeOperation: describe,
	}
	return m.ToModel()
}

// SwitchModel is a fact about a member, such as its vote: on or off. Init is as given.
func SwitchModel(initially string) porcupine.Model {
	return porcupine.Model{
		Partition: byRegister,
		Init:      func() any { return initially },
		Step: func(s, input, output any) (bool, any) {
			in, out := input.(Call), output.(Outcome)
			if in.Verb == "look" {
				return out.Value == s, s
			}
			return true, in.Verb // "on" or "off"
		},
		DescribeOperation: describe,
	}
}

// TokenModel is a token that is stored once, and dropped and looked for by many. Init is absent.
func TokenModel() porcupine.Model {
	const there, absent = "there", ""
	m := porcupine.NondeterministicModel{
		Partition: byRegister,
		Init:      func() []any { return []any{absent} },
		Step: func(s, input, output any) []any {
			state, in, out := s.(string), input.(Call), output.(Outcome)
			switch in.Verb {
			case "put":
				if out.Unknown || out.Changed {
					return []any{there}
				}
				return []any{state}
			case "drop":
				if !out.Unknown && out.Changed != (state == there) {
					return nil // it says truly whether there was a token
				}
				return []any{absent}
			case "look":
				if out.Value != state {
					return nil
				}
				return []any{state}
			}
			panic("no verb " + in.Verb)
		},
		DescribeOperation: describe,
	}
	return m.ToModel()
}

// ClaimModel is a counter of turns, in decimal. The verb of a claim is the turn that it was made
// from: it succeeds if that is the present turn, which then rises by one. Its answer, and that of a
// look, is the turn afterwards. Init is 0.
func ClaimModel() porcupine.Model {
	return porcupine.Model{
		Partition: byRegister,
		Init:      func() any { return 0 },
		Step: func(s, input, output any) (bool, any) {
			turn, in, out := s.(int), input.(Call), output.(Outcome)
			after, wins := turn, in.Verb == strconv.Itoa(turn)
			if wins {
				after++
			}
			if in.Verb == "look" {
				wins = out.Changed
			}
			return out.Unknown || out.Changed == wins && out.Value == strconv.Itoa(after), after
		},
		DescribeOperation: describe,
	}
}

func describe(input, output any) string {
	in, out := input.(Call), output.(Outcome)
	text := in.Verb + " " + in.Register + " at " + in.At
	switch {
	case out.Unknown:
		return text + " -> ?"
	case in.Verb == "look" || in.Verb == "offer":
		return text + " -> " + out.Value
	}
	return fmt.Sprintf("%s -> %t", text, out.Changed)
}

// checkLimit bounds the check of one history. Its time grows steeply with the calls that have no
// end.
const checkLimit = time.Minute

// Judge returns whether a history can have happened on one machine: Ok, Illegal, or Unknown if the
// check takes too long.
func (h *History) Judge(model porcupine.Model) porcupine.CheckResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	return porcupine.CheckOperationsTimeout(model, h.ops, checkLimit)
}

// Check fails the test if a history can't have happened on one machine.
func (h *History) Check(t testing.TB, what string, model porcupine.Model) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	unknown := 0
	for _, op := range h.ops {
		if op.Output.(Outcome).Unknown {
			unknown++
		}
	}
	begun := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model, h.ops, checkLimit)
	t.Logf("%s: %d calls, %d of them with unknown outcome, checked in %v: %s", what, len(h.ops),
		unknown, time.Since(begun).Round(time.Millisecond), result)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("%s: the history is not linearizable (%s)", what, result)
	for _, part := range byRegister(h.ops) {
		if porcupine.CheckOperationsTimeout(model, part, checkLimit) == porcupine.Ok {
			continue
		}
		var text strings.Builder
		for _, op := range part {
			fmt.Fprintf(&text, "%9.3f %9.3f  %s\n", float64(op.Call)/1e9, float64(op.Return)/1e9,
				describe(op.Input, op.Output))
		}
		t.Logf("the calls of %s:\n%s", part[0].Input.(Call).Register, text.String())
	}
	if f, err := os.CreateTemp("", "history-*.html"); err == nil {
		if porcupine.Visualize(model, info, f) == nil {
			t.Logf("drawn in %s", f.Name())
		}
		f.Close()
	}
}
