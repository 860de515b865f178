package faults

import (
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// call is one operation on one register: a minion key, a vote, a drain.
type call struct {
	register string
	verb     string
	at       string // the master asked; for people
}

// outcome is how a call ended.
type outcome struct {
	unknown bool   // no answer, or one that leaves open whether the call took effect, then or ever
	changed bool   // what a change said of itself
	value   string // what a look saw
}

// history collects calls as they happen. Safe for concurrent use.
type history struct {
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func newHistory() *history { return &history{start: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.start)) }

// add records a call that began at the given time and ends now. One whose outcome is unknown never
// ends: it may take effect at any later time, and after everything else means that it never did.
func (h *history) add(client int, begun int64, c call, out outcome) {
	end := h.now()
	if out.unknown {
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: begun, Output: out,
		Return: end})
}

// byRegister is sound: a history is linearizable if and only if its part of each register is
// (Herlihy and Wing, 1990).
func byRegister(ops []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, op := range ops {
		r := op.Input.(call).register
		parts[r] = append(parts[r], op)
	}
	var out [][]porcupine.Operation
	for _, p := range parts {
		out = append(out, p)
	}
	return out
}

// keyModel is a minion key: absent, pending, accepted or rejected. Init is absent.
func keyModel() porcupine.Model {
	const absent, pending, accepted, rejected = "", "minions_pre", "minions", "minions_rejected"
	// become is a change from some states; it says truly whether it changed anything.
	become := func(state, to string, out outcome, from ...string) []any {
		changes := false
		for _, f := range from {
			changes = changes || state == f
		}
		switch {
		case !out.unknown && out.changed != changes:
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
			state, in, out := s.(string), input.(call), output.(outcome)
			switch in.verb {
			case "accept":
				return become(state, accepted, out, pending)
			case "reject":
				return become(state, rejected, out, pending, accepted)
			case "delete":
				return become(state, absent, out, pending, accepted, rejected)
			case "offer":
				switch {
				case !out.unknown && out.value == "rejected" && state != rejected:
					return nil // ends a minion for good, so it must be true
				case !out.unknown && out.value != "pending" || state != absent:
					return []any{state} // a known key is answered for from memory
				}
				// a master without quorum says pending and stores nothing
				return []any{pending, absent}
			case "look":
				if out.value != state {
					return nil
				}
				return []any{state}
			}
			panic("no verb " + in.verb)
		},
		DescribeOperation: describe,
	}
	return m.ToModel()
}

// switchModel is a fact about a member, such as its vote: on or off. Init is as given.
func switchModel(initially string) porcupine.Model {
	return porcupine.Model{
		Partition: byRegister,
		Init:      func() any { return initially },
		Step: func(s, input, output any) (bool, any) {
			in, out := input.(call), output.(outcome)
			if in.verb == "look" {
				return out.value == s, s
			}
			return true, in.verb // "on" or "off"
		},
		DescribeOperation: describe,
	}
}

func describe(input, output any) string {
	in, out := input.(call), output.(outcome)
	text := in.verb + " " + in.register + " at " + in.at
	switch {
	case out.unknown:
		return text + " -> ?"
	case in.verb == "look" || in.verb == "offer":
		return text + " -> " + out.value
	}
	return fmt.Sprintf("%s -> %t", text, out.changed)
}

// checkLimit is for one history; the check's time grows steeply with the calls that have no end.
const checkLimit = time.Minute

// check fails the test if a history can't have happened on one machine.
func (h *history) check(t *testing.T, what string, model porcupine.Model) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	unknown := 0
	for _, op := range h.ops {
		if op.Output.(outcome).unknown {
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
		t.Logf("the calls of %s:\n%s", part[0].Input.(call).register, text.String())
	}
	if f, err := os.CreateTemp("", "history-*.html"); err == nil {
		if porcupine.Visualize(model, info, f) == nil {
			t.Logf("drawn in %s", f.Name())
		}
		f.Close()
	}
}

// The check can fail: what one machine can't have answered is refused, what it can have is not.
func TestChecker(t *testing.T) {
	t.Parallel()
	type op struct {
		from, to int64
		call
		outcome
	}
	key := func(verb string) call { return call{register: "k", verb: verb} }
	did, not, lost := outcome{changed: true}, outcome{}, outcome{unknown: true}
	saw := func(s string) outcome { return outcome{value: s} }
	const forever = math.MaxInt64
	accepted := []op{{0, 1, key("offer"), saw("pending")}, {2, 3, key("accept"), did}}
	tests := []struct {
		name  string
		model porcupine.Model
		ops   []op
		want  porcupine.CheckResult
	}{
		{"read own write", keyModel(), append(accepted[:2:2],
			op{4, 5, key("look"), saw("minions")}), porcupine.Ok},
		{"stale read", keyModel(), append(accepted[:2:2],
			op{4, 5, key("look"), saw("minions_pre")}), porcupine.Illegal},
		{"read while it changes", keyModel(), append(accepted[:1:1], op{2, 6, key("accept"), did},
			op{3, 4, key("look"), saw("minions_pre")}), porcupine.Ok},
		{"back in time", keyModel(), append(accepted[:1:1], op{2, 9, key("accept"), did},
			op{3, 4, key("look"), saw("minions")}, op{5, 6, key("look"), saw("minions_pre")}),
			porcupine.Illegal},
		{"lost write", keyModel(), append(accepted[:2:2], op{4, 5, key("delete"), did},
			op{6, 7, key("look"), saw("minions")}), porcupine.Illegal},
		{"both sides of a split accept", keyModel(),
			append(accepted[:1:1], op{2, 5, key("accept"), did}, op{3, 6, key("accept"), did}),
			porcupine.Illegal},
		{"one of two says that it did", keyModel(),
			append(accepted[:1:1], op{2, 5, key("accept"), did}, op{3, 6, key("accept"), not}),
			porcupine.Ok},
		{"unknown took effect", keyModel(),
			append(accepted[:1:1], op{2, forever, key("accept"), lost},
				op{4, 5, key("look"), saw("minions")}), porcupine.Ok},
		{"unknown took none", keyModel(),
			append(accepted[:1:1], op{2, forever, key("accept"), lost},
				op{4, 5, key("look"), saw("minions_pre")}), porcupine.Ok},
		{"unknown took effect late", keyModel(),
			append(accepted[:1:1], op{2, forever, key("accept"), lost},
				op{4, 5, key("look"), saw("minions_pre")}, op{6, 7, key("look"), saw("minions")}),
			porcupine.Ok},
		{"unknown was undone", keyModel(),
			append(accepted[:1:1], op{2, forever, key("accept"), lost},
				op{4, 5, key("look"), saw("minions")}, op{6, 7, key("look"), saw("minions_pre")}),
			porcupine.Illegal},
		{"unknown before it was asked", keyModel(),
			append(accepted[:1:1], op{4, forever, key("accept"), lost},
				op{2, 3, key("look"), saw("minions")}), porcupine.Illegal},
		{"refused a minion that nobody rejected", keyModel(),
			append(accepted[:2:2], op{4, 5, key("offer"), saw("rejected")}), porcupine.Illegal},
		{"a vote comes back by itself", switchModel("on"),
			[]op{{0, 1, key("off"), did}, {2, 3, key("look"), saw("on")}}, porcupine.Illegal},
		{"a vote is taken", switchModel("on"),
			[]op{{0, 1, key("off"), did}, {2, 3, key("look"), saw("off")}}, porcupine.Ok},
		{"registers are apart", switchModel("on"),
			[]op{{0, 1, key("off"), did}, {2, 3, call{register: "other", verb: "look"}, saw("on")}},
			porcupine.Ok},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var ops []porcupine.Operation
			for i, o := range tt.ops {
				ops = append(ops, porcupine.Operation{ClientId: i, Input: o.call, Call: o.from,
					Output: o.outcome, Return: o.to})
			}
			if got := porcupine.CheckOperationsTimeout(tt.model, ops, checkLimit); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
