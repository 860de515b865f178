package disk

import (
	"sync"
	"testing"
)

// changes counts what a watcher is told of each record.
type changes struct {
	mu   sync.Mutex
	told map[string]int
}

func (c *changes) Watches(Space) bool { return true }

func (c *changes) Changed(list []Changed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range list {
		c.told[ch.Key.Name]++
	}
}

func (c *changes) Dropped(map[CellID]bool) {}
func (c *changes) Lost()                   {}

// TestRepetitions: a record that arrives once more, from another owner or after a lost answer,
// changes nothing, and no watcher hears of it.
func TestRepetitions(t *testing.T) {
	t.Parallel()
	seen := changes{told: map[string]int{}}
	d, err := Open(t.TempDir(), Options{Watch: &seen})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		version Version
	}{{"n", Version{1, 1}}, {"n", Version{1, 1}}, {"other", Version{1, 1}},
		{"n", Version{1, 1}}, {"n", Version{2, 1}}, {"n", Version{2, 1}}} {
		w := &Write{Epoch: 1, Changes: []Change{{Record: Record{Key: Key{1, "p", c.name},
			Value: []byte("value"), Version: c.version}}}}
		if err := d.Commit(t.Context(), w); err != nil || len(w.Kept) > 0 {
			t.Fatalf("%+v: kept %v, %v", c, w.Kept, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if seen.told["n"] != 2 || seen.told["other"] != 1 {
		t.Errorf("a watcher was told %v", seen.told)
	}
}
