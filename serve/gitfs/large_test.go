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
