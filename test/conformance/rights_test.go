package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
)

// limitedOptions give rights on web-* alone to carol, by a key, and to alice, by external_auth.
// erin has rights on db-* alone, and judy to echo one word there.
const limitedOptions = `enable_clear_commands: True
auto_accept: True
client_acl_verify: False
publisher_acl: {carol: [{'web-*': ['.*']}]}
external_auth:
  auto: {alice: [{'web-*': ['.*']}, {'G@os:Plan9': ['test.*']}], erin: [{'db-*': ['.*']}],
    judy: [{'db-*': [{'test.echo': {kwargs: {text: '^allowed$'}}}]}]}
nodegroups:
  sly: "web-a or web-b\x1cor\x1c*"
  slylist: [web-a, or, "web-b or *"]
`

// A wider is a target that this master reads without the minions db-*, or refuses, and that minions
// of at least one release may read as including them.
type wider struct {
	tgtType string
	tgt     any
}

// widers are the classes of differences between masters and minions, each alone and in larger
// expressions.
func widers() []wider {
	var out []wider
	add := func(tgtType string, tgts ...any) {
		for _, tgt := range tgts {
			out = append(out, wider{tgtType, tgt})
		}
	}
	// Separators of words: Python's, Go's, and those of lists.
	for _, sep := range []string{"\x1c", "\x1d", "\x1e", "\x1f", "\x0b", "\x0c", "\r", "\n", "\t",
		"\u0085", "\u00a0", "\u1680", "\u2003", "\u2028", "\u202f", "\u205f", "\u3000", "\u200b",
		"\u180e", "\ufeffx"} {
		add("compound", "web-a or web-b"+sep+"or"+sep+"*", "web-a or L@web-b,x"+sep+"or"+sep+"db-*",
			"web-* and not x"+sep+"or"+sep+"db-*")
		add("list", "web-a,x"+sep+"db-3008.3", "web-a"+sep+",db-3008.3")
	}
	// Words of a list that are more than one word.
	add("compound",
		[]any{"web-a", "or", "web-b or *"}, []any{"web-a", "or", "L@web-b or *"},
		[]any{"web-a", "or", "x\x1cor\x1c*"}, []any{"web-a", "or", "E@x or db-.*"},
		[]any{"web-a or *"}, []any{"web-a", "or", "( db-* )"},
		[]any{"web-*", "and", "web-a or db-*"}, []any{"web-a", "or", "x) or (db-*"},
		[]any{"not", "x or db-*", "and", "web-a"}, []any{"web-a", "or",
			"N@sly or *"}, "N@sly", "N@slylist", "web-a or N@sly", []any{"N@slylist"})
	add("nodegroup", "sly", "slylist")
	// Words that are words only to the master or only to the minion, and brackets.
	add("compound", "web-a or not not db-*", "web-a ( or db-* )", "web-a or ( db-*",
		"web-a or db-* )", "web-a or )db-*(", "web-a or True", "web-a or 1==1", "web-a or NOT x",
		"web-a and or db-*", "( web-a ) or ( ) or db-*", "web-a not db-*", "web-a , db-*",
		"web-a or db-*", "* and * or web-a", "web-a or ( not web-a )", "not web-x", "*", "db-*",
		"web-a or ?b-*")
	// Dialects of regular expressions.
	for _, expr := range []string{
		"[a-z-[d]]?b-.*", "[a-z-[d-f]]b-.*", "d{,1}b-.*", "dx{,1}b-.*", "d{1,}b-.*", "d{,}b-.*",
		"d{ 1}?b-.*", "(?P<a>d)b-.*", "(?P<a>d)(?P=a)?b-.*", "(?x) d b - .*", "(?x: d b - .* )",
		"(?a:d)b-.*", "(?u)db-.*", "(?L)db-.*", "(?s-i:db)-.*", "(?-s:db-.*)", "(?#x)db-.*",
		"(?i)DB-.*", "(?i)\u212a?db-.*", `\Adb-.*`, `db-.*\Z`, `db-.*$`, `\144b-.*`, `\x64b-.*`,
		`\u0064b-.*`, `\N{LATIN SMALL LETTER D}b-.*`,
		`\0144?db-.*`, `[\144]b-.*`, `[[:alpha:]d]b-.*`, `[]d]b-.*`, `[^]w]b-.*`, `[d&&[x]]?b-.*`,
		`[d--x]b-.*`, `[\w-x]b-.*`, `(d)(?(1)b|x)-.*`, `(?(1)x|d)b-.*`, `(?<!x)db-.*`, `(?<=)db-.*`,
		`(?=d).*`, `(?!w).*`, `(?>d)b-.*`, `d++b-.*`,
		`d?+db-.*`, `\Gdb-.*`, `\bdb-.*`, `\p{Ll}b-.*`, `\hdb-.*|db`, `\R?db-.*`, `\Kdb-.*`,
		`\e?db-.*`, `d\cMb-.*|db`, `(?n)(d)b-.*`, `(?<n>d)b-.*|db`, `(?'n'd)b-.*|db`, `\k<n>|db-.*`,
		`db-(?i:3)?.*`, ".{4,}\\.[0-9]+", "\\D+-3.*", "[^w].*", "|db-.*", "",
	} {
		add("pcre", "web-a|"+expr)
		if expr != "" && !strings.ContainsAny(expr, " ") {
			add("compound", "web-a or E@"+expr)
		}
	}
	// A budget that is spent: ten characters match in sixty million ways.
	add("pcre", "web-a|(?=d)(.|.|.|.|.|.)*x|db-")
	// Engines that not all releases know, and terms about data that is not at hand.
	for _, id := range []string{"db-3006.28", "db-3007.15", "db-3008.3"} {
		add("compound", "web-a or M@"+id, "web-a or T@"+id, "web-a or L@"+id, "web-a or I@"+id,
			"M@"+id)
		add("managing_minion", id)
	}
	add("compound", "web-a or R@x", "web-a or D@x:y", "web-a or T@x", "web-a or not M@x",
		"web-a or not T@x:y", "web-a or X@db-*", "web-a or E@", "web-a or G@", "web-a or L@",
		"web-a or S@127.0.0.1", "web-a or S@127.0.0.0/8", "web-a or S@::1",
		"web-a or S@0.0.0.0/0", "web-a or S@127.0.0.1/8", "web-a or S@127.0.0.1/32",
		"web-a or S@0/0", "S@127.0.0.1", "not S@10.0.0.0/8")
	for _, tgtType := range []string{"ipcidr", "range", "resource", "data", "cache", "confirm_top",
		"compound_pillar_exact", "pillar_exact", "GLOB", "glob ", "nodegroup", "external_nodes", "",
		"match", "list_match.match#"} {
		add(tgtType, "web-a", "*", "web-a,db-3008.3", "127.0.0.1", "db-*")
	}
	// Case, and keys that are not text.
	add("compound", "web-a or G@word:οδος", "web-a or G@word:οδοσ", "web-a or G@word:ΟΔΟΣ",
		"web-a or G@dotted:i\u0307x", "web-a or G@dotted:ix", "web-a or G@dotted:İX",
		"web-a or P@word:οδο[ς]", "web-a or P@dotted:i.x",
		"web-a or G@True:a:b", "web-a or G@true:a:b", "web-* or not G@True:a:b",
		"web-* or not G@1:a:b", "web-a or G@1:a:b", "web-a or G@yes:a:b", "web-* or not G@7:a:b",
		"web-a or G@7:a:b", "web-a or G@None:a:b", "web-* or not G@None:a:b",
		"web-a or G@nest:*:x", "web-a or G@nest:l:0:x", "web-a or G@nest:l:-1:x",
		"web-a or G@nest:*", "web-a or G@*:x", "web-a or G|@nest|k|x", "web-* or not G@nest:k:x",
		"web-a or not G@os:Plan9", "web-* or not G@nosuch:x", "web-a or not I@a:b")
	add("grain", "word:οδος", "dotted:i\u0307x", "True:a:b", "os:*", "nest:k:x")
	add("grain_pcre", "word:οδο[ς]", "os:(?!Plan9).*", "os:[a-z-[p]].*", "kernel:l{,1}inux")
	add("pillar", "*", "a:b")
	add("glob", "web-a\n*", "*", "[!w]*", "[^w]*", "d[b-a]*", "[]d]*", "?b-*", "db-3008.3",
		"web-a,db-*", []any{"web-a", "db-3008.3"}, []any{"*"}, "[[]db*", "d[!]]-*", "D*", "web-[a",
		"{web,db}-*")
	add("list", "*", "web-a,db-3008.3", []any{"web-a", "db-3008.3"}, []any{"web-a", "*"},
		[]any{",db-3008.3,"}, ",db-3008.3,", "web-a,,db-3008.3", []any{[]any{"db-3008.3"}},
		[]any{"web-a,db-3008.3"}, " db-3008.3")
	return out
}

// TestLimitedRights: no target that a user with rights on web-* sends reaches a minion db-* of any
// release, with any credentials and by any way in, also if the master has syndics. The test itself
// answers for the minions web-*, so that only minions run that must not run anything.
func TestLimitedRights(t *testing.T) {
	t.Parallel()
	m := newMaster(t, ours, variant{name: "limited",
		options: limitedOptions + "order_masters: True\n"})
	m.start(t)
	for _, id := range []string{"web-a", "web-b"} {
		c := m.signIn(t, id, 3)
		m.send(t, c.seal(t, c.pillarLoad(t).Set("grains",
			dict("os", "Plan9", "id", id, "ipv4", []any{"192.168.7.7"}))))
	}
	m.events = listen(t, t, m)
	e2e.Eventually(t, 20*time.Second, "carol and root have keys",
		func() error { return errors.Join(m.hasKey("carol"), m.hasKey("root")) })
	var minions []string
	for _, release := range e2e.Releases {
		minion := e2e.NewMinion(t, m.Dir, e2e.MinionOptions{ID: "db-" + release, Release: release,
			Master: m.Addr, Extra: quick})
		const grains = "word: ΟΔΟΣ\ndotted: İx\ntrue: {a: b}\n7: {a: b}\n1: {a: b}\nnest: {k: x, l: [x]}\n"
		if err := os.WriteFile(filepath.Join(minion.Dir, "etc", "grains"), []byte(grains),
			0o644); err != nil {
			t.Fatal(err)
		}
		minion.Run(t)
		minions = append(minions, minion.ID)
	}
	returned := func(mark int, word string) func() error {
		return func() error {
			var got []string
			for _, h := range m.events.since(mark, func(h happening) bool {
				return h.Data["return"] != nil && fmt.Sprint(h.Data["fun_args"]) == "["+word+"]"
			}) {
				got = append(got, fmt.Sprint(h.Data["id"]))
			}
			if slices.Sort(got); !slices.Equal(slices.Compact(got), minions) {
				return fmt.Errorf("%s: %v", word, got)
			}
			return nil
		}
	}
	for _, id := range minions {
		m.events.wait(t, 0, 120*time.Second, id+" has started",
			func(h happening) bool { return h.Tag == "salt/minion/"+id+"/start" })
	}
	order := func(load value.Map, word string) any {
		return unpack(t,
			m.clear(t, 3, m.filled(t, setIn(load, "fun", "test.echo", "arg", []any{word}))))
	}
	alice, erin := m.filled(t, "TOKEN:alice").(string), m.filled(t, "TOKEN:erin").(string)

	// What is allowed arrives: all releases read a list.
	mark := m.events.mark()
	order(byToken("erin", "kwargs", dict("token", erin), "tgt", "db-* and not web-*", "tgt_type",
		"compound"), "allowed")
	e2e.Eventually(t, 60*time.Second, "erin's order is carried out", returned(mark, "allowed"))

	mark = m.events.mark()
	attempts := map[string]string{} // by the word that the minions would echo
	for i, w := range widers() {
		for way, load := range map[string]value.Map{
			"a key": as("carol", "carol", "tgt", w.tgt, "tgt_type", w.tgtType),
			"a token": byToken("alice", "kwargs", dict("token", alice), "tgt", w.tgt, "tgt_type",
				w.tgtType),
		} {
			word := fmt.Sprintf("attack-%s-%d", way[2:], i)
			attempts[word] = fmt.Sprintf("%s %q by %s", w.tgtType, w.tgt, way)
			order(load, word)
		}
	}
	// A list of one function: minions take its arguments from the first element.
	judy := m.filled(t, "TOKEN:judy").(string)
	attempts["attack-list"] = "a list of one function by judy"
	echo := func(args ...any) {
		m.clear(t, 3, m.filled(t, setIn(byToken("judy", "kwargs", dict("token", judy), "tgt",
			"db-*"), "fun", []any{"test.echo"}, "arg", args)))
	}
	echo([]any{"attack-list"}, dict("__kwarg__", true, "text", "allowed"))
	echo([]any{dict("__kwarg__", true, "text", "allowed")})
	e2e.Eventually(t, 60*time.Second, "judy's order is carried out", func() error {
		got := m.events.since(mark, func(h happening) bool {
			return strings.Contains(fmt.Sprint(h.Data["return"]), "test.echo:allowed")
		})
		if len(got) < len(minions) {
			return fmt.Errorf("%d returns", len(got))
		}
		return nil
	})
	flags := map[string]string{"compound": "-C", "pcre": "-E", "list": "-L", "nodegroup": "-N",
		"grain": "-G", "grain_pcre": "-P", "pillar": "-I", "ipcidr": "-S"}
	salt := programs(t, ours).Salt
	for i, w := range widers() {
		text, isText := w.tgt.(string)
		flag, is := flags[w.tgtType]
		if !isText || !is && w.tgtType != "glob" || text == "" || i%4 != 0 && !long() {
			continue
		}
		word := fmt.Sprintf("attack-socket-%d", i)
		attempts[word] = fmt.Sprintf("%s %q by salt", w.tgtType, w.tgt)
		args := []string{"-c", m.ConfDir, "-a", "auto", "--username", "alice", "--password", "x",
			"--async"}
		if is {
			args = append(args, flag)
		}
		e2e.Command(t, salt, append(args, text, "test.echo", word)...)
	}
	// An order of root that is sent after them is carried out after them, or with them.
	order(jobOf("tgt", "db-*"), "end")
	e2e.Eventually(t, 120*time.Second, "root's order is carried out", returned(mark, "end"))
	e2e.Eventually(t, 60*time.Second, "nothing runs any more", func() error {
		r := e2e.Command(t, salt, "-c", m.ConfDir, "db-*", "saltutil.running", "--out=txt")
		if n := len(regexp.MustCompile(`(?m)^db-[0-9.]+: \[\]$`).FindAllString(r.Stdout,
			-1)); n != len(minions) {
			return fmt.Errorf("%s%s", r.Stdout, r.Stderr)
		}
		return nil
	})
	var reached []string
	attack := regexp.MustCompile(`attack-[a-z0-9-]+`)
	for _, h := range m.events.since(mark, func(h happening) bool {
		return h.Data["return"] != nil &&
			attack.MatchString(fmt.Sprint(h.Data["fun_args"]))
	}) {
		reached = append(reached, fmt.Sprintf("%v ran %s", h.Data["id"],
			attempts[attack.FindString(fmt.Sprint(h.Data["fun_args"]))]))
	}
	if len(attempts) < 319 || len(reached) > 0 {
		slices.Sort(reached)
		t.Errorf("of %d attempts, %d were carried out:\n%s", len(attempts), len(reached),
			strings.Join(reached, "\n"))
	}
	t.Logf("%d attempts", len(attempts))
}
