package disk

import (
	"context"
	"errors"
	"testing"
)

// Who gives up waiting for the committer shares nothing with it any more. The race detector sees
// what is wrong here.
func TestGivenUpOrders(t *testing.T) {
	t.Parallel()
	d, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(1); err != nil {
		t.Fatal(err)
	}
	w := &Write{Epoch: 1, Changes: []Change{{Record: Record{Key: Key{1, "p", "n"},
		Value: []byte("value"), Version: Version{1, 1}}}}}
	if err := d.Commit(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	given, stop := context.WithCancel(t.Context())
	stop()
	for n := range 200 {
		_, err := d.dropCells(given, nil, 1)
		_, mended := d.mendCell(given, CellID{}, cell{}, cell{})
		_, refilled := d.EndRefill(given, func() bool { return true })
		for _, err := range []error{err, mended, refilled} {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("%d: %v", n, err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
