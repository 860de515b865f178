package uploads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/store/allotment"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
)

func open(t *testing.T) *Files {
	t.Helper()
	store := ringtest.Alone(t, ringstore.Options{})
	return New(store, time.Now)
}

func TestPieces(t *testing.T) {
	t.Parallel()
	f, ctx := open(t), t.Context()
	read := func() string {
		var b bytes.Buffer
		if err := f.WriteTo(ctx, "web1", "etc/x", &b); err != nil {
			if !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
			return "-"
		}
		return b.String()
	}
	for _, step := range []struct {
		name      string
		loc, size int64
		data      string
		ok        bool
		want      string
	}{
		{"a piece of nothing", 3, 6, "def", false, "-"},
		{"the first", 0, 6, "abc", true, "-"},
		{"a gap", 4, 6, "ef", false, "-"},
		{"the last", 3, 6, "def", true, "abcdef"},
		{"the last again", 3, 6, "def", true, "abcdef"},
		{"anew, the former one stays", 0, 6, "ABC", true, "abcdef"},
		{"the first again", 0, 6, "ABC", true, "abcdef"},
		{"whole again", 3, 6, "DEF", true, "ABCDEF"},
		{"first of three", 0, 9, "abc", true, "ABCDEF"},
		{"second of three", 3, 9, "def", true, "ABCDEF"},
		{"third of three", 6, 9, "ghi", true, "abcdefghi"},
		{"the second again", 3, 9, "def", true, "abcdefghi"},
		{"the third again", 6, 9, "ghi", true, "abcdefghi"},
		{"empty", 0, 0, "", true, ""},
		{"in the middle", 0, 6, "abcdef", true, "abcdef"},
		{"of a piece", 2, 6, "x", false, "abcdef"},
		{"of unknown size", 0, -1, "x", true, "x"},
		{"and more", 1, -1, "y", true, "xy"},
	} {
		ok, err := f.Append(ctx, "web1", "etc/x", step.loc, step.size, []byte(step.data))
		if err != nil || ok != step.ok {
			t.Fatalf("%s: %v %v", step.name, ok, err)
		}
		if got := read(); got != step.want {
			t.Fatalf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
	var list []File
	if _, err := f.List(ctx, func(file File) { list = append(list, file) }); err != nil ||
		len(list) != 1 || list[0].ID != "web1" || list[0].Path != "etc/x" || list[0].Size != 2 {
		t.Fatal(list, err)
	}
	if err := f.Delete(ctx, "web1", "etc/x"); err != nil || read() != "-" {
		t.Fatal(err)
	}
	left := 0
	if _, err := f.store.Scan(ctx, ringstore.SpacePushed, "",
		func(ringstore.Record) error { left++; return nil }); err != nil || left > 0 {
		t.Errorf("%d records are left, %v", left, err)
	}
}

// TestPiecesOfContent reads a file of several pieces from every place, in steps of every length.
func TestPiecesOfContent(t *testing.T) {
	t.Parallel()
	f, ctx := open(t), t.Context()
	const whole = "0123456789abcdefghijklm"
	for loc := 0; loc < len(whole); loc += 5 {
		piece := whole[loc:min(loc+5, len(whole))]
		if ok, err := f.Append(ctx, "web1", "x", int64(loc), int64(len(whole)),
			[]byte(piece)); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	c, err := f.Open(ctx, "web1", "x")
	if err != nil || c.Size() != int64(len(whole)) {
		t.Fatal(c, err)
	}
	for loc := -1; loc <= len(whole)+1; loc++ {
		for n := -1; n <= len(whole)+1; n++ {
			got, err := c.Piece(ctx, int64(loc), n)
			want := ""
			if loc >= 0 && loc < len(whole) && n > 0 {
				want = whole[loc:min(loc+n, len(whole))]
			}
			if err != nil || string(got) != want {
				t.Fatalf("%d bytes at %d: %q, %v, want %q", n, loc, got, err, want)
			}
		}
	}
	before := c.Version()
	if ok, err := f.Append(ctx, "web1", "x", 0, 1, []byte("n")); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := c.Piece(ctx, 0, 1); err == nil {
		t.Error("a content that was pushed anew is still read")
	}
	if c, err = f.Open(ctx, "web1", "x"); err != nil || c.Version() == before {
		t.Error("a new content has the former version", err)
	}
}

// TestCopies also writes whole files to a folder, and removes them with the file. A copy that fails
// does not refuse the file.
func TestCopies(t *testing.T) {
	t.Parallel()
	f, ctx := open(t), t.Context()
	var log bytes.Buffer
	dir := t.TempDir()
	f.CopyTo(dir, slog.New(slog.NewTextHandler(&log, nil)))
	push := func(path string, loc int64, data string) {
		t.Helper()
		if ok, err := f.Append(ctx, "web1", path, loc, 6, []byte(data)); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	full := filepath.Join(dir, "web1", "files", "etc", "x")
	push("etc/x", 0, "abc")
	if _, err := os.Stat(full); err == nil {
		t.Error("half a file is copied")
	}
	push("etc/x", 3, "def")
	if b, err := os.ReadFile(full); err != nil || string(b) != "abcdef" {
		t.Errorf("%q, %v", b, err)
	}
	push("etc/x/y", 0, "abcdef") // a folder where a file lies
	if !strings.Contains(log.String(), "etc/x/y") {
		t.Errorf("log %q", &log)
	}
	if err := f.Delete(ctx, "web1", "etc/x"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(full); err == nil {
		t.Error("the copy of a deleted file stays")
	}
}

func TestReadNothing(t *testing.T) {
	t.Parallel()
	if err := open(t).WriteTo(context.Background(), "web1", "x", &bytes.Buffer{}); !errors.Is(err,
		ErrNotFound) {
		t.Fatal(err)
	}
}

// TestLimits: stored files have a limit per minion and for all minions, however they are pushed.
// Deleting makes room.
func TestLimits(t *testing.T) {
	t.Parallel()
	f, ctx := open(t), t.Context()
	now := time.Unix(1e9, 0)
	f.now = func() time.Time { now = now.Add(time.Minute); return now }
	f.Limit(allotment.Limits{One: 100_000, All: 250_000})
	push := func(id, path string, loc, size int64, n int) error {
		t.Helper()
		ok, err := f.Append(ctx, id, path, loc, size, make([]byte, n))
		if err == nil && !ok {
			t.Fatalf("%s %s at %d: not taken", id, path, loc)
		}
		return err
	}
	stored := func() (bytes int) {
		_, err := f.store.Scan(ctx, ringstore.SpacePushed, "",
			func(r ringstore.Record) error { bytes += len(r.Value); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	for i := range 5 {
		if err := push("a", "same", 0, 40_000, 40_000); err != nil {
			t.Fatalf("the same file %d: %v", i, err)
		}
	}
	if err := push("a", "other", 0, 60_000, 60_000); !errors.Is(err, allotment.ErrOne) {
		t.Errorf("another large file: %v", err)
	}
	if err := push("a", "other", 0, 60_000, 40_000); err != nil {
		t.Errorf("its begin: %v", err)
	}
	for i := range 5 { // the same piece repeatedly
		if err := push("a", "other", 40_000, 60_000, 10_000); err != nil {
			t.Errorf("a piece %d: %v", i, err)
		}
	}
	if err := push("a", "other", 50_000, 60_000, 10_000); !errors.Is(err, allotment.ErrOne) {
		t.Errorf("the next piece: %v", err)
	}
	if n := stored(); n < 90_000 || n > 91_000 {
		t.Errorf("%d bytes are stored of 90,000", n)
	}
	small := 0
	for ; small < 200 && push("b", fmt.Sprint(small), 0, 1, 1) == nil; small++ {
	}
	if small < 50 || small > 100 {
		t.Errorf("%d files of a byte", small)
	}
	if err := push("c", "x", 0, 60_000, 60_000); !errors.Is(err, allotment.ErrAll) {
		t.Errorf("more than all may have: %v", err)
	}
	if err := f.Delete(ctx, "a", "same"); err != nil {
		t.Fatal(err)
	}
	if err := push("c", "x", 0, 60_000, 60_000); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	// Another master counts what this one has stored.
	other := New(f.store, f.now)
	other.Limit(allotment.Limits{One: 100_000})
	if _, err := other.Append(ctx, "c", "y", 0, 50_000, make([]byte, 50_000)); !errors.Is(err,
		allotment.ErrOne) {
		t.Errorf("through another master: %v", err)
	}
}

// TestPiecesAtOnce: pieces of a file sent side by side leave none behind that belongs to no upload.
func TestPiecesAtOnce(t *testing.T) {
	t.Parallel()
	f, ctx := open(t), t.Context()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if _, err := f.Append(ctx, "a", "x", 0, 100, make([]byte, 50)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	records := 0
	if _, err := f.store.Scan(ctx, ringstore.SpacePushed, "",
		func(ringstore.Record) error { records++; return nil }); err != nil || records != 2 {
		t.Errorf("%d records are left of a state and a piece, %v", records, err)
	}
}
