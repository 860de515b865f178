package gitfs

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"testing"
)

// TestSums writes twice as many hashes as the table has places: what it returns is right, it
// returns nearly all of half as many, and it does not grow.
func TestSums(t *testing.T) {
	s := sums{width: 4}
	idOf := func(i int) string {
		id := sha1.Sum(fmt.Append(nil, i))
		return hex.EncodeToString(id[:])
	}
	sumOf := func(i int) string { return fmt.Sprintf("%04x", i%(1<<16)) }
	count := func(n int) (found int) {
		for i := range n {
			sum, ok := s.get(idOf(i))
			if ok && string(sum) != sumOf(i) {
				t.Fatalf("%d: got %q, want %q", i, sum, sumOf(i))
			}
			if ok {
				found++
			}
		}
		return found
	}
	if count(10) != 0 {
		t.Error("an empty table has hashes")
	}
	for i := range sumPlaces / 2 {
		s.put(idOf(i), []byte(sumOf(i)))
	}
	if n := count(sumPlaces / 2); n < sumPlaces/2*999/1000 {
		t.Errorf("%d of %d hashes are found, want nearly all", n, sumPlaces/2)
	}
	for i := range 2 * sumPlaces {
		s.put(idOf(i), []byte(sumOf(i)))
	}
	if n := count(2 * sumPlaces); n < sumPlaces*9/10 || n > sumPlaces {
		t.Errorf("%d hashes are found, want nearly %d", n, sumPlaces)
	}
	if want := sumPlaces * (idBytes + s.width); len(s.table) != want {
		t.Errorf("the table has %d bytes, want %d", len(s.table), want)
	}
	for _, id := range []string{"", "xy", hex.EncodeToString(make([]byte, idBytes)), "0" + idOf(1)} {
		s.put(id, []byte("none"))
		if sum, ok := s.get(id); ok {
			t.Errorf("%q: got %q, want nothing", id, sum)
		}
	}
	s.clear()
	if count(10) != 0 || s.table != nil {
		t.Error("a cleared table has hashes")
	}
}
