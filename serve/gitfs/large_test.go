package gitfs

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// largeRepo makes a repository of folders with 100 small files each.
func largeRepo(t testing.TB, folders int) *repo {
	t.Helper()
	r := newRepo(t)
	var in bytes.Buffer
	in.WriteString("commit refs/heads/master\ncommitter a <a@example.org> 1700000000 +0000\ndata 1\nx\n")
	for d := 1; d <= folders; d++ {
		for f := 1; f <= 100; f++ {
			text := fmt.Sprintf("service_%d_%d:\n  file.managed:\n", d, f) +
				strings.Repeat("    - option: value\n", 12)
			fmt.Fprintf(&in, "M 100644 inline d%d/f%d\ndata %d\n%s\n", d, f, len(text), text)
		}
	}
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Stdin = r.dir, &in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git fast-import: %v %s", err, out)
	}
	return r
}

// BenchmarkFiles asks for the files of a repository in turn, over and over.
func BenchmarkFiles(b *testing.B) {
	for _, folders := range []int{50, 500} {
		r := largeRepo(b, folders)
		s, _ := open(b, Options{}, "file://"+r.dir)
		s.all(b)
		for _, what := range []string{"content", "hash"} {
			b.Run(fmt.Sprintf("%s of %d", what, 100*folders), func(b *testing.B) {
				n := 0
				for b.Loop() {
					n += 7919
					f, ok, err := s.Find(b.Context(),
						fmt.Sprintf("d%d/f%d", n%folders+1, n/folders%100+1), "base")
					if err != nil || !ok {
						b.Fatal(ok, err)
					}
					if what == "hash" {
						_, err = f.Sum(b.Context())
					} else {
						_, err = f.Piece(b.Context(), 0, 1<<20)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestEntriesOfTrees finds the entries of trees in any order, and refuses damaged ones.
func TestEntriesOfTrees(t *testing.T) {
	t.Parallel()
	one := func(mode, name string, id byte) string {
		return mode + " " + name + "\x00" + strings.Repeat(string(rune(id)), 20)
	}
	raw := one("100644", "z", 'a') + one("40000", "a b", 'b') + one("100755", "a", 'c') +
		one("40000", "z", 'd') + one("120000", "0 x", 'e')
	tree, err := newTree([]byte(raw), 20)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]node{
		"z": {0o100644, "61"}, "a b": {0o40000, "62"}, "a": {0o100755, "63"},
		"0 x": {0o120000, "65"}, "": {}, "b": {}, "zz": {}, "A": {},
	} {
		want.id = strings.Repeat(want.id, 20)
		if got, err := tree.entry(name); got != want || err != nil {
			t.Errorf("%q: got %v, %v, want %v", name, got, err, want)
		}
	}
	for n := 1; n < len(raw); n++ {
		if tree, err := newTree([]byte(raw[:n]), 20); err == nil && len(tree.order) == 0 {
			t.Errorf("%d bytes are taken for an empty tree", n)
		}
	}
	for _, bad := range []string{"100644", "100644 a", "100644 a\x00abc", " a\x00" + raw,
		"123456789 a\x00" + raw, one("10x644", "a", 'a')} {
		tree, err := newTree([]byte(bad), 20)
		if err == nil {
			_, err = tree.entry("a")
		}
		if err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
