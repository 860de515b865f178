package datadisk

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want Size
	}{
		{"", Default},
		{"0", Size{}},
		{"0%", Size{}},
		{"1073741824", Size{Bytes: 1 << 30}},
		{"512M", Size{Bytes: 512 << 20}},
		{"1 g", Size{Bytes: 1 << 30}},
		{"2.5%", Size{Percent: 2.5, Bytes: math.MaxUint64}},
	} {
		if got, err := ParseSize(c.text); err != nil || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"%", "G", "-1", "-1%", "91%", "NaN%", "1X", "1.5G", "much",
		"20000000T", "99999999999999999999"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}

func TestSizeOfDisk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ total, want uint64 }{{64 << 20, 3355443}, {10 << 30, 512 << 20},
		{20 << 30, 1 << 30}, {8 << 40, 1 << 30}} {
		if got := Default.of(c.total); got != c.want {
			t.Errorf("of %d bytes %d are kept, want %d", c.total, got, c.want)
		}
	}
}

func TestRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, err := roomAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	free := r.freeBytes
	half := New(dir, Size{Bytes: free / 2}, slog.New(slog.DiscardHandler), nil)
	for n, fits := range map[int64]bool{0: true, 1: true, int64(free / 4): true,
		int64(free / 4 * 3): false, math.MaxInt64: false} {
		if err := half.Room(n); (err == nil) != fits || err != nil && !errors.Is(err, ErrUnusable) {
			t.Errorf("%d of %d bytes beside a half: %v", n, free, err)
		}
	}
	all := New(dir, Size{Bytes: 1 << 62}, slog.New(slog.DiscardHandler), nil)
	if err := all.Room(1); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "1 bytes") {
		t.Errorf("below the reserve: %v", err)
	}
}

func TestInodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size  Size
		room  room
		lacks uint64 // inodes that should be free; 0: there are enough
	}{
		{Default, room{1 << 40, 1 << 40, 49, 1000}, 50},
		{Default, room{1 << 40, 1 << 40, 50, 1000}, 0},
		{Default, room{1 << 40, 1 << 40, 999, 1 << 30}, 1000},
		{Default, room{1 << 40, 1 << 40, 1000, 1 << 30}, 0},
		{Size{Bytes: 1}, room{1 << 40, 1 << 40, 0, 1000}, 50},
		{Default, room{1 << 40, 1 << 40, 0, 0}, 0}, // btrfs
		{Size{}, room{1 << 40, 1 << 40, 0, 1000}, 0},
	} {
		e := c.size.lack("/x", c.room, 0)
		if (e == nil) != (c.lacks == 0) || e != nil && (!e.Inodes || e.Keep != c.lacks || e.Free != c.room.freeInodes) {
			t.Errorf("%+v of %+v: %v", c.size, c.room, e)
		}
	}
	e := Default.lack("/x", room{0, 1 << 40, 0, 1000}, 0)
	if e == nil || e.Inodes {
		t.Errorf("without space and without inodes: %v", e)
	}
}

func TestLow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := New(dir, Size{}, slog.New(slog.DiscardHandler), nil).Usable(); err != nil {
		t.Errorf("without a reserve: %v", err)
	}
	r := New(dir, Size{Bytes: 1 << 62}, slog.New(slog.DiscardHandler), nil)
	err := r.Usable()
	if !errors.Is(err, ErrUnusable) || !strings.HasPrefix(err.Error(), "disk: ") ||
		!strings.Contains(err.Error(), "disk_reserve") {
		t.Errorf("below the reserve: %v", err)
	}
	if err := r.Refuse("backup", dir); !errors.Is(err, ErrUnusable) {
		t.Errorf("a backup below the reserve: %v", err)
	}
}
