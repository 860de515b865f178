package orchestrate_test

import (
	"flag"
	"regexp"
	"sort"
	"strings"
	"testing"

	"clustermaster/test/salttrees"
)

var update = flag.Bool("update", false, "ask Salt for the returns of testdata/trees again")

var corpus = salttrees.Corpus{Script: "orchestrate.py", Least: 180, Normal: normal}

// TestTrees compares our orchestrations with those of Salt.
func TestTrees(t *testing.T) {
	t.Parallel()
	corpus.Compare(t, *update, func(t *testing.T, tree *salttrees.Tree, root string) string {
		return show(t, runTree(t, tree, root), root)
	})
}

// TestTreesAreSalts asks Salt again whether the kept answers are still its own.
func TestTreesAreSalts(t *testing.T) {
	t.Parallel()
	corpus.StillSalts(t)
}

var failedOf = regexp.MustCompile(`One or more requisite failed: [^"]*`)

// normal sorts what Salt takes from a set.
func normal(text string) string {
	return failedOf.ReplaceAllStringFunc(text, func(s string) string {
		const head = "One or more requisite failed: "
		list := strings.Split(strings.TrimPrefix(s, head), ", ")
		sort.Strings(list)
		return head + strings.Join(list, ", ")
	})
}
