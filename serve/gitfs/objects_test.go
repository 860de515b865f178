package gitfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/serve/fileserver"
)

// TestEntriesOfWrongKind serves a tree with entries that say "file" or "link" of commits, tags and
// trees. A commit's text then looks like an answer of git.
func TestEntriesOfWrongKind(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	files := make(map[string]string)
	for i := range 12 {
		files[fmt.Sprintf("good%02d", i)] = fmt.Sprintf("good text %d", i)
	}
	r.write(files)
	r.commit("good")
	folder := r.git("rev-parse", "HEAD^{tree}")
	raw := func(mode, name, id string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s\x00", mode, name)
		for i := 0; i < len(id); i += 2 {
			var c byte
			if _, err := fmt.Sscanf(id[i:i+2], "%02x", &c); err != nil {
				t.Fatal(err)
			}
			b.WriteByte(c)
		}
		return b.String()
	}
	evil := "evil text of 18 b."
	var lies strings.Builder
	for _, name := range []string{"good00", "good01", "good02", "good03", "good04"} {
		fmt.Fprintf(&lies, "%s blob %d\n%s\n", r.git("rev-parse", "HEAD:"+name), len(evil), evil)
	}
	commit := r.git("commit-tree", "-m", lies.String(), folder)
	tag := r.pipe("object "+commit+"\ntype commit\ntag x\ntagger a <a@example.org> 1700000000 +0000\n\n"+
		lies.String(), "mktag")
	other := r.pipe("100644 blob "+r.git("rev-parse", "HEAD:good00")+"\tx\n", "mktree")
	tree := r.pipe(raw("100644", "commit", commit)+raw("40000", "folder", folder)+
		raw("120000", "link", commit)+raw("100644", "tag", tag)+raw("100644", "tree", other),
		"hash-object", "-t", "tree", "-w", "--stdin")
	r.git("update-ref", "refs/heads/master", r.git("commit-tree", "-m", "lies", tree))
	s, _ := open(t, Options{}, "file://"+r.dir)
	for _, o := range s.all(t) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	m := s.mirrors[s.keys[0]]
	for id, want := range map[string]string{commit: "commit\n", tag: "tag\n", other: "tree\n"} {
		if kind, err := m.run(t.Context(), nil, "cat-file", "-t", id); string(kind) != want {
			t.Fatalf("the mirror holds a %q, %v; want a %q", kind, err, want)
		}
	}
	for i := range 12 {
		for _, name := range []string{"commit", "tag", "tree", "link"} {
			f, ok, err := s.Find(t.Context(), name, "base")
			if err != nil || ok == (name == "link") {
				t.Fatalf("%s is found: %v, %v", name, ok, err)
			}
			if !ok {
				continue
			}
			if b, err := f.Whole(t.Context(), 1<<20); !errors.Is(err, errMissing) {
				t.Errorf("%s is served: %q, %v", name, b, err)
			}
		}
		name := fmt.Sprintf("good%02d", i)
		if got := s.read(t, "folder/"+name, "base"); got != files[name] {
			t.Errorf("%s: %q", name, got)
		}
	}
	l, err := s.Lists(t.Context(), "base")
	if err != nil || len(l.Files) != 16 || !slices.Equal(l.Dirs, []string{"folder"}) ||
		len(l.Links) > 0 {
		t.Errorf("got files %q, folders %q, links %v, %v", l.Files, l.Dirs, l.Links, err)
	}
}

// TestDamagedMirrorIsNoAbsence removes objects of a mirror, one kind at a time: nothing below them
// counts as not found, for then minions would remove it, and the error names the remedy.
func TestDamagedMirrorIsNoAbsence(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]string{
		"commit": "HEAD", "root": "HEAD^{tree}", "folder": "HEAD:d", "link": "HEAD:d/link",
		"file": "HEAD:d/file",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			r.write(map[string]string{"d/file": "text", "d/link": "-> file", "top": "other"})
			r.commit("one")
			s, _ := open(t, Options{}, "file://"+r.dir)
			s.all(t)
			m := s.mirrors[s.keys[0]]
			id := r.git("rev-parse", object)
			if err := os.Remove(filepath.Join(m.dir, "objects", id[:2], id[2:])); err != nil {
				t.Fatal(err)
			}
			damaged := func(what string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), m.dir+" is damaged: it lacks object "+id) ||
					errors.Is(err, errMissing) || errors.Is(err, fileserver.ErrAbsent) {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, _, err := s.Find(t.Context(), "d/link", "base")
			f, found, fileErr := s.Find(t.Context(), "d/file", "base")
			if name == "file" {
				if err != nil || fileErr != nil || !found {
					t.Fatal(err, fileErr, found)
				}
				_, err = f.Whole(t.Context(), 100)
				damaged("the file", err)
			} else {
				damaged("the link", err)
				if name != "link" {
					damaged("the file", fileErr)
				}
				_, err = s.Lists(t.Context(), "base")
				damaged("lists", err)
			}
			s.mendAll(t, time.Now())
			if got := s.read(t, "d/link", "base"); got != "text" || m.broken.Load() {
				t.Errorf("once it is fetched anew: %q, %v", got, m.broken.Load())
			}
		})
	}
}

// TestAwaitedCommitsAreNoAbsence asks a master for files before it has anything of what the others
// agreed to serve, and again afterwards.
func TestAwaitedCommitsAreNoAbsence(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"f": "text"})
	r.commit("one")
	s, _ := open(t, Options{}, "file://"+r.dir)
	absent := func(when string) {
		t.Helper()
		l, err := s.Lists(t.Context(), "base")
		if got := s.read(t, "f", "base"); got != "(absent)" || err != nil || len(l.Files) > 0 {
			t.Errorf("%s: %q, %v, %v", when, got, l.Files, err)
		}
	}
	absent("before any fetch")
	if err := s.with.Publish(t.Context(), s.keys[0], 1, Refs{"refs/remotes/origin/master": strings.Repeat("12", 20)},
		nil); err != nil {
		t.Fatal(err)
	}
	s.Follow()
	if _, found, err := s.Find(t.Context(), "f", "base"); found || !errors.Is(err, errAwaited) {
		t.Errorf("the file: %v, %v", found, err)
	}
	if _, err := s.Lists(t.Context(), "base"); !errors.Is(err, errAwaited) {
		t.Errorf("the lists: %v", err)
	}
	s.all(t)
	if got := s.read(t, "f", "base"); got != "text" {
		t.Errorf("after a fetch: %q", got)
	}
}

// TestLinkTooLong has a link with a text that is too long for one: it leads nowhere, and takes no
// other file along.
func TestLinkTooLong(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"good": "text"})
	r.commit("one")
	long := r.pipe(strings.Repeat("x/", maxLinkText), "hash-object", "-w", "--stdin")
	r.git("update-index", "--add", "--cacheinfo", "120000,"+long+",long")
	r.git("commit", "-q", "-m", "two")
	s, _ := open(t, Options{}, "file://"+r.dir)
	s.all(t)
	if got := s.read(t, "long", "base"); got != "(absent)" {
		t.Errorf("the link serves %q", got)
	}
	l, err := s.Lists(t.Context(), "base")
	if err != nil || !slices.Equal(l.Files, []string{"good", "long"}) || len(l.Links) > 0 {
		t.Errorf("got files %q, links %v, %v", l.Files, l.Links, err)
	}
}

// TestReadersOutOfStep gives up answers in the middle, leaves one unasked for, and stops a process
// that has answered: later questions get their own answers.
func TestReadersOutOfStep(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"a": "1\n2\n3\n", "b": "other\n"})
	r.commit("one")
	a, b := r.git("rev-parse", "HEAD:a"), r.git("rev-parse", "HEAD:b")
	absent := strings.Repeat("12", 20)
	s, _ := open(t, Options{}, "file://"+r.dir)
	s.all(t)
	m := s.mirrors[s.keys[0]]
	right := func(when string) {
		t.Helper()
		if id, got, err := m.whole(t.Context(), a, "blob", 100); id != a ||
			string(got) != "1\n2\n3\n" || err != nil {
			t.Fatalf("%s: got %q of %s, %v", when, got, id, err)
		}
	}
	right("at first")
	for _, want := range []error{errMissing, io.ErrUnexpectedEOF} {
		err := m.object(t.Context(), a, func(string, string, int64, io.Reader) error { return want })
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		right("after an answer that was given up")
	}
	if _, err := io.WriteString(m.readers.idle[0].in, b+"\n"); err != nil {
		t.Fatal(err)
	}
	if _, got, err := m.whole(t.Context(), a, "blob", 100); err == nil {
		t.Errorf("another object's content is served: %q", got)
	}
	right("after a foreign answer")
	ctx, stop := context.WithCancel(t.Context())
	idle := m.readers.idle[0]
	idle.in = &afterAnswer{idle.in, idle.out, stop}
	if _, _, err := m.whole(ctx, absent, "blob", 100); !errors.Is(err, context.Canceled) {
		t.Errorf("given up, got %v", err)
	}
	right("after a process was stopped")
}

// TestContentCutShort kills git while a content is written to its file: there is no file then.
func TestContentCutShort(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"large": strings.Repeat("0123456789abcdef", 1<<16)})
	r.commit("one")
	large := r.git("rev-parse", "HEAD:large")
	s, _ := open(t, Options{}, "file://"+r.dir)
	s.all(t)
	m, file := s.mirrors[s.keys[0]], filepath.Join(t.TempDir(), "content")
	if _, err := s.Lists(t.Context(), "base"); err != nil { // starts a process
		t.Fatal(err)
	}
	git := m.readers.idle[0].cmd.Process
	err := m.object(t.Context(), large, func(_, _ string, _ int64, from io.Reader) error {
		if err := git.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := git.Wait(); err != nil {
			t.Error(err)
		}
		return writeContent(file, from)
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if info, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file exists: %v, %v", info, err)
	}
}

// afterAnswer passes questions to git, and calls a function as soon as the answer is there.
type afterAnswer struct {
	io.WriteCloser
	out  *bufio.Reader
	then func()
}

func (a *afterAnswer) Write(b []byte) (int, error) {
	n, err := a.WriteCloser.Write(b)
	if err == nil {
		_, err = a.out.Peek(1)
	}
	a.then()
	return n, err
}
