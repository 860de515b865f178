package fsm

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster/level"
)

// stateTypes walks the types of v and calls fn with each text, list and map that the state or a
// command holds: its name as in Limits. Keys of maps in the state are texts of the records in them.
func stateTypes(typ reflect.Type, of string, inState bool, seen map[reflect.Type]bool,
	fn func(of string)) {
	switch typ.Kind() {
	case reflect.Pointer:
		stateTypes(typ.Elem(), of, inState, seen, fn)
	case reflect.String:
		fn(of)
	case reflect.Slice, reflect.Map:
		fn(of)
		if typ.Elem().Kind() == reflect.Uint8 {
			return
		}
		if typ.Kind() == reflect.Map && typ.Key().Kind() == reflect.String && !inState {
			fn(of + "{}")
		}
		stateTypes(typ.Elem(), of+"[]", inState, seen, fn)
	case reflect.Struct:
		if seen[typ] || typ == reflect.TypeFor[time.Time]() || typ.PkgPath() == "sync" {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !inState && !f.IsExported() {
				continue
			}
			stateTypes(f.Type, typ.Name()+"."+f.Name, inState, seen, fn)
		}
	case reflect.Interface, reflect.Func, reflect.Chan:
		fn(of)
	}
}

// TestEverythingInTheStateHasABound walks the fields of the state and of all commands.
func TestEverythingInTheStateHasABound(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	need := func(of string) {
		used[of] = true
		if _, ok := limitOf[of]; !ok {
			t.Errorf("%s has no bound: give it one in Limits, and refuse what exceeds it", of)
		}
	}
	stateTypes(reflect.TypeFor[State](), "", true,
		map[reflect.Type]bool{reflect.TypeFor[Change](): true}, func(of string) {
			switch of {
			case "State.lowered": // of this test
			case "State.denied[]":
				need("denied.list")
			case "State.audits[]":
				need("audits.list")
			default:
				need(of)
			}
		})
	for op := range 256 {
		if c := newCommand(Op(op)); c != nil && level.OfCommand(uint8(op)) > 0 {
			stateTypes(reflect.TypeOf(c), "", false, map[reflect.Type]bool{}, need)
		}
	}
	for _, l := range Limits {
		if !used[l.Of] {
			t.Errorf("%s is in Limits, and there is no such field", l.Of)
		}
		if l.Most <= 0 || l.What == "" || l.Then == "" {
			t.Errorf("%s: %+v", l.Of, l)
		}
	}
}

// filler adds one more element to a collection of the state each time it is called with the next n.
type filler struct {
	// makes room for the next, such as a member to remove; their results don't matter
	before func(n int) []Command
	next   func(n int) Command
	act    string // outcome that tells of the bound, where it is no refusal
	silent bool   // what is too much gives way, or isn't kept
}

func limitMember(n int) Member {
	id := fmt.Sprintf("n%d", n)
	return Member{Node: NodeName(id, "01"), ID: id, Incarnation: "01",
		SPKI: [32]byte{1, byte(n), byte(n >> 8)}}
}

var limitAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func limitToken(n int) Token {
	return Token{Hash: [32]byte{byte(n + 1)}, Owner: "o", Expire: limitAt.Add(time.Hour)}
}

var fillers = map[string][]filler{
	"State.members": {{next: func(n int) Command { return &PutMember{Member: limitMember(n)} }}},
	"State.bars": {
		{
			before: func(n int) []Command { return []Command{&PutMember{Member: limitMember(n)}} },
			next: func(n int) Command {
				return &RemoveMember{Node: limitMember(n).Node,
					Bar: true}
			},
		},
		{next: func(n int) Command {
			return &Restore{Saved: Saved{ClusterKey: "k", AES: "a", Session: []byte("s"),
				Bars: []Bar{{ID: fmt.Sprint("b", n), SPKI: [32]byte{9, byte(n)}}}}}
		}},
	},
	"State.keys": {
		{next: func(n int) Command {
			return &OfferKey{ID: fmt.Sprint("a", n), Pub: "p",
				Auto: AutoAccept}
		}, act: "full"},
		{next: func(n int) Command { return &OfferKey{ID: fmt.Sprint("b", n), Pub: "p"} },
			act: "full"},
		{next: func(n int) Command {
			return &OfferKey{ID: fmt.Sprint("c", n), Pub: "p",
				Open: true}
		}, act: "full"},
		{next: func(n int) Command {
			return &ImportKeys{Keys: []Key{{ID: fmt.Sprint("d", n), State: KeyAccepted, Pub: "p"}}}
		}},
		{
			before: func(n int) []Command {
				return []Command{&ImportKeys{Keys: []Key{{ID: fmt.Sprint("e", n), State: KeyDenied,
					Pub: "p"}}}}
			},
			next: func(n int) Command {
				return &ChangeKeys{Action: AcceptKeys, IDs: []string{fmt.Sprint("e", n)},
					From: StateSet(KeyDenied)}
			},
		},
		{next: func(n int) Command {
			saved := Saved{ClusterKey: "k", AES: "a", Session: []byte("s")}
			for i := range n + 1 {
				saved.Keys = append(saved.Keys,
					Key{ID: fmt.Sprint("f", i), State: KeyAccepted, Pub: "p"})
			}
			return &Restore{Saved: saved}
		}},
	},
	"State.denied": {
		{next: func(n int) Command {
			return &ImportKeys{Keys: []Key{{ID: fmt.Sprint("d", n), State: KeyDenied, Pub: "p"}}}
		}},
		{
			before: func(n int) []Command {
				return []Command{&ImportKeys{Keys: []Key{{ID: fmt.Sprint("e", n),
					State: KeyAccepted, Pub: "p"}}}}
			},
			next:   func(n int) Command { return &OfferKey{ID: fmt.Sprint("e", n), Pub: "q"} },
			silent: true,
		},
	},
	"State.parts": {{next: func(n int) Command {
		return &RestorePart{Token: "t", Number: n,
			Keys: []Key{{ID: fmt.Sprint("a", n), State: KeyAccepted, Pub: "p"}}}
	}}},
	"State.userKeys": {{next: func(n int) Command {
		return &SetUserKeys{Keys: []UserKey{{User: fmt.Sprint("u", n), Key: "k"}}}
	}}},
	"State.scheduled": {{next: func(n int) Command { return &ClaimRun{Entry: Scheduled{Name: fmt.Sprint("s", n)}} }}},
	"State.tokens": {
		{next: func(n int) Command {
			return &PutToken{Token: limitToken(n), Max: 1e6, MaxPerOwner: 1e6, At: limitAt}
		}, silent: true}, // refused as full, as since ever
		{next: func(n int) Command {
			saved := Saved{ClusterKey: "k", AES: "a", Session: []byte("s")}
			for i := range n + 1 {
				saved.Tokens = append(saved.Tokens, limitToken(i))
			}
			return &Restore{Saved: saved, At: limitAt}
		}},
	},
	"State.done": {{next: func(n int) Command {
		c, err := NewOnce(fmt.Sprintf("%016d", n), &Noop{})
		if err != nil {
			panic(err)
		}
		return c
	}, silent: true}},
	"State.git": {
		{next: func(n int) Command {
			return &SetGitRefs{Key: fmt.Sprintf("%032x", n), Seq: 1,
				Put: []GitRef{{Name: "refs/remotes/origin/a",
					Commit: fmt.Sprintf("%040x", n)}}, At: limitAt}
		}, silent: true}, // refused as full
		{next: func(n int) Command {
			return &ChangeGit{Action: LockGit,
				Key: fmt.Sprintf("%032x", n), At: limitAt}
		}, silent: true},
	},
	"State.roots": {{next: func(n int) Command {
		return &SetRootsHead{Head: RootsHead{Tree: uint8(n + 1), Seq: 1, Size: 1}}
	}, silent: true}}, // refused as invalid: there are two
}

// derived are collections that can't be larger than others: each says why.
var derived = map[string]string{
	"State.bySPKI":  "a member each",
	"State.offered": "a key each",
	"State.audits":  "two lists of each kind; TestAuditIsBounded counts what is in them",
	"State.lowered": "of this test",
}

// alwaysBound are collections that had their bounds before they had names.
var alwaysBound = []string{"State.done", "State.git", "State.roots", "State.scheduled"}

// TestCollectionsKeepTheirBounds fills every map and list of the state to its bound, by each
// command that adds to it.
func TestCollectionsKeepTheirBounds(t *testing.T) {
	t.Parallel()
	typ := reflect.TypeFor[State]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Type.Kind() != reflect.Map && f.Type.Kind() != reflect.Slice {
			continue
		}
		of := "State." + f.Name
		if derived[of] == "" && len(fillers[of]) == 0 {
			t.Errorf("%s: no command of this test fills it", of)
		}
	}
	size := func(s *State, of string) int {
		if of == "State.denied" {
			return s.deniedN
		}
		return reflect.ValueOf(s).Elem().FieldByName(strings.TrimPrefix(of, "State.")).Len()
	}
	const most, tried = 5, 9
	for of, all := range fillers {
		for i, fill := range all {
			for _, limited := range []bool{true, false} {
				s := foundedHere(t)
				bound := most
				switch {
				case of == "State.done" || of == "State.roots": // constants in their commands
					bound = limitOf[of].Most
				default:
					s.lowered = map[string]int{of: most}
				}
				index := uint64(2)
				apply := func(c Command) Result {
					index++
					r, _ := s.Apply(index, c)
					return r
				}
				if limited {
					apply(&SetLevel{Level: limitsLevel})
				}
				var last Result
				for n := range bound + tried {
					if fill.before != nil {
						for _, c := range fill.before(n) {
							apply(c)
						}
					}
					last = apply(fill.next(n))
				}
				name := fmt.Sprintf("%s, filler %d, limited %v", of, i, limited)
				got := size(s, of)
				if !limited {
					if got <= bound && !slices.Contains(alwaysBound, of) {
						t.Errorf("%s: %d of %d: this test does not reach the bound", name,
							got, bound)
					}
					continue
				}
				if got > bound || got < bound-1 {
					t.Errorf("%s: %d elements, the bound is %d", name, got, bound)
				}
				switch l, told := last.Refused.Limit(); {
				case fill.silent:
				case fill.act != "":
					if last.Act != fill.act {
						t.Errorf("%s: got %+v", name, last)
					}
				case !told || l.Of != of:
					t.Errorf("%s: refused as %q, want the name of the bound", name, last.Refused)
				case !strings.Contains(last.Refused.String(), fmt.Sprint(l.Most)) ||
					!strings.Contains(last.Refused.String(), l.What):
					t.Errorf("%s: %q does not name the bound", name, last.Refused)
				}
			}
		}
	}
}

// TestTooLongIsRefused makes each text and list of each command one longer than may be.
func TestTooLongIsRefused(t *testing.T) {
	t.Parallel()
	tried := 0
	var grow func(v reflect.Value, of string, check func(of string))
	grow = func(v reflect.Value, of string, check func(of string)) {
		l, known := limitOf[of]
		skip := !known || l.Then == BeyondClipped || l.Most > 1<<20
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			grow(v.Elem(), of, check)
		case reflect.String:
			if !skip {
				old := v.String()
				v.SetString(strings.Repeat("x", l.Most+1))
				check(of)
				v.SetString(old)
			}
		case reflect.Slice:
			old := reflect.ValueOf(v.Interface())
			if !skip {
				v.Set(reflect.MakeSlice(v.Type(), l.Most+1, l.Most+1))
				check(of)
			}
			if v.Type().Elem().Kind() != reflect.Uint8 {
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
				grow(v.Index(0), of+"[]", check)
			}
			v.Set(old)
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				return
			}
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() {
					grow(v.Field(i), v.Type().Name()+"."+f.Name, check)
				}
			}
		}
	}
	for op := range 256 {
		c := newCommand(Op(op))
		if c == nil || slices.Contains([]Op{OpOnce, OpAudited}, Op(op)) {
			continue
		}
		grow(reflect.ValueOf(c), "", func(of string) {
			tried++
			s := foundedHere(t)
			s.Apply(2, &SetLevel{Level: limitsLevel})
			before := bytesOf(t, s)
			r, _ := s.Apply(2, c)
			if l, told := r.Refused.Limit(); !told || l.Of != of {
				t.Errorf("op %d, %s too long: refused as %q", op, of, r.Refused)
			}
			if !bytes.Equal(bytesOf(t, s), before) {
				t.Errorf("op %d, %s too long: the state changed", op, of)
			}
			if TooLong(c) == "" {
				t.Errorf("op %d, %s too long: it would be proposed", op, of)
			}
		})
	}
	if tried < 80 {
		t.Errorf("%d fields were tried", tried)
	}
}

func bytesOf(t *testing.T, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var updateLimits = flag.Bool("update-limits", false, "write docs/limits.md")

// TestLimitsAreDocumented compares docs/limits.md with the bounds.
func TestLimitsAreDocumented(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`# Bounds of what all masters agree on

Every list, map and text in the replicated state has a bound. What would exceed one is refused as a
whole: the answer names the bound, and nothing is changed. The bounds hold once the cluster's level
is 2 (see [upgrade.md](upgrade.md)). What a cluster had above a bound before stays, and is not added
to. No key is ever dropped to make room.

Options bound what minions cause far below this (` + "`" + `max_pending_keys` + "`" + `, ` + "`" + `max_pending_keys_per_source` + "`" + `).
A minion whose key is one too many is told "full" and tries again;
` + "`" + `clustermaster_keystore_unkept_total{full="keys"}` + "`" + ` counts that. One log entry has 4 MiB at most.
Masters make no token of ` + "`" + `external_auth` + "`" + ` beyond 10,000, or 2,000 of one user
([access.md](access.md)); the bound below also holds for restored ones.
` + "`" + `make references` + "`" + ` writes this page.

| at most | of what | more is | remedy |
|---|---|---|---|
`)
	seen := map[string]bool{}
	for _, l := range Limits {
		if l.Then == BeyondCaller {
			continue
		}
		row := fmt.Sprintf("| %d | %s | %s | %s |\n", l.Most, l.What, l.Then, l.Do)
		if short := fmt.Sprint(l.Most, l.What); !seen[short] {
			seen[short] = true
			b.WriteString(row)
		}
	}
	path := filepath.Join("..", "..", "docs", "limits.md")
	if *updateLimits {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("docs/limits.md is not what Limits says: run make references")
	}
}
