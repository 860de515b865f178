package master

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/keystore"
	"clustermaster/salt/target"
	"clustermaster/value"
)

// TestStubsAreFiles: a stub that is a link or a folder accepts nobody, for who may write only there
// could name any file.
func TestStubsAreFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "plain")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := newAutosign(Options{AutosignDir: dir}, slog.New(slog.DiscardHandler))
	for id, want := range map[string]keystore.Auto{
		"plain": keystore.AutoAccept, "link": keystore.AutoNone, "folder": keystore.AutoNone,
		"nosuch": keystore.AutoNone,
	} {
		if got, _ := a.decide(id, nil, time.Now()); got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

// TestSignFileIsReadAgain: a change counts although size and time of modification stay, as after
// rsync or chgrp.
func TestSignFileIsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sign")
	at := time.Now().Add(-time.Hour)
	f := signFile{path: path, log: slog.New(slog.DiscardHandler)}
	for _, id := range []string{"web1", "web2"} {
		if err := errors.Join(os.WriteFile(path, []byte(id), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		if !f.matches(id) {
			t.Errorf("%s: the file has %v", id, f.cached.all)
		}
	}
}

// TestRejectFileThatCannotBeRead: what it rejected stays rejected, and if nobody has read it every
// key waits. A long line hides nothing behind it.
func TestRejectFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "reject")
	o, log := Options{AutoAccept: true, AutorejectFile: path}, slog.New(slog.DiscardHandler)
	a := newAutosign(o, log)
	decides := func(when string, a *autosign, bad, good keystore.Auto) {
		t.Helper()
		for id, want := range map[string]keystore.Auto{"bad1": bad, "good": good} {
			if got, _ := a.decide(id, nil, time.Now()); got != want {
				t.Errorf("%s, %s: %v, want %v", when, id, got, want)
			}
		}
	}
	decides("without a file", a, keystore.AutoAccept, keystore.AutoAccept)
	long := strings.Repeat("x", 100<<10) + "\nbad*\n"
	if err := os.WriteFile(path, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	decides("with a file", a, keystore.AutoReject, keystore.AutoAccept)
	if err := errors.Join(os.Remove(path), os.Symlink(path, path)); err != nil { // a circle
		t.Fatal(err)
	}
	decides("unread", a, keystore.AutoReject, keystore.AutoAccept)
	decides("never read", newAutosign(o, log), keystore.AutoNone, keystore.AutoNone)
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	decides("empty", a, keystore.AutoAccept, keystore.AutoAccept)
}

// TestAcceptFilesThatCannotBeRead: ids that were taken out of them must wait for an operator.
func TestAcceptFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	grains := filepath.Join(dir, "grains")
	if err := os.Mkdir(grains, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, o := range map[string]Options{
		filepath.Join(dir, "sign"):    {AutosignFile: filepath.Join(dir, "sign")},
		filepath.Join(grains, "role"): {AutosignGrainsDir: grains},
	} {
		a := newAutosign(o, slog.New(slog.DiscardHandler))
		decides := func(when string, want keystore.Auto) {
			t.Helper()
			got, _ := a.decide("web", value.Map{{Key: "role", Value: "web"}}, time.Now())
			if got != want {
				t.Errorf("%s %s: %v, want %v", path, when, got, want)
			}
		}
		if err := os.WriteFile(path, []byte("web\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		decides("with its line", keystore.AutoAccept)
		if err := errors.Join(os.Remove(path), os.Symlink(path, path)); err != nil { // a circle
			t.Fatal(err)
		}
		decides("unread", keystore.AutoNone)
		if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		decides("empty", keystore.AutoNone)
	}
}

// TestSignLines: the quick forms of lines match what the lines themselves match as an id, a shell
// pattern or a regular expression.
func TestSignLines(t *testing.T) {
	t.Parallel()
	lines := []string{"web1", "web1.a.b", "web.", "...", "a-b_c@d:e", "ü.x", "ü", "web*", "web?", "[ab]x",
		"[!a]y", "db[0-9]+", "db\\d", "(", "a|b", ".*x", "(?i)ABC", "(?x) q # r", "web1.", "x+", "a{2}",
		"$", "^k$", "l\\", "i.d", "%", "a b", "Ω", "(?=a)(a+)+"}
	ids := []string{"web1", "web1.a.b", "web1xaxb", "web1.aüb", "web1.a\nb", "web", "webs", "webü", "web12",
		"...", "abc", "übc", "üüü", "a-b_c@d:e", "ü.x", "üyx", "ü", "ax", "bx", "cy", "ay", "db7", "db77",
		"db", "(", "a", "b", "ab", "zzx", "ABC", "q", "x", "xx", "xxx", "aa", "$", "k", "^k$", "l\\", "i.d", "ixd",
		"i\nd", "%", "a b", "Ω", "Ω.", "", "\n", "aaa", strings.Repeat("a", 64) + "!"}
	for _, line := range lines {
		l := newSignLines(target.FullMatcher)
		l.add(line)
		for _, id := range ids {
			want := line == id || target.Glob(line, id) || target.MatchFull(line, id)
			for range 2 { // the second time with what the first has kept
				if got := l.match(id); got != want {
					t.Errorf("line %q, id %.20q: %v, want %v", line, id, got, want)
				}
			}
		}
	}
	many := newSignLines(target.FullMatcher)
	for i := range maxCompiled + 10 {
		many.add(fmt.Sprintf("web%d-[0-9]+", i))
	}
	var all sync.WaitGroup
	for i := range maxCompiled + 10 {
		all.Go(func() {
			if !many.match(fmt.Sprintf("web%d-7", i)) || many.match(fmt.Sprintf("web%d-x", i)) {
				t.Errorf("line %d", i)
			}
		})
	}
	all.Wait()
}

// signFileOf makes a file of maxCompiled lines.
func signFileOf(tb testing.TB, line string) *signFile {
	tb.Helper()
	var text strings.Builder
	for i := range maxCompiled {
		fmt.Fprintf(&text, line+"\n", i)
	}
	path := filepath.Join(tb.TempDir(), "sign")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &signFile{path: path, log: slog.New(slog.DiscardHandler)}
}

var signLinesOf = map[string]string{"ids": "web%05d", "names": "web%05d.example.com",
	"patterns": "web%05d-[0-9]+"}

// TestSignFileCost: a sign-in compiles no line of the file again.
func TestSignFileCost(t *testing.T) {
	for name, line := range signLinesOf {
		f := signFileOf(t, line)
		f.matches("dbs00001.example.com")
		if n := testing.AllocsPerRun(10, func() { f.matches("dbs00001.example.com") }); n > 20 && !underRace {
			t.Errorf("%s: %v allocations for an id that no line means", name, n)
		}
	}
}

// BenchmarkSignFile asks for an id that no line means, as the sign-ins of all accepted minions do.
func BenchmarkSignFile(b *testing.B) {
	for name, line := range signLinesOf {
		b.Run(name, func(b *testing.B) {
			f := signFileOf(b, line)
			for b.Loop() {
				if f.matches("dbs00001.example.com") {
					b.Fatal("it matches")
				}
			}
		})
	}
}
