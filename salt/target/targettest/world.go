package targettest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"clustermaster/salt/target"
	"clustermaster/value"
)

// minions is the number of minions of a world.
const minions = 500

// World holds synthetic minions and targets for them, the same in each run. It implements
// target.Source and has all data in memory.
type World struct {
	IDs            []string             // all have accepted keys; sorted
	Grains, Pillar map[string]value.Map // by id; some minions have neither, some no pillar
	Nodegroups     value.Map
	Targets        []Target
}

// Target is one question about a world.
type Target struct {
	Type   string
	Expr   any
	Greedy bool
}

var _ target.Source = (*World)(nil)

// AcceptedIDs implements target.Source.
func (w *World) AcceptedIDs() []string { return w.IDs }

// DataCache implements target.Source.
func (w *World) DataCache() bool { return true }

// Nodegroup implements target.Source.
func (w *World) Nodegroup(name string) (any, bool) { return w.Nodegroups.Get(name) }

// Ask implements target.Source.
func (w *World) Ask(_ context.Context, q target.Question, fn func(string, target.Hits)) (string,
	error) {
	j := q.Judge()
	for id, grains := range w.Grains {
		fn(id, j.Minion(false, grains))
	}
	for id, pillar := range w.Pillar {
		fn(id, j.Minion(true, pillar))
	}
	return "", nil
}

// pickZone adds the interface to some addresses.
func pickZone(i int) string {
	if i%5 == 0 {
		return "%eth0"
	}
	return ""
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func m(pairs ...any) value.Map {
	var out value.Map
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// New makes the world.
func New() *World {
	r := rand.New(rand.NewPCG(5, 7))
	w := &World{Grains: map[string]value.Map{}, Pillar: map[string]value.Map{}, Nodegroups: m(
		"webs", "web*", "debian", "G@os:Debian", "both", "N@webs and N@debian", "list",
		[]any{"web001.a.net", "db002.b.net", "nosuch"},
		"words", []any{"N@webs", "or", "db00*"}, "loop", "N@loop2", "loop2", "N@loop", "regex",
		[]any{"web00[1-3]", "db00[12]"}, "not", "not N@webs",
	)}
	for i := range minions {
		id := fmt.Sprintf("%s%03d.%s.net", pick(r, "web", "db", "app", "Cache"), i,
			pick(r, "a", "b"))
		w.IDs = append(w.IDs, id)
		if i%50 == 49 { // no data is known of it
			continue
		}
		w.Grains[id] = m(
			"id", id, "os", pick(r, "Debian", "Ubuntu", "RedHat", "windows"), "osrelease",
			pick(r, "11", "12", "22.04"), "num", int64(r.IntN(8)), "flag", i%3 == 0,
			"ratio", float64(r.IntN(4))/2, "none", nil, "roles",
			[]any{pick(r, "web", "db", "cache"), pick(r, "lb", "edge")}, "empty", "", "a:b",
			"colon",
			"nest", m("dc", pick(r, "fra", "ams"), "rack",
				m("row", int64(r.IntN(5)), "tags", []any{"x", pick(r, "y", "z")}), "list",
				[]any{m("n", "one"), m("n", pick(r, "two", "three"))}),
			"ipv4", []any{"127.0.0.1", fmt.Sprintf("10.%d.%d.%d", r.IntN(3), r.IntN(4), i%250)},
			"ipv6", []any{"::1", fmt.Sprintf("fe80::%x%s", i, pickZone(i))},
		)
		if i%20 != 19 {
			w.Pillar[id] = m("color", pick(r, "red", "blue", "blue-green"), "secret",
				fmt.Sprintf("s%d", i%7), "apps", m(pick(r, "nginx", "mysql"),
					m("port", int64(80+r.IntN(3)))), "l", []any{int64(1), pick(r, "p", "q")})
		}
	}
	slices.Sort(w.IDs)
	add := func(kind string, exprs ...string) {
		for _, e := range exprs {
			w.Targets = append(w.Targets, Target{kind, e, true})
		}
	}
	add("glob", "*", "web*", "web00?.a.net", "[wd]*", "[!w]*", "web*.b.net", "cache*", "Cache*",
		"nosuch", "", "web[", "*.net", "web0[0-4]*", "WEB*", "web*,db*")
	add("pcre", "web.*", "eb.*", "(web|db)0", "web\\d+\\.a", "web\\d+\\.a$", "^db", "(?i)cache",
		"((", "[a-c].*", "", ".*9\\..*")
	add("list", "web001.a.net,nosuch", w.IDs[3]+","+w.IDs[5], w.IDs[3]+", "+w.IDs[5], "", ",",
		w.IDs[1])
	add("grain", "os:Debian", "os:debian", "os:*", "os:De*", "os:[DU]*", "OS:Debian",
		"osrelease:11", "osrelease:22.04", "num:3", "num:[0-3]", "flag:True", "flag:true",
		"flag:False",
		"ratio:0.5", "ratio:1.0", "none:None", "none:*", "empty:", "empty:*", "roles:web",
		"roles:l*", "roles:nosuch", "roles:1", "nest:dc:fra", "nest:*", "nest:dc", "nest:dc:*",
		"nest:rack:row:3",
		"nest:rack:tags:y", "nest:rack:tags:*", "nest:*:row:3", "nest:list:n:one", "nest:list:n:t*",
		"nest:list:0:n:one", "*:fra", "*:*", "*:Debian", "a:b:colon", "a:b", "nosuch:*", "nosuch:x",
		"os", ":", "",
		"os:Debian:x", "ipv4:10.1.*", "nest:rack:*:y", "nest:*:tags:x", "id:web*")
	add("grain_pcre", "os:(Debian|Ubuntu)", "os:deb", "os:D.*n$", "osrelease:1[12]", "num:[0-3]",
		"roles:(web|db)", "nest:dc:f.a", "nest:rack:row:[34]", "os:((", "*:fra", "ipv4:10\\.2\\..*",
		"nest:(dc|rack)", "none:N.*")
	add("pillar", "color:blue", "color:blue*", "color:BLUE", "apps:nginx", "apps:nginx:port:80",
		"apps:*:port:8[01]", "l:1", "l:p", "secret:s?", "secret:*", "nosuch:*", "color")
	add("pillar_pcre", "color:blue.*", "secret:s[0-3]", "apps:ng.*", "apps:nginx:port:8[01]",
		"l:[pq]")
	add("pillar_exact", "color:blue", "color:blue*", "apps:nginx", "apps:nginx:port:81",
		"secret:s1", "l:q", "l:1")
	add("ipcidr", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3", "10.1.2.3/16",
		"127.0.0.1", "fe80::/10", "fe80::5", "192.168.0.0/16", "bad", "10.0.0.0/33", "",
		"10.1.0.0/255.255.0.0", "10.1.0.0/0.0.255.255", "10.1.0.0/255.0.255.0",
		"10.1.2.0/255.255.0.0", "10.0.0.0/08", "10.0.0.0/", "0.0.0.0/0.0.0.0", "fe80::%eth0/64",
		"fe80::/255.0.0.0", "::/0")
	add("nodegroup", "webs", "debian", "both", "list", "words", "loop", "regex", "not",
		"nosuch", "")
	add("compound", "web*", "web* and G@os:Debian", "web* or db*", "web* or db* and G@os:Debian",
		"( web* or db* ) and G@os:Debian", "not web*", "web* and not G@os:Debian",
		"web* not G@os:Debian",
		"not not web*", "web* and", "and web*", "or web*", "( and web* )", "( web*", "web* )",
		"(web* or db*)", "web* db*", "G@os:Debian and I@color:red",
		"P@os:(Debian|Ubuntu) and J@color:b.*",
		"L@"+w.IDs[3]+","+w.IDs[5]+" or "+w.IDs[7], "N@webs and not N@debian", "N@nosuch",
		"N@both or N@list", "not N@webs", "E@db.* and S@10.1.0.0/16",
		"S@10.0.0.0/8 and not S@10.1.0.0/16", "E@((", "S@bad or web*",
		"X@foo", "web* and X@foo", "G|@os|Debian", "G|@nest|dc|fra", "P/@os/(Deb|Ub).*",
		"I|@color|red", "G@os:Debian or G@os:Ubuntu and web*",
		"not ( web* or db* ) and G@flag:True",
		"not G@nosuch:x", "not I@color:*", "* and not L@"+w.IDs[0], "( ( web* ) )", "()", "( )", "",
		" ", "not", "G@", "G@os", "@", "web*@", "R@%webs", "not R@%webs", "L@nosuch",
		"not L@nosuch", "G@os:Debian not web*",
		"web* or not web*", "web* and ( db* or ( G@os:Debian and not ( G@num:3 or G@num:4 ) ) )",
		"P|role|web", "T@x:y", "M@x", "not T@x")
	for _, q := range slices.Clone(w.Targets) {
		switch q.Type {
		case "grain", "ipcidr", "pillar_exact":
			if len(w.Targets)%3 == 0 || q.Type != "grain" {
				w.Targets = append(w.Targets, Target{q.Type, q.Expr, false})
			}
		}
	}
	for _, e := range []string{"web*", "not web*", "G@os:Debian", "S@10.1.0.0/16",
		"not S@10.1.0.0/16", "* and not G@os:Debian", "I@color:blue*"} {
		w.Targets = append(w.Targets, Target{"compound", e, false},
			Target{"compound_pillar_exact", e, false}, Target{"compound_pillar_exact", e, true})
	}
	w.Targets = append(w.Targets, Target{"list", []any{w.IDs[2], w.IDs[1], "nosuch"}, true},
		Target{"range", "%x", true}, Target{"nonsense", "*", true}, Target{"glob", "web*", false})
	return w
}
