package ringstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// Reads that go on while a store is closed end with an error at once: none finds a database that is
// closed under it, and none waits for this store as for an owner that is silent.
func TestReadsWhileItCloses(t *testing.T) {
	t.Parallel()
	for range 5 {
		s, err := Open(t.TempDir(), newAlone(), Options{ReadTimeout: time.Hour}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		for n := range 20 {
			if err := s.Put(ctx, Key{Space: SpaceJobs, Place: fmt.Sprintf("p%d", n), Name: "n"},
				[]byte("value"),
				time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		reading := make(chan struct{}, 4)
		for range 4 {
			wg.Go(func() {
				for n := 0; ; n++ {
					_, _, err := s.Get(ctx, Key{Space: SpaceJobs, Place: fmt.Sprintf("p%d", n%20),
						Name: "n"})
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if n == 50 {
						reading <- struct{}{}
					}
				}
			})
		}
		for range 4 {
			<-reading
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}
