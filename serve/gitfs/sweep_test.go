package gitfs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// TestWhatInterruptedGitsLeave breaks a fetch, the taking of another master's pack and a clean-up
// off, and leaves parts of packs behind before a start: all are gone, and a fetch works then.
func TestWhatInterruptedGitsLeave(t *testing.T) {
	t.Parallel()
	r := largeRepo(t, 3) // git unpacks what has fewer than 100 objects
	backend := &cgi.Handler{
		Path: filepath.Join(r.git("--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.dir), "GIT_HTTP_EXPORT_ALL=1"},
	}
	var most atomic.Int64 // bytes of one answer
	most.Store(10_000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		backend.ServeHTTP(&cutOff{w, int(most.Load())}, q)
	}))
	defer srv.Close()
	s, _ := open(t, Options{}, srv.URL+"/repo/.git")
	m := s.mirrors[s.keys[0]]
	packs := filepath.Join(m.dir, "objects", "pack")
	expect := func(when string) {
		t.Helper()
		files, err := os.ReadDir(packs)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasPrefix(f.Name(), "pack-") || strings.HasSuffix(f.Name(), ".keep") {
				t.Errorf("%s: %s is left", when, f.Name())
			}
		}
	}
	failed := func(err error) {
		t.Helper()
		if err == nil {
			t.Fatal("it succeeded")
		}
	}
	_, err := m.fetch(t.Context(), m.remote)
	failed(err)
	expect("a fetch")

	most.Store(1 << 30)
	if _, err := m.fetch(t.Context(), m.remote); err != nil {
		t.Fatal(err)
	}
	var pack bytes.Buffer
	id := r.git("rev-parse", "HEAD")
	if err := m.pack(t.Context(), []string{id}, nil, &pack); err != nil {
		t.Fatal(err)
	}
	part := io.LimitReader(&pack, int64(pack.Len()/2))
	failed(m.take(t.Context(), io.MultiReader(part, iotest.ErrReader(io.ErrClosedPipe)), []string{id}))
	expect("a pack of another master")

	leave := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(packs, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 40 { // enough to pack them again
		leave(fmt.Sprintf("pack-%040d.pack", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	leave("tmp_pack_AbCdEf", ".tmp-4711-pack-0123.pack")
	failed(m.tidy(ctx, map[string]bool{id: true}))
	expect("a clean-up")

	s.Close()
	leave("tmp_pack_AbCdEf", "tmp_idx_AbCdEf", ".tmp-4711-pack-0123.idx", "pack-0123.keep")
	again := s.reopened(t, s.with)
	expect("a start")
	for _, o := range again.all(t) {
		if o.Err != nil {
			t.Error(o.Err)
		}
	}
	if got := again.read(t, "d1/f1", "base"); !strings.HasPrefix(got, "service_1_1:") {
		t.Errorf("after all of that: %q", got)
	}
}

// cutOff ends an answer after a number of bytes.
type cutOff struct {
	http.ResponseWriter
	left int
}

func (c *cutOff) Write(b []byte) (int, error) {
	if len(b) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}
