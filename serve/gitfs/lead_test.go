package gitfs

import (
	"context"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestHolding asks for a majority of the reachable masters and for one of all voters: with only
// the first, two of five voters would do while two others are away.
func TestHolding(t *testing.T) {
	t.Parallel()
	five := []string{"a", "b", "c", "d", "e"}
	for name, c := range map[string]struct {
		reachable int
		voters    []string
		holders   []string
		enough    bool
	}{
		"alone":                           {1, five[:1], five[:1], true},
		"one of three":                    {3, five[:3], five[:1], false},
		"two of three":                    {3, five[:3], five[:2], true},
		"two of three, one away":          {2, five[:3], five[:2], true},
		"two of five, two away":           {3, five, five[:2], false},
		"three of five, two away":         {3, five, five[:3], true},
		"voters, and learners without":    {5, five[:3], five[:2], false},
		"a voter, and learners with it":   {5, five[:3], []string{"a", "d", "e"}, false},
		"two voters, and a learner":       {5, five[:3], []string{"a", "b", "d"}, true},
		"all voters of seven masters":     {7, five, five, true},
		"three voters of seven masters":   {7, five, five[:3], false},
		"three voters and one that isn't": {7, five, []string{"a", "b", "c", "f"}, true},
	} {
		h := holding{reachable: c.reachable, voters: c.voters}
		for _, node := range c.holders {
			h.add(node)
		}
		if h.enough() != c.enough {
			t.Errorf("%s: got %v, want %v", name, h.enough(), c.enough)
		}
	}
}

// TestServerThatHangs has a git server that takes requests and no longer answers. What is done with
// the remote beside it doesn't wait for that; neither do pins of the remotes that hang. It is the
// same when the server has more repositories than there may be fetches at a time, and they hung
// before.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"one remote": 1, "many remotes": parallelFetches + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hangs atomic.Bool
			asked := make(chan struct{}, 100)
			good, bad := newRepo(t), newRepo(t)
			backend := &cgi.Handler{
				Path: filepath.Join(good.git("--exec-path"), "git-http-backend"),
				Env:  []string{"GIT_PROJECT_ROOT=/", "GIT_HTTP_EXPORT_ALL=1"},
			}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if hangs.Load() {
					asked <- struct{}{}
					<-q.Context().Done()
					return
				}
				backend.ServeHTTP(w, q)
			}))
			t.Cleanup(srv.Close)
			remotes := []any{with("file://"+good.dir, "name", "good", "update_interval", "1")}
			good.write(map[string]string{"a": "old"})
			first := good.commit("first")
			for range n {
				bad = newRepo(t)
				bad.commit("first")
				remotes = append(remotes, with(srv.URL+bad.dir+"/.git", "name", filepath.Dir(bad.dir),
					"update_interval", "1"))
			}
			s, log := open(t, Options{Tick: 10 * time.Millisecond}, remotes...)
			for _, o := range s.all(t) {
				if o.Err != nil {
					t.Fatal(o.Err)
				}
			}
			hangs.Store(true)
			for _, r := range s.files[1:] {
				s.mirrors[r.key].hung = n > parallelFetches
			}
			good.write(map[string]string{"a": "new"})
			good.commit("second")
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- s.Run(ctx) }()
			t.Cleanup(func() {
				stop()
				if err := <-ran; err != nil {
					t.Error(err)
				}
				if t.Failed() {
					t.Log(log)
				}
			})
			// far less than git_fetch_timeout
			limit := time.After(time.Minute)
			within := func(what string, done <-chan struct{}) {
				t.Helper()
				select {
				case <-done:
				case <-limit:
					t.Fatalf("%s: not in time", what)
				}
			}
			soon := func(what string, do func() error) {
				t.Helper()
				done := make(chan struct{})
				go func() {
					defer close(done)
					if err := do(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}()
				within(what, done)
			}
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			until := func(what string, ok func() bool) {
				t.Helper()
				for !ok() {
					select {
					case <-tick.C:
					case <-limit:
						t.Fatalf("%s: not in time", what)
					}
				}
			}
			for range min(n, parallelRetries) {
				within("requests of the server that hangs", asked)
			}
			until("a new commit", func() bool { return s.read(t, "a", "base") == "new" })
			soon("pin", func() error {
				_, err := s.Pin(ctx, "good", "base", first, "ada", false)
				return err
			})
			soon("unpin", func() error {
				_, err := s.Unpin(ctx, "good", "base", "ada", false)
				return err
			})
			soon("roll back", func() error {
				_, err := s.Rollback(ctx, "good", "base", "ada", false)
				return err
			})
			if got := s.read(t, "a", "base"); got != "old" {
				t.Errorf("rolled back: %q", got)
			}
			soon("pin a remote that hangs", func() error {
				_, err := s.Pin(ctx, filepath.Dir(bad.dir), "base", "master", "ada", false)
				return err
			})
			key := s.files[0].key
			soon("update", func() error {
				o, err := s.Update(ctx, []string{key})
				if err == nil {
					err = o[key].Err
				}
				return err
			})
			m := s.mirrors[key]
			if err := os.Rename(m.dir, m.dir+".away"); err != nil {
				t.Fatal(err)
			}
			until("a new mirror", func() bool { return !m.removed() && !m.broken.Load() })
		})
	}
}
