package history

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestChecker shows that the check can fail: it refuses what one machine can't have answered, and
// accepts the rest.
func TestChecker(t *testing.T) {
	t.Parallel()
	type op struct {
		from, to int64
		Call
		Outcome
	}
	key := func(verb string) Call { return Call{Register: "k", Verb: verb} }
	did, not, lost := Outcome{Changed: true}, Outcome{}, Outcome{Unknown: true}
	saw := func(s string) Outcome { return Outcome{Value: s} }
	const forever = math.MaxInt64
	accepted := []op{{0, 1, key("offer"), saw("pending")}, {2, 3, key("accept"), did}}
	tests := []struct {
		name  string
		model Model
		ops   []op
		want  porcupine.CheckResult
	}{
		{"read own write", KeyModel(), append(accepted[:2:2],
			op{4, 5, key("look"), saw("minions")}), porcupine.Ok},
		{"stale read", KeyModel(), append(accepted[:2:2],
			op{4, 5, key("look"), saw("minions_pre")}), porcupine.Illegal},
		{"read while it changes", KeyModel(), append(accepted[:1:1], op{2, 6, key("accept"), did},
			op{3, 4, key("look"), saw("minions_pre")}), porcupine.Ok},
		{"back in time", KeyModel(), append(accepted[:1:1], op{2, 9, key("accept"), did},
			op{3, 4, key("look"), saw("minions")}, op{5, 6, key("look"), saw("minions_pre")}),
			porcupine.Illegal},
		{"lost write", KeyModel(), append(accepted[:2:2], op{4, 5, key("delete"), did},
			op{6, 7, key("look"), saw("minions")}), porcupine.Illegal},
		{"both sides of a split accept", KeyModel(),
			append(accepted[:1:1], op{2, 5, key("accept"), did}, op{3, 6, key("accept"), did}),
			porcupine.Illegal},
		{"one of two says that it did", KeyModel(),
			append(accepted[:1:1], op{2, 5, key("accept"), did}, op{3, 6, key("accept"), not}),
			porcupine.Ok},
		{"unknown took effect", KeyModel(),
			append(accepted[:1:1], op{2, forever, key("accept"), lost},
				op{4, 5, key("look"), saw("minions")}), porcupine.Ok},
		{"unknown took none", KeyModel(),
			append(accepted[:1:1], op{2, forever, key("accept"), lost},
				op{4, 5, key("look"), saw("minions_pre")}), porcupine.Ok},
		{"unknown took effect late", KeyModel(),
			append(accepted[:1:1], op{2, forever, key("accept"), lost},
				op{4, 5, key("look"), saw("minions_pre")}, op{6, 7, key("look"), saw("minions")}),
			porcupine.Ok},
		{"unknown was undone", KeyModel(),
			append(accepted[:1:1], op{2, forever, key("accept"), lost},
				op{4, 5, key("look"), saw("minions")}, op{6, 7, key("look"), saw("minions_pre")}),
			porcupine.Illegal},
		{"unknown before it was asked", KeyModel(),
			append(accepted[:1:1], op{4, forever, key("accept"), lost},
				op{2, 3, key("look"), saw("minions")}), porcupine.Illegal},
		{"refused a minion that nobody rejected", KeyModel(),
			append(accepted[:2:2], op{4, 5, key("offer"), saw("rejected")}), porcupine.Illegal},
		{"accepted a minion that nobody accepted", KeyModel(),
			append(accepted[:1:1], op{2, 3, key("offer"), saw("accepted")}), porcupine.Illegal},
		{"accepted from old memory", KeyModel(), append(accepted[:2:2], op{4, 5, key("delete"), did},
			op{6, 7, key("offer"), saw("accepted")}), porcupine.Ok},
		{"stored an offer", KeyModel(), []op{{0, 1, key("offer"), saw("stored")},
			{2, 3, key("look"), saw("minions_pre")}}, porcupine.Ok},
		{"stored nothing", KeyModel(), []op{{0, 1, key("offer"), saw("stored")},
			{2, 3, key("look"), saw("")}}, porcupine.Illegal},
		{"pending without a quorum", KeyModel(), []op{{0, 1, key("offer"), saw("pending")},
			{2, 3, key("look"), saw("")}}, porcupine.Ok},
		{"a vote comes back by itself", SwitchModel("on"),
			[]op{{0, 1, key("off"), did}, {2, 3, key("look"), saw("on")}}, porcupine.Illegal},
		{"a vote is taken", SwitchModel("on"),
			[]op{{0, 1, key("off"), did}, {2, 3, key("look"), saw("off")}}, porcupine.Ok},
		{"a token returns", TokenModel(), []op{{0, 1, key("put"), did}, {2, 3, key("drop"), did},
			{4, 5, key("look"), saw("there")}}, porcupine.Illegal},
		{"two drop a token", TokenModel(), []op{{0, 1, key("put"), did}, {2, 5, key("drop"), did},
			{3, 6, key("drop"), did}}, porcupine.Illegal},
		{"a token comes late", TokenModel(), []op{{0, forever, key("put"), lost},
			{2, 3, key("drop"), not}, {4, 5, key("look"), saw("there")}}, porcupine.Ok},
		{"two claim a turn", ClaimModel(), []op{{0, 3, key("0"), Outcome{Changed: true, Value: "1"}},
			{1, 4, key("0"), Outcome{Changed: true, Value: "1"}}}, porcupine.Illegal},
		{"one of two claims a turn", ClaimModel(),
			[]op{{0, 3, key("0"), Outcome{Changed: true, Value: "1"}}, {1, 4, key("0"), saw("1")}},
			porcupine.Ok},
		{"a claim is forgotten", ClaimModel(),
			[]op{{0, 1, key("0"), Outcome{Changed: true, Value: "1"}}, {2, 3, key("look"), saw("0")}},
			porcupine.Illegal},
		{"an unknown claim took effect", ClaimModel(),
			[]op{{0, forever, key("0"), lost}, {2, 3, key("look"), saw("1")}}, porcupine.Ok},
		{"registers are apart", SwitchModel("on"),
			[]op{{0, 1, key("off"), did}, {2, 3, Call{Register: "other", Verb: "look"}, saw("on")}},
			porcupine.Ok},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := New()
			for i, o := range tt.ops {
				h.ops = append(h.ops, porcupine.Operation{ClientId: i, Input: o.Call, Call: o.from,
					Output: o.Outcome, Return: o.to})
			}
			if got := h.Judge(tt.model); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestOfferTwice records offers that were proposed twice: the first made the key pending, which was
// then accepted or deleted, and the second found that. It is no excuse for a key that nobody
// offered.
func TestOfferTwice(t *testing.T) {
	t.Parallel()
	key := func(verb string) Call { return Call{Register: "m", Verb: verb, At: "m1"} }
	h := New()
	begun := h.Now()
	h.Add(1, begun, key("accept"), Outcome{Changed: true})
	h.AddOffer(2, begun, key("offer"), Outcome{})
	if got := h.Judge(KeyModel()); got != porcupine.Ok {
		t.Errorf("accepted while it was offered: got %s, want %s", got, porcupine.Ok)
	}
	h.Add(1, h.Now(), key("delete"), Outcome{Changed: true})
	begun = h.Now()
	h.Add(1, begun, key("delete"), Outcome{Changed: true})
	h.AddOffer(2, begun, key("offer"), Outcome{Value: "pending"})
	h.Add(1, h.Now(), key("look"), Outcome{Value: "minions_pre"})
	if got := h.Judge(KeyModel()); got != porcupine.Ok {
		t.Errorf("deleted while it was offered: got %s, want %s", got, porcupine.Ok)
	}
	h.Add(1, h.Now(), key("delete"), Outcome{Changed: true})
	h.Add(1, h.Now(), key("accept"), Outcome{Changed: true})
	if got := h.Judge(KeyModel()); got != porcupine.Illegal {
		t.Errorf("accepted after it was deleted: got %s, want %s", got, porcupine.Illegal)
	}
}

// plain is the model that leaves calls of unknown outcome to the checker.
func (m Model) plain() porcupine.Model {
	n := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.first} },
		Step: func(s, input, output any) (after []any) {
			for _, state := range m.step(s.(string), input.(Call), output.(Outcome)) {
				after = append(after, state)
			}
			return after
		},
	}
	return n.ToModel()
}

// TestLostCalls compares the check with a plain one, on short random histories of one register.
func TestLostCalls(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	results := make(map[porcupine.CheckResult]int)
	for range 20_000 {
		m := []Model{KeyModel(), TokenModel(), ClaimModel(), SwitchModel("on")}
		verbs := [][]string{{"offer", "accept", "reject", "delete", "look"}, {"put", "drop", "look"},
			{"0", "1", "2", "look"}, {"on", "off", "look"}}
		values := [][]string{{"", "minions_pre", "minions", "minions_rejected", "accepted", "stored"},
			{"", "there"}, {"0", "1", "2", "3"}, {"on", "off"}}
		kind := rng.IntN(len(m))
		h := New()
		for i := range 2 + rng.IntN(7) {
			c := Call{Verb: verbs[kind][rng.IntN(len(verbs[kind]))]}
			out := Outcome{Changed: rng.IntN(2) == 0, Value: values[kind][rng.IntN(len(values[kind]))]}
			begun := rng.Int64N(20)
			end := begun + 1 + rng.Int64N(8)
			if c.Verb != "look" && rng.IntN(3) == 0 {
				out, end = Outcome{Unknown: true}, math.MaxInt64
			}
			h.ops = append(h.ops, porcupine.Operation{ClientId: i, Input: c, Call: begun, Output: out,
				Return: end})
		}
		got := h.Judge(m[kind])
		want := porcupine.CheckOperationsTimeout(m[kind].plain(), h.ops, checkLimit)
		if results[want]++; got != want {
			t.Fatalf("got %s, want %s: %v", got, want, h.ops)
		}
	}
	if results[porcupine.Ok] < 1000 || results[porcupine.Illegal] < 1000 {
		t.Errorf("too few of a kind: %v", results)
	}
}

// TestManyLostCalls: calls of unknown outcome cost no time that doubles with each.
func TestManyLostCalls(t *testing.T) {
	t.Parallel()
	h := New()
	for i := range int64(200) {
		for n, verb := range []string{"offer", "accept", "reject", "delete"} {
			h.ops = append(h.ops, porcupine.Operation{ClientId: n, Input: Call{Verb: verb},
				Call: 10 * i, Output: Outcome{Unknown: true}, Return: math.MaxInt64})
		}
		saw := []string{"minions_pre", "minions", "minions_rejected", ""}[i%4]
		h.ops = append(h.ops, porcupine.Operation{ClientId: 9, Input: Call{Verb: "look"},
			Call: 10*i + 5, Output: Outcome{Value: saw}, Return: 10*i + 7})
	}
	if got := h.Judge(KeyModel()); got != porcupine.Ok {
		t.Errorf("got %s, want %s", got, porcupine.Ok)
	}
}

// TestTold: only calls that prove something count.
func TestTold(t *testing.T) {
	h := New()
	for _, c := range []struct {
		verb string
		out  Outcome
	}{
		{"look", Outcome{}}, {"look", Outcome{Unknown: true}},
		{"accept", Outcome{Changed: true}}, {"accept", Outcome{}},
		{"accept", Outcome{Unknown: true, Changed: true}},
	} {
		h.Add(1, h.Now(), Call{Register: "a", Verb: c.verb}, c.out)
	}
	for _, out := range []Outcome{{Value: "stored"}, {Unknown: true}} {
		h.AddOffer(1, -1, Call{Register: "a", Verb: "offer"}, out)
	}
	h.ops = append(h.ops, porcupine.Operation{Input: Call{Verb: "offer"}, Output: Outcome{}}) // from memory
	for verb, want := range map[string]int{"look": 1, "accept": 1, "reject": 0, "offer": 1} {
		if got := h.Told(verb); got != want {
			t.Errorf("%s: %d, want %d", verb, got, want)
		}
	}
}
