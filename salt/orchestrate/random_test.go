package orchestrate_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"clustermaster/test/salttrees"
)

var (
	randomTrees = flag.Int("trees", 40, "how many random trees Salt and ours are compared on")
	randomSeed  = flag.Uint64("seed", 1, "of the random trees")
)

// TestRandomTrees compares ours with Salt on trees that nobody thought of: requisites of all kinds
// between few states, so that they meet. With other values of -seed and more -trees it finds more.
func TestRandomTrees(t *testing.T) {
	t.Parallel()
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	dir := t.TempDir()
	var all []*salttrees.Tree
	for i := range *randomTrees {
		g := growth{rand.New(rand.NewPCG(*randomSeed, uint64(i))), nil}
		tr := g.tree(fmt.Sprintf("t%03d", i))
		all = append(all, tr)
		if err := tr.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	said := corpus.Ask(t, dir)
	ran := 0
	for _, tr := range all {
		root := t.TempDir()
		got, want := circles(normal(show(t, runTree(t, tr, root),
			root))), circles(normal(said[tr.Name]))
		if got != want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", tr.Text(), got, want)
		}
		if strings.Contains(want, "__run_num__") {
			ran++
		}
	}
	if ran < len(all)/4 {
		t.Errorf("%d of %d trees ran: the others tell of errors only", ran, len(all))
	}
}

var circle = regexp.MustCompile(`Recursive requisites were found: [^"]*`)

// circles leaves out which circle is told: in Salt it depends on the order of sets.
func circles(text string) string {
	return circle.ReplaceAllString(text, "Recursive requisites were found")
}

// growth grows random trees.
type growth struct {
	*rand.Rand
	ids []string
}

func (g *growth) one(of ...string) string { return of[g.IntN(len(of))] }
func (g *growth) in(n int) bool           { return g.IntN(n) == 0 }

func (g *growth) tree(name string) *salttrees.Tree {
	tr := &salttrees.Tree{Name: name}
	tr.Set("config", "local: false\nstate_events: "+g.one("true", "false")+"\n")
	if g.in(6) {
		tr.Set("request", "test: true\n")
	}
	slss := []string{"o", "x", "y"}[:1+g.IntN(3)]
	bodies := map[string]*strings.Builder{}
	for i, sls := range slss {
		bodies[sls] = &strings.Builder{}
		if i+1 < len(slss) {
			fmt.Fprintf(bodies[sls], "include:\n  - %s\n", slss[i+1])
		}
	}
	of := map[string]string{}
	for i := range 3 + g.IntN(7) {
		id := fmt.Sprintf("s%d", i)
		g.ids = append(g.ids, id)
		of[id] = g.one(slss...)
	}
	for i, id := range g.ids {
		fmt.Fprintf(bodies[of[id]], "%s:\n  test.%s:\n    - foo: bar\n", id,
			g.one("nop", "succeed_with_changes", "succeed_with_changes", "succeed_without_changes",
				"fail_without_changes", "fail_with_changes"))
		for range g.IntN(4) {
			bodies[of[id]].WriteString(g.argument(i, slss))
		}
	}
	if g.in(5) {
		id := g.one(g.ids...)
		fmt.Fprintf(bodies["o"], "extend:\n  %s:\n    test:\n%s", id,
			g.argument(g.IntN(len(g.ids)), slss))
	}
	if g.in(8) {
		fmt.Fprintf(bodies["o"], "exclude:\n  - %s\n",
			g.one("id: "+g.one(g.ids...), "sls: y", "x*"))
	}
	for _, sls := range slss {
		tr.Set("files/"+sls+".sls", bodies[sls].String())
	}
	return tr
}

// argument is one of the i-th state. Most requisites point back, so that most trees have no
// circles.
func (g *growth) argument(i int, slss []string) string {
	back := func() string {
		if g.in(60) {
			return g.one(g.ids...)
		}
		return g.ids[g.IntN(i)]
	}
	forward := func() string {
		if g.in(60) {
			return g.one(g.ids...)
		}
		return g.ids[i+1+g.IntN(len(g.ids)-1-i)]
	}
	refs := func(pick func() string) string {
		var b strings.Builder
		for range 1 + g.IntN(3) {
			switch {
			case g.in(10):
				b.WriteString("        - " + pick() + "\n")
			case g.in(50):
				b.WriteString("        - sls: " + g.one(slss...) + "\n")
			case g.in(80):
				b.WriteString("        - test: " + pick()[:1] + "*\n")
			default:
				b.WriteString("        - test: " + pick() + "\n")
			}
		}
		return b.String()
	}
	plain := func() string { return "        - test: " + forward() + "\n" }
	n := g.IntN(24)
	if i == 0 && n < 10 || i == len(g.ids)-1 && n >= 10 && n < 17 {
		n = 23 // there is nobody to point to
	}
	switch {
	case n < 10:
		kind := g.one("require", "watch", "onchanges", "onfail", "require_any", "watch_any",
			"onchanges_any", "onfail_any", "onfail_all", "listen")
		if kind == "listen" {
			return "    - listen:\n" + "        - test: " + back() + "\n"
		}
		return "    - " + kind + ":\n" + refs(back)
	case n < 14:
		return "    - " + g.one("require_in", "watch_in", "onchanges_in", "onfail_in", "listen_in",
			"prereq_in") + ":\n" + plain()
	case n < 16:
		return "    - prereq:\n" + plain()
	case n == 16:
		return "    - " + g.one("use", "use_in") + ":\n" + plain()
	case n == 17:
		return "    - order: " + g.one("1", "5", "10001", "-1", "last", "first", "10003",
			"2.5") + "\n"
	case n == 18:
		return "    - names:\n        - " + g.ids[i] + "_a\n        - " + g.ids[i] +
			"_b:\n            - comment: own\n"
	case n == 19:
		return "    - failhard: " + g.one("true", "false") + "\n"
	case n == 20:
		return "    - retry:\n        attempts: " + g.one("1", "2", "3") +
			"\n        interval: 0\n        until: " + g.one("true", "false") + "\n"
	case n == 21:
		return "    - fire_event: " + g.one("true", "a/b", "false") + "\n"
	case n == 22:
		return "    - name: n" + g.one("1", "2") + "\n"
	}
	return "    - " + g.one("creates: /", "creates: /nowhere", "no_log: true", "comment: said",
		"onlyif: 'false'", "unless: 'true'") + "\n"
}
