package target

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"clustermaster/test/salttrees"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// fleet is a world of few minions whose data a master and these minions have alike.
type fleet struct{ grains, pillar map[string]value.Map }

func newFleet() *fleet {
	f := &fleet{grains: map[string]value.Map{}, pillar: map[string]value.Map{}}
	f.grains["db1"] = m("id", "db1", "os", "Debian", "word", "ΟΔΟΣ", "dotted", "İx", "ipv4",
		[]any{"127.0.0.1", "10.0.0.2"}, "nest", m("k", "x", "l",
			[]any{"x", m("n", "one")}), "roles", []any{"db", "Backup"}, "empty", "", "none", nil)
	f.grains["db2"] = value.Map{
		{Key: "id", Value: "db2"}, {Key: "os", Value: "Plan9"}, {Key: true, Value: m("a", "b")},
		{Key: int64(7), Value: m("a", "b")}, {Key: "num", Value: int64(7)},
		{Key: "float", Value: 1.5},
		{Key: "yes", Value: true}, {Key: "ipv4", Value: []any{"192.168.1.1"}},
		{Key: "ipv6", Value: []any{"fe80::1", "2001:db8::5"}}, {Key: "a:b", Value: "c"},
		{Key: "list", Value: []any{[]any{"inner"}, int64(3)}},
	}
	f.grains["web1"] = m("id", "web1", "os", "Debian", "kernel", "Linux", "nest",
		m("k",
			m("x", m("y", "deep"))), "ipv4", []any{"10.0.0.1"}, "star", "*", "roles", []any{"web"})
	f.grains["web2"] = m("id", "web2", "os", "Ubuntu", "kernel", "Linux", "ipv4", []any{})
	f.grains["x\x1cy"] = m("id", "x\x1cy")
	f.pillar["db1"], f.pillar["web1"] = m("env", "prod", "users",
		m("carol", m("uid", int64(7)))), m("env", "Test", "list", []any{"a", m("b", "c")})
	for id := range f.grains {
		if f.pillar[id] == nil {
			// without one the matchers take that of another minion of their process
			f.pillar[id] = m("own", id)
		}
	}
	return f
}

func (f *fleet) AcceptedIDs() []string        { return slices.Sorted(maps.Keys(f.grains)) }
func (f *fleet) DataCache() bool              { return true }
func (f *fleet) Nodegroup(string) (any, bool) { return nil, false }

func (f *fleet) Ask(_ context.Context, q Question, fn func(string, Hits)) (string, error) {
	j := q.Judge()
	for id := range f.grains {
		fn(id, j.Minion(false, f.grains[id]))
		fn(id, j.Minion(true, f.pillar[id]))
	}
	return "", nil
}

// salts is a process with the minions of a fleet, as a release of Salt matches them.
type salts struct {
	mu  sync.Mutex // one question at a time
	in  io.Writer
	out *bufio.Reader
}

func newSalts(t testing.TB, f *fleet, release string) *salts {
	t.Helper()
	python := filepath.Join(os.Getenv("CLUSTERMASTER_SALT_VENVS"), "salt-"+release, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skipf("left out: Salt's matchers (needs salt %s in CLUSTERMASTER_SALT_VENVS; run make venvs)", release)
	}
	cmd := exec.Command(python, "testdata/minions.py")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	world := map[string]any{}
	for id := range f.grains {
		world[id] = map[string]any{"grains": salttrees.Pairs(f.grains[id]), "pillar": salttrees.Pairs(f.pillar[id])}
	}
	if err := json.NewEncoder(in).Encode(world); err != nil {
		t.Fatal(err)
	}
	return &salts{in: in, out: bufio.NewReader(out)}
}

// match asks whom a target means; known is false if that took too long.
func (s *salts) match(t testing.TB, kind string, tgt any, delimiter string) (ids []string,
	known bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := json.NewEncoder(s.in).Encode([]any{kind, tgt, delimiter})
	if err != nil {
		t.Fatal(err)
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &ids); err != nil {
		t.Fatal(err)
	}
	return ids, ids != nil
}

// compared are the kinds of targets that masters resolve and minions match.
var compared = []string{"glob", "list", "pcre", "compound", "grain", "grain_pcre", "pillar",
	"pillar_pcre", "ipcidr"}

// FuzzMinions compares targets of the master with the matchers of minions: who is meant is the
// same, in particular nobody matches whom the master does not mean; and the list of ids that is
// sent where rights limit minions is read as it is.
func FuzzMinions(f *testing.F) {
	world := newFleet()
	minions := newSalts(f, world, "3008.3")
	for _, seed := range differenceSeeds {
		kind, tgt, _ := strings.Cut(seed, " ")
		f.Add(uint8(slices.Index(compared, kind)), tgt, ":")
	}
	f.Add(uint8(4), "nest|k|x", "|")
	f.Fuzz(func(t *testing.T, n uint8, tgt, delimiter string) {
		kind := compared[int(n)%len(compared)]
		if !utf8.ValidString(tgt) || !utf8.ValidString(delimiter) || len(tgt) > 80 ||
			len(delimiter) > 2 {
			return
		}
		if !strings.HasPrefix(kind, "grain") && kind != "pillar" {
			delimiter = "" // minions are told none
		}
		certain, err := Certain(t.Context(), kind, tgt, delimiter, world)
		if err != nil {
			t.Fatal(err)
		}
		if len(certain.Minions) > 0 {
			got, known := minions.match(t, "list", certain.Minions, "")
			if want := slices.Sorted(slices.Values(certain.Minions)); known &&
				!slices.Equal(got, want) {
				t.Fatalf("the list %q means %q to minions", want, got)
			}
		}
		if different(kind, tgt) {
			return
		}
		found, err := Match(t.Context(), kind, tgt, delimiter, world, true)
		if err != nil {
			t.Fatal(err)
		}
		ours := slices.Sorted(slices.Values(found.Minions))
		sentKind, sent := ForMinions(kind, tgt, world)
		theirs, known := minions.match(t, sentKind, sent, delimiter)
		if known && !slices.Equal(ours, theirs) {
			t.Fatalf("%s %q (delimiter %q): the master means %q, minions match %q", kind, tgt,
				delimiter, ours, theirs)
		}
	})
}

// different tells targets that masters and minions are known to read otherwise: resources, which
// the master does not know, keys of data that are no text and equal in Python (1, 1.0 and True),
// and brackets that are not closed, which Salt's master takes too.
func different(kind, tgt string) bool {
	if kind == "compound" {
		words := value.Fields(tgt)
		open := 0
		for _, w := range words {
			switch {
			case w == "(":
				open++
			case w == ")":
				open--
			case strings.HasPrefix(w, "M@") || strings.HasPrefix(w, "T@") ||
				strings.HasPrefix(w, "R@"):
				return true
			}
		}
		if open != 0 {
			return true
		}
	}
	return slices.ContainsFunc(strings.FieldsFunc(tgt, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '~' && r != '-' &&
			r != '+'
	}), func(part string) bool {
		switch v := yaml11.ParseArg(part).(type) {
		case string:
			return false
		case int64:
			return v == 0 || v == 1 || fmt.Sprint(v) != part
		default:
			return fmt.Sprint(v) != part
		}
	}) && kind != "glob" && kind != "list" && kind != "pcre" && kind != "ipcidr"
}

// differenceSeeds are the classes in which masters and minions once differed.
var differenceSeeds = []string{
	"glob web*", "glob [!w]*", "glob [^w]*", "glob d[b-a]*", "glob []d]*", "glob x\x1c*",
	"glob *\n", "glob [[]*", "glob web[1", "glob D*",
	"list web1,db1", "list ,db1,", "list web1,,db2", "list web1, db1", "list *",
	"pcre web1|[a-z-[d]]?b1", "pcre d{,1}b1", "pcre db1$", `pcre db1\Z`, "pcre (?i)DB1",
	"pcre (?P<a>d)b", "pcre (?x) d b", "pcre (?<n>d)b|db", `pcre \144b`, "pcre (?=d)(.|.)*x|db",
	"pcre x.y", `pcre x\sy`, "pcre ", "pcre (",
	"compound web1 or web2\x1cor\x1c*", "compound web1 or not not db1", "compound ( web1 or db1",
	"compound web1 or ) db1 (", "compound web1 db1", "compound web1 and not db*",
	"compound not web1 not db1", "compound not ( web1 or db1 )",
	"compound web1 or M@db1", "compound web1 or T@x:y", "compound E@db. and G@os:Debian",
	"compound G@word:οδος", "compound G@dotted:i\u0307x", "compound G@True:a:b",
	"compound not G@True:a:b", "compound G@7:a:b", "compound G@1:a:b",
	"compound S@10.0.0.0/8", "compound S@10.0.0.1", "compound S@10.0.0.1/8",
	"compound L@web1,db1 and L@db1", "compound G|@nest|k|x", "compound I@env:prod or J@env:t.st",
	"compound X@web1", "compound G@", "compound and", "compound N@x or web1",
	"compound E@( or web1",
	"grain os:Debian", "grain nest:k:x", "grain nest:l:x", "grain nest:l:n:one", "grain nest:*",
	"grain *:x", "grain os:*", "grain empty:", "grain none:None", "grain num:7", "grain float:1.5",
	"grain yes:True", "grain a:b:c", "grain list:3", "grain os", "grain :", "grain star:[*]",
	"grain nest:k:x:y:deep", "grain roles:backup",
	"grain_pcre os:deb.*", "grain_pcre os:(?!p).*", "grain_pcre word:οδο[ς]", "grain_pcre nest:k:(",
	"pillar env:test", "pillar env:*", "pillar users:carol:uid:7", "pillar list:b:c",
	"pillar_pcre env:t.*", "ipcidr 10.0.0.0/8", "ipcidr 10.0.0.1", "ipcidr fe80::/10",
	"ipcidr fe80::1", "ipcidr 0/0", "ipcidr x",
}
