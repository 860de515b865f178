package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestParts ends parts from above, from below and by errors, and looks in which order they end.
func TestParts(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for _, tt := range []struct {
		name                string
		lowerErr, upperErr  error
		lowerEnds, upperBad bool // on their own, without the context's end
		cancel              bool
		want                string
		order               []string
	}{
		{name: "told to end", cancel: true, order: []string{"upper", "between", "lower"}},
		{name: "an upper part fails", upperErr: bad, upperBad: true, want: "bad",
			order: []string{"upper", "between", "lower"}},
		{name: "a lower part fails", lowerErr: bad, lowerEnds: true, want: "bad",
			order: []string{"lower", "upper", "between"}},
		{name: "a lower part ends", lowerEnds: true,
			want:  "a part of the master ended without a reason",
			order: []string{"lower", "upper", "between"}},
		{name: "a lower part fails at the end", lowerErr: bad, cancel: true, want: "bad",
			order: []string{"upper", "between", "lower"}},
		{name: "parts report that they were cancelled", lowerErr: context.Canceled,
			upperErr: context.Canceled, cancel: true, order: []string{"upper", "between", "lower"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var order []string
				ended := func(what string) {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, what)
				}
				part := func(name string, err error, alone bool) Part {
					return func(ctx context.Context) error {
						if !alone {
							<-ctx.Done()
						}
						ended(name)
						return err
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := Parts{
					Lower:   []Part{part("lower", tt.lowerErr, tt.lowerEnds)},
					Upper:   []Part{part("upper", tt.upperErr, tt.upperBad)},
					Between: func() { ended("between") },
				}
				done := make(chan error)
				go func() { done <- p.Run(ctx) }()
				synctest.Wait()
				if tt.cancel {
					cancel()
				}
				got := ""
				if err := <-done; err != nil {
					got = err.Error()
				}
				if got != tt.want || !slices.Equal(order, tt.order) {
					t.Errorf("%q in the order %v, want %q in %v", got, order, tt.want, tt.order)
				}
			})
		})
	}
}
