package statesync

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/transport/pace"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var none *progress
		none.setTotals(1, 1)
		none.add(1, 1)
		if none.snapshot() != (Progress{}) {
			t.Error("nil counts")
		}
		p := &progress{}
		p.add(10, 0) // the manifest
		p.setTotals(1000, 4)
		<-time.After(2 * time.Second)
		p.add(200, 1)
		now := p.snapshot()
		if now != (Progress{Bytes: 200, BytesTotal: 1000, Items: 1, ItemsTotal: 4, Rate: 100}) ||
			now.ETA() != 8*time.Second {
			t.Errorf("%+v, %v", now, now.ETA())
		}
		if (Progress{Bytes: 1, BytesTotal: 9}).ETA() != 0 {
			t.Error("an ETA without a rate")
		}
	})
}

// More masters fetch than are served at a time; the progress of each is told.
func TestManyReceivers(t *testing.T) {
	t.Parallel()
	c := newCompany(t, maxSends+3).settled()
	a := c.boxes[0]
	want := tree{}
	for i := range 20 {
		want[fmt.Sprintf("f%d", i)] = "644 " + strings.Repeat(string(rune('a'+i)), 400_000)
	}
	want.write(t, a.file)
	a.rate = pace.NewThrottle(40 << 20)
	var mu sync.Mutex
	seen := map[string]Progress{}
	r, err := a.Sync(t.Context(), Request{Trees: []Tree{FileRoots}},
		func(tree Tree, node string, p Progress) {
			mu.Lock()
			defer mu.Unlock()
			seen[node] = p
		})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.boxes[1:] {
		expect(t, b.node, b.file, want)
		if rep := r[0].of(t, b.opts.ID); rep.Added != 20 || rep.Error != "" {
			t.Errorf("%s: %s", b.node, counts(rep))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	told := 0
	for _, p := range seen {
		if p.BytesTotal == 8_000_000 {
			told++
		}
	}
	if told == 0 {
		t.Errorf("no progress was told: %v", seen)
	}
}
