package disk

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Whatever order copies meet in, they end with the same record.
func TestMergeIsATotalOrder(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	type copy struct {
		flags uint8
		v     Version
	}
	for range 2000 {
		set := make([]copy, 2+rnd.IntN(6))
		for i := range set {
			set[i] = copy{[]uint8{0, FlagFirst, FlagDeleted, FlagFirst | FlagExact}[rnd.IntN(4)],
				Version{uint64(rnd.IntN(5)), uint64(i)}}
		}
		var want copy
		for round := range 10 {
			rnd.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
			best := set[0]
			for _, c := range slices.Concat(set, set) {
				if Wins(c.flags, c.v, best.flags, best.v) {
					best = c
				}
			}
			if round > 0 && best != want {
				t.Fatalf("%v: %v, then %v", set, want, best)
			}
			want = best
		}
		for _, c := range set {
			if Wins(c.flags, c.v, c.flags, c.v) {
				t.Fatalf("%v wins against itself", c)
			}
		}
	}
}

func TestMergeRules(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		a, b   uint8
		av, bv uint64
		aWins  bool
	}{
		{"later write", 0, 0, 2, 1, true},
		{"earlier write", 0, 0, 1, 2, false},
		{"earlier first", FlagFirst, FlagFirst, 1, 2, true},
		{"later first", FlagFirst, FlagFirst, 2, 1, false},
		{"tombstone over an earlier write", FlagDeleted, 0, 2, 1, true},
		{"write over an earlier tombstone", 0, FlagDeleted, 2, 1, true},
		{"tombstone over a first, however old", FlagDeleted, FlagFirst, 1, 2, true},
		{"first over a tombstone", FlagFirst, FlagDeleted, 2, 1, false},
	} {
		if got := Wins(tc.a, Version{Clock: tc.av}, tc.b, Version{Clock: tc.bv}); got != tc.aWins {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.aWins)
		}
	}
}

func TestBucketEndIsNotBeforeTheExpiry(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		expires int64
		width   time.Duration
		want    uint64
	}{
		{0, time.Hour, never}, {1, time.Hour, 3600}, {3600, time.Hour, 3600},
		{3601, time.Hour, 7200}, {5, 0, 5}, {1700000001, time.Second, 1700000001},
	} {
		if got := bucketEnd(tc.expires, tc.width); got != tc.want {
			t.Errorf("bucketEnd(%d, %v) = %d, want %d", tc.expires, tc.width, got, tc.want)
		}
	}
}

func TestClockFollowsOthersButNotFar(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	c := NewClock(func() time.Time { return now })
	a, b := c.Next(), c.Next()
	if a >= b {
		t.Fatalf("%d then %d", a, b)
	}
	near := reading(now.Add(time.Minute))
	c.Observe(near)
	if got := c.Next(); got <= near {
		t.Errorf("after %d comes %d", near, got)
	}
	c.Observe(reading(now.Add(time.Hour)))
	if got := c.Next(); got > near+10 {
		t.Errorf("a clock an hour ahead pulled ours to %d", got)
	}
}

func TestClockGoesBackWithTheWallClock(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	c := NewClock(func() time.Time { return now })
	now = now.Add(10 * time.Hour)
	wrong := c.Next()
	now = now.Add(-time.Minute)
	if got := c.Next(); got <= wrong {
		t.Errorf("set back by a minute, %d comes after %d", got, wrong)
	}
	now = now.Add(time.Minute - 10*time.Hour)
	if got, most := c.Next(), reading(now.Add(maxDrift)); got > most {
		t.Errorf("the clock is right again, and reads %d, more than %d", got, most)
	}
	now = now.Add(10 * time.Hour)
	c.Next()
	now = now.Add(-10 * time.Hour)
	seen := reading(now.Add(time.Second))
	c.Observe(seen)
	if got := c.Next(); got <= seen || got > reading(now.Add(maxDrift)) {
		t.Errorf("the clock is right again and has seen %d, and reads %d", seen, got)
	}
}

func FuzzRecordKey(f *testing.F) {
	f.Add([]byte("20261121093335299638"), []byte("r/web1"), uint64(7200), uint16(12))
	f.Add([]byte{0, 255}, []byte{}, never, uint16(65535))
	f.Fuzz(func(t *testing.T, place, name []byte, bucket uint64, partition uint16) {
		k := Key{1, string(place), string(name)}
		if len(place) > math.MaxUint16 {
			return
		}
		b := appendRecordKey(nil, bucket, k, int(partition))
		got, p, bk, err := parseRecordKey(b)
		if err != nil || got != k || p != int(partition) || bk != bucket {
			t.Fatalf("%+v %d %d %v, want %+v %d %d", got, p, bk, err, k, partition, bucket)
		}
		node, got, p, err := parseHintKey(hintKey("m1/a", k, int(partition)))
		if err != nil || node != "m1/a" || got != k || p != int(partition) {
			t.Fatalf("hint: %s %+v %d %v", node, got, p, err)
		}
		// And any bytes at all: no panic.
		parseRecordKey(place)
		parseHintKey(name)
		parseTail(place)
		parseHeader(name)
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(uint8(3), uint64(1), uint64(2), int64(3), []byte("x"))
	f.Fuzz(func(t *testing.T, flags uint8, clock, node uint64, expires int64, value []byte) {
		h := header{flags, Version{clock, node}, expires}
		b := append(h.append(nil), value...)
		got, err := parseHeader(b)
		if err != nil || got != h || !bytes.Equal(b[headerLen:], value) {
			t.Fatalf("%+v %v, want %+v", got, err, h)
		}
	})
}

func TestAfter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{{"a", "b"}, {"a\xff", "b"}, {"\xff\xff", ""},
		{"", ""}} {
		if got := string(after([]byte(tc.in))); got != tc.want {
			t.Errorf("after(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
}
