package gitfs

import (
	"hash"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestLargeFileAtOnce lets many ask for a new large file at a time: it is extracted and hashed
// once.
func TestLargeFileAtOnce(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	text := strings.Repeat("0123456789abcdef", 1<<18)
	r.write(map[string]string{"large": text})
	r.commit("one")
	var extracted, hashed atomic.Int32
	s, _ := open(t, Options{Room: func(int64) error { extracted.Add(1); return nil }}, "file://"+r.dir)
	s.all(t)
	made := s.newHash
	s.newHash = func() hash.Hash { hashed.Add(1); return made() }
	f, ok, err := s.Find(t.Context(), "large", "base")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range 20 {
		all.Go(func() {
			<-start
			if i%2 == 0 {
				if b, err := f.Whole(t.Context(), 1<<30); err != nil || string(b) != text {
					t.Errorf("got %d bytes, %v", len(b), err)
				}
			} else if _, err := f.Sum(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	if extracted.Load() != 1 || hashed.Load() != 1 {
		t.Errorf("it was extracted %d times and hashed %d times", extracted.Load(), hashed.Load())
	}
}
