package minion

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// A connection that waits costs one goroutine with the smallest stack there is, whatever it did
// before. It is not parallel to other tests, for it counts what the process has.
func TestIdleConnectionIsSmall(t *testing.T) {
	const n = 300
	s, requests, _ := startRequests(t, echo, Limits{})
	p, publications, _ := startPub(t, Limits{}, false)
	measure := func() (stacks int64, goroutines int) {
		debug.FreeOSMemory() // stacks of goroutines that ended are freed
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.StackInuse), runtime.NumGoroutine()
	}
	stacks, goroutines := measure()
	var subs []*raw
	for range n {
		r := dialRaw(t, requests).greet("REQ", "", 1)
		r.request(payloadOf(100))
		r.message()
		subs = append(subs, dialSub(t, publications, ""))
	}
	eventually(t, "subscribed", subscribers(p, n))
	p.Publish(publication(1))
	for _, r := range subs {
		r.message()
	}
	eventually(t, "small", func() bool {
		more, count := measure()
		return more-stacks <= 2*n*idleStack*5/4 && count-goroutines <= 2*n+4
	})
	for _, e := range []*endpoint{s.endpoint, p.endpoint} {
		e.mu.Lock()
		if len(e.links) != n {
			t.Errorf("%d connections", len(e.links))
		}
		e.mu.Unlock()
	}
}
