package ringstore

import (
	"fmt"
	"testing"
	"time"
)

// TestWritesFollowThoseOfAFastClock writes records with a clock that is ahead, and then with the
// right one.
func TestWritesFollowThoseOfAFastClock(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := ctxFor(t)
	k.settled()
	for i, ahead := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		key := Key{Space: SpaceMinions, Place: fmt.Sprintf("web%d", i), Name: "grains"}
		k.now.add(ahead)
		if err := k.store("m1/a").Put(ctx, key, []byte("tomorrow"), time.Time{}); err != nil {
			t.Fatal(err)
		}
		k.now.add(-ahead)
		k.node("m2/b").kill()
		k.start("m2/b") // knows nothing of the fast clock
		k.settled()
		for n, name := range []string{"m2/b", "m3/c", "m2/b"} {
			value := fmt.Sprintf("%d of today", n)
			if err := k.store(name).Put(ctx, key, []byte(value), time.Time{}); err != nil {
				t.Fatalf("%v ahead: write %d: %v", ahead, n, err)
			}
			for _, reader := range []string{"m1/a", "m2/b", "m3/c"} {
				if got, found, err := k.store(reader).Get(ctx, key); err != nil || !found ||
					string(got.Value) != value {
					t.Errorf("%v ahead: %s reads %q, %t, %v; want %q", ahead, reader, got.Value,
						found, err, value)
				}
			}
		}
		if err := k.store("m2/b").Delete(ctx, key.Space, key.Place, key.Name); err != nil {
			t.Errorf("%v ahead: delete: %v", ahead, err)
		}
		if _, found, err := k.store("m3/c").Get(ctx, key); found || err != nil {
			t.Errorf("%v ahead: deleted, and found: %t, %v", ahead, found, err)
		}
	}
}
