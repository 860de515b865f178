package history

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Model is what a single machine does with one register.
type Model struct {
	first string // the register's state at the beginning
	// step returns the states that a call may leave a register in: none if it can't have had that
	// outcome in that state
	step func(state string, c Call, out Outcome) []string
}

// lost are the calls of one register with an unknown outcome. Each took effect at some time after
// it began, or never will. A checker that tries both for each needs twice the time for every such
// call. But those with one verb all do the same, so the earlier of two can be taken for the later,
// and the register is at no disadvantage where fewer have taken effect.
type lost struct {
	calls []Call    // one of each verb
	begun [][]int64 // when those with that verb began, the earliest first
}

func (l *lost) add(c Call, begun int64) {
	i := slices.IndexFunc(l.calls, func(o Call) bool { return o.Verb == c.Verb })
	if i < 0 {
		i = len(l.calls)
		l.calls, l.begun = append(l.calls, c), append(l.begun, nil)
	}
	l.begun[i] = append(l.begun[i], begun)
	slices.Sort(l.begun[i])
}

// place is a state in which a register may be, and how many of the lost calls with each verb have
// taken effect before: the earliest.
type place struct {
	state string
	used  []int
}

// covers reports that whatever can follow q can follow p.
func (p place) covers(q place) bool {
	for i, n := range p.used {
		if n > q.used[i] {
			return false
		}
	}
	return p.state == q.state
}

// keep adds p to places, without those that others cover. It reports whether p is one of them.
func keep(places *[]place, p place) bool {
	if slices.ContainsFunc(*places, func(q place) bool { return q.covers(p) }) {
		return false
	}
	*places = append(slices.DeleteFunc(*places, p.covers), p)
	return true
}

// reach returns the places that a register can be in when a call that ended at end takes effect, if
// it was in one of these before. A lost call that began later has no effect before that call.
func (l *lost) reach(m Model, from []place, end int64) []place {
	var reached []place
	next := slices.DeleteFunc(slices.Clone(from), func(p place) bool {
		for i, n := range p.used {
			if n > 0 && l.begun[i][n-1] > end {
				return true
			}
		}
		return false
	})
	for len(next) > 0 {
		p := next[0]
		next = next[1:]
		if !keep(&reached, p) {
			continue
		}
		for i, c := range l.calls {
			n := p.used[i]
			if n == len(l.begun[i]) || l.begun[i][n] > end {
				continue
			}
			for _, state := range m.step(p.state, c, Outcome{Unknown: true}) {
				if state != p.state {
					q := place{state, slices.Clone(p.used)}
					q.used[i]++
					next = append(next, q)
				}
			}
		}
	}
	return reached
}

// known is a call with an outcome, as porcupine gets it.
type known struct {
	Call
	end  int64
	lost *lost // of its register
}

// checked turns a history into what porcupine checks.
func checked(ops []porcupine.Operation) []porcupine.Operation {
	registers := make(map[string]*lost)
	for _, op := range ops {
		c := op.Input.(Call)
		if registers[c.Register] == nil {
			registers[c.Register] = &lost{}
		}
		if op.Output.(Outcome).Unknown {
			registers[c.Register].add(c, op.Call)
		}
	}
	var out []porcupine.Operation
	for _, op := range ops {
		if !op.Output.(Outcome).Unknown {
			c := op.Input.(Call)
			op.Input = known{c, op.Return, registers[c.Register]}
			out = append(out, op)
		}
	}
	return out
}

// places is a state of the checker: all places that a register can be in. Equal ones have one text.
type places struct {
	list []place
	text string
}

func placesOf(list []place) places {
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.state, b.state), slices.Compare(a.used, b.used))
	})
	var text []byte
	for _, p := range list {
		text = append(append(text, p.state...), ' ')
		for _, n := range p.used {
			text = append(strconv.AppendInt(text, int64(n), 10), ' ')
		}
	}
	return places{list, string(text)}
}

// checker is the model for the calls of checked.
func (m Model) checker() porcupine.Model {
	return porcupine.Model{
		Partition: byRegister,
		Init:      func() any { return places{} },
		Step: func(s, input, output any) (bool, any) {
			from, in := s.(places).list, input.(known)
			if from == nil {
				from = []place{{m.first, make([]int, len(in.lost.calls))}}
			}
			var after []place
			for _, p := range in.lost.reach(m, from, in.end) {
				for _, state := range m.step(p.state, in.Call, output.(Outcome)) {
					keep(&after, place{state, p.used})
				}
			}
			return len(after) > 0, placesOf(after)
		},
		Equal: func(a, b any) bool { return a.(places).text == b.(places).text },
		DescribeOperation: func(input, output any) string {
			return describe(input.(known).Call, output.(Outcome))
		},
		DescribeState: func(s any) string { return s.(places).text },
	}
}

// byRegister is sound: a history is linearizable if and only if its part for each register is
// (Herlihy and Wing, 1990).
func byRegister(ops []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, op := range ops {
		r := op.Input.(known).Register
		parts[r] = append(parts[r], op)
	}
	var out [][]porcupine.Operation
	for _, p := range parts {
		out = append(out, p)
	}
	return out
}

func describe(in Call, out Outcome) string {
	text := in.Verb + " " + in.Register + " at " + in.At
	switch {
	case out.Unknown:
		return text + " -> ?"
	case in.Verb == "look" || in.Verb == "offer":
		return text + " -> " + out.Value
	}
	return fmt.Sprintf("%s -> %t", text, out.Changed)
}

// checkLimit bounds the check of one history. Its time grows steeply with the calls that overlap.
const checkLimit = time.Minute

// Judge returns whether a history can have happened on one machine: Ok, Illegal, or Unknown if the
// check takes too long.
func (h *History) Judge(m Model) porcupine.CheckResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	return porcupine.CheckOperationsTimeout(m.checker(), checked(h.ops), checkLimit)
}

// Check fails the test if a history can't have happened on one machine.
func (h *History) Check(t testing.TB, what string, m Model) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	ops, model := checked(h.ops), m.checker()
	begun := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model, ops, checkLimit)
	t.Logf("%s: %d calls, %d of them with unknown outcome, checked in %v: %s", what, len(h.ops),
		len(h.ops)-len(ops), time.Since(begun).Round(time.Millisecond), result)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("%s: the history is not linearizable (%s)", what, result)
	for _, part := range byRegister(ops) {
		if porcupine.CheckOperationsTimeout(model, part, checkLimit) == porcupine.Ok {
			continue
		}
		register := part[0].Input.(known).Register
		var text strings.Builder
		for _, op := range h.ops {
			if c := op.Input.(Call); c.Register == register {
				fmt.Fprintf(&text, "%9.3f %9.3f  %s\n", float64(op.Call)/1e9, float64(op.Return)/1e9,
					describe(c, op.Output.(Outcome)))
			}
		}
		t.Logf("the calls of %s:\n%s", register, text.String())
	}
	if f, err := os.CreateTemp("", "history-*.html"); err == nil {
		if porcupine.Visualize(model, info, f) == nil {
			t.Logf("drawn in %s, without the calls of unknown outcome", f.Name())
		}
		f.Close()
	}
}
