package gitfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"clustermaster/serve/fileserver"
	"clustermaster/value"
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

// TestListsWithoutGit lists for a minion and an operator while no git can be started: the minion
// must not take the files of file_roots for all.
func TestListsWithoutGit(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"folder/from-git": "1", "link": "-> folder/from-git"})
	r.commit("one")
	s, _ := open(t, Options{}, "file://"+r.dir)
	s.all(t)
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "from-roots"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := fileserver.New(fileserver.Options{
		Roots: []fileserver.Env{{Name: "base", Roots: []string{root}}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	files.Use([]string{fileserver.Roots, RoleFiles}, s)
	cmds := []string{"_file_list", "_file_list_emptydirs", "_dir_list", "_symlink_list"}
	load := value.Map{{Key: "saltenv", Value: "base"}, {Key: "prefix", Value: ""}}
	git := s.git.path
	for _, m := range s.mirrors {
		m.restAll()
	}
	s.git.path = filepath.Join(root, "no-git")
	for _, cmd := range cmds {
		if got, err := files.Serve(t.Context(), cmd, load); err == nil {
			t.Errorf("%s without git: %v", cmd, got)
		}
		only := append(load, value.Pair{Key: "fsbackend", Value: "roots"})
		if _, err := files.Serve(t.Context(), cmd, only); err != nil {
			t.Errorf("%s of file_roots only: %v", cmd, err)
		}
	}
	if got := files.List("base"); !slices.Equal(got, []string{"from-roots"}) {
		t.Errorf("for an operator without git: %q", got)
	}
	s.git.path = git
	for _, cmd := range cmds {
		if _, err := files.Serve(t.Context(), cmd, load); err != nil {
			t.Errorf("%s with git: %v", cmd, err)
		}
	}
	if got := files.List("base"); !slices.Equal(got,
		[]string{"folder/from-git", "from-roots", "link"}) {
		t.Errorf("for an operator with git: %q", got)
	}
}
