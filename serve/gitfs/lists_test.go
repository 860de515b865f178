package gitfs

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"clustermaster/serve/fileserver"
)

// TestListsAtOnce makes one list for all who ask at a time.
func TestListsAtOnce(t *testing.T) {
	t.Parallel()
	r := largeRepo(t, 20)
	s, _ := open(t, Options{}, "file://"+r.dir)
	s.all(t)
	got := make([]fileserver.Lists, 30)
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range got {
		all.Go(func() {
			<-start
			var err error
			if got[i], err = s.Lists(t.Context(), "base"); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	for i, l := range got {
		if len(l.Files) != 2000 || &l.Files[0] != &got[0].Files[0] {
			t.Fatalf("list %d has %d files, and was made apart", i, len(l.Files))
		}
	}
}

// nested makes nested trees whose folders at each level are one: width links with a text of a size,
// and width folders per level.
func nested(r *repo, width, levels, size int) {
	link := r.pipe(strings.Repeat("x", size), "hash-object", "-w", "--stdin")
	kind, id := "120000 blob", link
	for range levels {
		var in strings.Builder
		for i := range width {
			fmt.Fprintf(&in, "%s %s\tn%02d\n", kind, id, i)
		}
		kind, id = "040000 tree", r.pipe(in.String(), "mktree")
	}
	r.git("update-ref", "refs/heads/master", r.git("commit-tree", "-m", "nested", id))
}

// TestTextsOfLinks lists links with equal, different and too many texts.
func TestTextsOfLinks(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	s, _ := open(t, Options{}, "file://"+r.dir)
	listed := func() (fileserver.Lists, error) {
		t.Helper()
		s.all(t)
		return s.Lists(t.Context(), "base")
	}
	nested(r, 16, 3, 4000)
	l, err := listed()
	if err != nil || len(l.Links) != 16*16*16 {
		t.Fatalf("got %d links, %v", len(l.Links), err)
	}
	first := l.Links[0].Value.(string)
	for _, p := range l.Links {
		if text := p.Value.(string); text != first ||
			unsafe.StringData(text) != unsafe.StringData(first) {
			t.Fatalf("the text of %s is another one in memory", p.Key)
		}
	}
	if cost := s.caches.lists.cost; cost > 1<<20 {
		t.Errorf("%d bytes are charged for links of one text", cost)
	}

	nested(r, 16, 4, 4000)
	if l, err := listed(); err == nil || !strings.Contains(err.Error(), "more than 128 MiB") {
		t.Errorf("too much: got %d links, %v", len(l.Links), err)
	}

	s.caches.lists.clear()
	links := make(map[string]string)
	for i := range 500 {
		links[fmt.Sprint("link", i)] = "-> " + strings.Repeat("x", 2000) + fmt.Sprint(i)
	}
	r.git("symbolic-ref", "HEAD", "refs/heads/other")
	r.write(links)
	r.commit("links")
	r.git("branch", "-f", "master")
	if l, err := listed(); err != nil || len(l.Links) != 500 {
		t.Fatalf("got %d links, %v", len(l.Links), err)
	}
	if cost := s.caches.lists.cost; cost < 1_000_000 {
		t.Errorf("%d bytes are charged for links of 500 texts", cost)
	}
}
