package datadisk

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFolders: a folder counts as hanging from ten seconds after the beginning of a look that does
// not end, until it ends. The others are looked at meanwhile, and one that hangs gets no second
// look.
func TestFolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := WatchFolders([]Folder{{"file_roots", "/srv/salt"}, {"file_roots", "/srv/__env__"},
			{"pillar_roots", "/srv/pillar"}, {"file_roots", "/srv/salt"}},
			slog.New(slog.NewTextHandler(&log, nil)), nil)
		var mu sync.Mutex
		looks, answers := map[string]int{}, make(chan struct{})
		f.look = func(path string) {
			mu.Lock()
			looks[path]++
			n := looks[path]
			mu.Unlock()
			if path == "/srv/salt" && n == 3 {
				<-answers
			}
		}
		alarms := f.Beside(func() []string { return nil })
		go func() { _ = f.Run(t.Context()) }()
		look := func(after time.Duration) string {
			time.Sleep(after)
			synctest.Wait()
			return strings.Join(alarms(), "|")
		}
		if got := look(folderEvery + folderEvery + folderHangs); got != "" || f.longest() != 0 {
			t.Errorf("at the limit: %q, %v", got, f.longest())
		}
		want := "file_roots: /srv/salt has not answered for 16s, "
		if got := look(6 * time.Second); !strings.HasPrefix(got, want) || strings.Contains(got, "|") ||
			f.longest() != 16*time.Second {
			t.Errorf("6 s later: %q, %v, want %q", got, f.longest(), want)
		}
		if looks["/srv/salt"] != 3 || looks["/srv/pillar"] != 6 || len(looks) != 2 {
			t.Errorf("looks: %v", looks)
		}
		close(answers)
		if got := look(folderEvery); got != "" || looks["/srv/salt"] != 4 {
			t.Errorf("it answers again: %q, looks %v", got, looks)
		}
		if text := log.String(); strings.Count(text, "does not answer") != 1 ||
			strings.Count(text, "answers again") != 1 {
			t.Errorf("log: %s", text)
		}
	})
}
