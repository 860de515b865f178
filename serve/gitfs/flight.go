package gitfs

import (
	"context"
	"sync"
)

// flights does each task once for all who want its result at the same time. The zero value has
// none. It is safe for concurrent use.
type flights[V any] struct {
	mu sync.Mutex // guards at
	at map[string]*flight[V]
}

// flight is a task that runs.
type flight[V any] struct {
	done chan struct{} // closed at its end; guards the others
	good bool          // it ran to its end, and not because its caller left
	v    V
	err  error
}

// do returns the result of a task, run by this caller or by another one that began earlier. When a
// caller leaves, one of those that wait runs the task.
func (f *flights[V]) do(ctx context.Context, key string, task func() (V, error)) (v V, err error) {
	for {
		f.mu.Lock()
		one, runs := f.at[key]
		if !runs {
			break
		}
		f.mu.Unlock()
		select {
		case <-one.done:
			if one.good {
				return one.v, one.err
			}
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
	one := &flight[V]{done: make(chan struct{})}
	if f.at == nil {
		f.at = make(map[string]*flight[V])
	}
	f.at[key] = one
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.at, key)
		f.mu.Unlock()
		close(one.done)
	}()
	one.v, one.err = task()
	one.good = one.err == nil || ctx.Err() == nil
	return one.v, one.err
}
