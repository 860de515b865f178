package differential

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"clustermaster/salt/target"
	"clustermaster/test/salttrees"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// fleet is a world of few minions whose data a master and these minions have alike.
type fleet struct {
	grains, pillar map[string]value.Map
	nodegroups     map[string]any
}

func newFleet() *fleet {
	f := &fleet{grains: map[string]value.Map{}, pillar: map[string]value.Map{}}
	f.grains["db1"] = m("id", "db1", "os", "Debian", "word", "ΟΔΟΣ", "dotted", "İx", "ipv4", []any{"127.0.0.1",
		"10.0.0.2"},
		"nest", m("k", "x", "l", []any{"x", m("n", "one")}), "roles", []any{"db", "Backup"}, "empty", "", "none", nil)
	f.grains["db2"] = m("id", "db2", "os", "Plan9", true, m("a", "b"), int64(7), m("a", "b"), "num", int64(7),
		"float", 1.5,
		"yes", true, "ipv4", []any{"192.168.1.1"}, "ipv6", []any{"fe80::1", "2001:db8::5"}, "a:b", "c",
		"list", []any{[]any{"inner"}, int64(3)})
	f.grains["web1"] = m("id", "web1", "os", "Debian", "kernel", "Linux", "nest", m("k", m("x", m("y", "deep"))),
		"ipv4", []any{"10.0.0.1"}, "star", "*", "roles", []any{"web"})
	f.grains["web2"] = m("id", "web2", "os", "Ubuntu", "kernel", "Linux", "ipv4", []any{})
	f.grains["web-3.example.org"] = m("id", "web-3.example.org", "os", "RedHat", "ipv4", []any{"10.0.1.7"}, "num", "7")
	f.pillar["db1"] = m("env", "prod", "users", m("carol", m("uid", int64(7))))
	f.pillar["web1"] = m("env", "Test", "list", []any{"a", m("b", "c")})
	for id := range f.grains {
		if f.pillar[id] == nil {
			f.pillar[id] = m("own", id) // without one the matchers take another minion's of their process
		}
	}
	f.nodegroups = map[string]any{"webs": "web* and G@os:Debian", "all": "N@webs or L@db1,db2",
		"words": []any{"web1", "or", "db*"}, "loop": "N@loop or web1", "bad": "N@none and web*", "not": "not N@webs"}
	return f
}

func (f *fleet) AcceptedIDs() []string { return slices.Sorted(maps.Keys(f.grains)) }
func (f *fleet) DataCache() bool       { return true }
func (f *fleet) Nodegroup(name string) (any, bool) {
	g, ok := f.nodegroups[name]
	return g, ok
}

func (f *fleet) Ask(_ context.Context, q target.Question, fn func(string, target.Hits)) (string, error) {
	j := q.Judge()
	for id := range f.grains {
		fn(id, j.Minion(false, f.grains[id]))
		fn(id, j.Minion(true, f.pillar[id]))
	}
	return "", nil
}

// kinds are those of targets; nodegroups are for the master only.
var kinds = []string{"glob", "list", "pcre", "compound", "grain", "grain_pcre", "pillar", "pillar_pcre", "ipcidr",
	"nodegroup", "pillar_exact", "compound_pillar_exact"}

// terms are what compound targets are made of beside what the fuzzer changes in them.
var terms = []string{"and", "or", "not", "(", ")", "web*", "db1", "*", "G@os:Debian", "G@nest:k:x", "P@os:(Deb|Ubu).*",
	"I@env:prod", "J@env:t.*", "E@web[0-9]", "L@web1,db1", "S@10.0.0.0/8", "S@192.168.1.1", "N@webs", "N@all", "N@none",
	"N@not", "N@words", "G|@nest|k|x", "I@own:*", "G@roles:web", "and not", "or not", "G@num:7", "web[!1]", "N@loop",
	"P@num:\\d", "E@", "G@", "X@y", "nosuch", "web-3.example.org", "S@fe80::/10", "G@list:3", "J@env:(", "G@yes:True"}

// FuzzTargets compares whom targets mean with Salt's matchers of minions and with those of its
// master, which say whom it waits for.
func FuzzTargets(f *testing.F) {
	for i, kind := range kinds {
		for _, tgt := range map[string][]string{
			"glob": {"web*", "[!w]*", "web[1", "d[b-a]*", "*"},
			"list": {"web1,db1", ",db1,", "web1, db1"},
			"pcre": {"web1|db", "d{,1}b1", "(?i)DB1", "(", `db1\Z`},
			"grain": {"os:Debian", "nest:k:x", "nest:l:n:one", "*:x", "num:7", "yes:True", "roles:backup",
				"none:None"},
			"grain_pcre": {"os:deb.*", "word:οδο[ς]", "nest:k:("},
			"pillar":     {"env:test", "users:carol:uid:7", "list:b:c"}, "pillar_pcre": {"env:t.*"},
			"pillar_exact": {"env:prod", "env:p*"}, "ipcidr": {"10.0.0.0/8", "10.0.0.1", "fe80::/10", "0/0", "x"},
			"nodegroup": {"webs", "all", "words", "loop", "bad", "not", "none"},
			"compound": {"web1 or not not db1", "( web1 or db1 )", "web1 db1", "web1 and not db*",
				"not ( web1 or db1 )"},
		}[kind] {
			f.Add(uint8(i), tgt, ":", []byte(nil))
		}
	}
	f.Add(uint8(3), "", "", []byte{5, 0, 8})
	f.Add(uint8(3), "", "", []byte{2, 3, 6, 1, 17, 4})
	world := newFleet()
	minions := map[string]any{}
	for id := range world.grains {
		minions[id] = map[string]any{"grains": salttrees.Pairs(world.grains[id]), "pillar": salttrees.Pairs(world.pillar[id])}
	}
	salt := open(f, "targets", map[string]any{"minions": minions, "nodegroups": world.nodegroups})
	f.Fuzz(func(t *testing.T, n uint8, tgt, delimiter string, choices []byte) {
		kind := kinds[int(n)%len(kinds)]
		if len(choices) > 0 {
			kind = []string{"compound", "compound_pillar_exact"}[int(n)%2]
			for _, c := range choices[:min(len(choices), 12)] {
				tgt += " " + terms[int(c)%len(terms)]
			}
		}
		if !utf8.ValidString(tgt) || !utf8.ValidString(delimiter) || len(tgt) > 300 || len(delimiter) > 2 {
			return
		}
		if !strings.HasPrefix(kind, "grain") && kind != "pillar" {
			delimiter = "" // minions are told none
		}
		sentKind, sent := target.ForMinions(kind, tgt, world)
		theirs, ok := salt.askJSON(t, map[string]any{"sent": []any{sentKind, sent, delimiter},
			"asked": []any{kind, tgt, delimiter}})
		if !ok {
			return
		}
		for i, who := range []string{"minions match", "Salt's master means", "Salt's master means (not greedy)"} {
			found, err := target.Match(t.Context(), kind, tgt, delimiter, world, i < 2)
			if errors.Is(err, target.ErrTooCostly) {
				salt.skip(t, "too costly")
			}
			if err != nil {
				t.Fatal(err)
			}
			name := mastersReading(kind, tgt)
			if i == 0 {
				if text, ok := sent.(string); ok {
					name = minionsReading(sentKind, text)
				}
			}
			if name != "" {
				salt.except(name)
				continue
			}
			if i == 0 && kind == "compound_pillar_exact" {
				continue // only masters use it
			}
			if theirs[i].kind == '!' {
				theirs[i].body = []byte("[]")
			}
			var want []string
			if err := json.Unmarshal(theirs[i].body, &want); err != nil {
				t.Fatal(err)
			}
			if ours := slices.Sorted(slices.Values(found.Minions)); !slices.Equal(ours, want) {
				salt.differ(t, "%s %q (delimiter %q, sent as %s %q): the master means %q, %s %q (%v)", kind,
					tgt, delimiter,
					sentKind, sent, ours, who, want, theirs[i])
			}
		}
	})
}

// engine finds the words of a compound target that are no globs.
var engine = regexp.MustCompile(`^(?s:[A-Z]|[GPIJ].)@`)

// mastersReading names the rule for targets that Salt's master reads in a way of its own; the
// places are parts of docs/differences.md.
func mastersReading(kind, tgt string) string {
	globs := []string{tgt}
	if strings.HasPrefix(kind, "compound") {
		globs = slices.DeleteFunc(value.Fields(tgt), engine.MatchString)
	} else if kind != "glob" {
		globs = nil
	}
	if strings.Contains(strings.Join(globs, " "), ",") {
		return "comma in a glob" // May break, Targets: a comma in a glob
	}
	if strings.Contains(tgt, "\x00") {
		return "zero byte" // Works where it fails in Salt, Targets: a zero byte
	}
	return bothReading(kind, tgt)
}

// minionsReading names the rule for targets that minions read in a way of their own.
func minionsReading(kind, tgt string) string {
	if open := 0; strings.HasPrefix(kind, "compound") {
		words := value.Fields(tgt)
		for i, w := range words {
			switch w {
			case "(":
				open++
				if i > 0 && !slices.Contains([]string{"and", "or", "not", "("}, words[i-1]) {
					return "no operator before brackets" // Python's call of a function for minions, an error for the master
				}
			case ")":
				open--
				if i > 0 && words[i-1] == "(" {
					return "empty brackets" // true behind "not" for Salt's minions, an error for its master
				}
			}
		}
		if open != 0 {
			return "brackets" // Salt's master takes open brackets, its minions do not
		}
	}
	return bothReading(kind, tgt)
}

var (
	asciiFlag  = regexp.MustCompile(`\(\?[a-zA-Z]*a`)
	possessive = regexp.MustCompile(`[*+?}]\+`)
)

func bothReading(kind, tgt string) string {
	if asciiFlag.MatchString(tgt) {
		return "flag a" // May break, Targets: the flag a
	}
	if possessive.MatchString(tgt) {
		return "possessive" // May break, Targets: possessive quantifiers
	}
	if strings.HasPrefix(kind, "compound") {
		for _, w := range value.Fields(tgt) {
			if strings.HasPrefix(w, "M@") || strings.HasPrefix(w, "T@") || strings.HasPrefix(w, "R@") {
				return "resources and ranges" // May break, Targets: resources; Cosmetic, Targets: R@
			}
		}
	}
	if kind == "glob" || kind == "list" || kind == "pcre" || kind == "ipcidr" {
		return ""
	}
	if slices.ContainsFunc(strings.FieldsFunc(tgt, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".~-+", r)
	}), func(part string) bool {
		switch v := yaml11.ParseArg(part).(type) {
		case string:
			return false
		case int64:
			return v == 0 || v == 1 || value.Str(v) != part
		default:
			return value.Str(v) != part
		}
	}) {
		return "keys that are not text" // May break, Targets: keys that are not text
	}
	return ""
}
