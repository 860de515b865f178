package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/store/seal"
)

func open(t *testing.T, dir string, o Options) *Box {
	t.Helper()
	b, err := Open(dir, o, nil, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b *Box, name string, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := b.Put(name, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
}

func texts(t *testing.T, b *Box, name string) string {
	t.Helper()
	items, err := b.Peek(name, 0, 1000, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, i := range items {
		out = append(out, string(i.Value))
	}
	return strings.Join(out, " ")
}

// TestOrder puts, takes, sets aside, and opens again. Each queue keeps its own items, in order.
func TestOrder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	b := open(t, dir, Options{})
	put(t, b, "one", "a", "b", "c", "d")
	put(t, b, "on", "x")
	items, err := b.Peek("one", 0, 2, 1<<20)
	if err != nil || len(items) != 2 {
		t.Fatalf("%v %v", items, err)
	}
	if err := errors.Join(b.Take("one", items[0]), b.SetAside("one", items[1])); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := texts(t, b, "one") + "|" + texts(t, b, "on"); got != "c d|x" {
			t.Errorf("waits: %s", got)
		}
		if got := texts(t, b, Aside("one")); got != "b" {
			t.Errorf("set aside: %s", got)
		}
		if b.Len("one") != 2 || b.Len("on") != 1 {
			t.Errorf("lengths %d, %d", b.Len("one"), b.Len("on"))
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = open(t, dir, Options{})
	}
	put(t, b, "one", "e")
	if got := texts(t, b, "one"); got != "c d e" {
		t.Errorf("after opening again: %s", got)
	}
	if items, _ := b.Peek("one", 0, 9, 1); len(items) != 1 {
		t.Errorf("%d items where the first alone is too long", len(items))
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Put("one", nil); err == nil {
		t.Error("put into a closed box")
	}
}

// TestBound refuses what is too much and counts it. There is room again once items were taken.
func TestBound(t *testing.T) {
	t.Parallel()
	full := errors.New("disk is full")
	var disk error
	reg := prometheus.NewRegistry()
	b, err := Open(filepath.Join(t.TempDir(), "box"),
		Options{Size: 3 * (10 + perItem), Room: func() error { return disk }}, nil, reg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ten := strings.Repeat("x", 10)
	put(t, b, "q", ten, ten, ten)
	if err := b.Put("q", []byte(ten)); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the size: %v", err)
	}
	items, _ := b.Peek("q", 0, 1, 1<<20)
	if err := b.Take("q", items...); err != nil {
		t.Fatal(err)
	}
	disk = full
	if err := b.Put("q", []byte(ten)); !errors.Is(err, full) {
		t.Errorf("on a full disk: %v", err)
	}
	disk = nil
	put(t, b, "q", ten)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprint(families)
	for _, want := range []string{`name:"clustermaster_returner_refused_total"`,
		`label:{name:"queue" value:"q"} counter:{value:2`} {
		if !strings.Contains(strings.ReplaceAll(shown, "  ", " "), want) {
			t.Errorf("metrics lack %s: %s", want, shown)
		}
	}
}

// TestGiveWay: what waits for a returner that no option names, or was set aside, starves no other.
func TestGiveWay(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "box")
	var disk error
	o := Options{Size: 4 * (10 + perItem), Room: func() error { return disk }}
	ten := strings.Repeat("x", 9)
	b := open(t, dir, o)
	put(t, b, "b", "1"+ten)
	items, err := b.Peek("b", 0, 1, 1<<20)
	if err == nil {
		err = b.SetAside("b", items...)
	}
	put(t, b, "a", "1"+ten, "2"+ten, "3"+ten)
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir, o)
	defer func() { _ = b.Close() }()
	b.Spare("a")
	disk = errors.New("disk is full")
	if err := b.Put("b", []byte("2"+ten)); !errors.Is(err, disk) || b.Len("a") != 3 {
		t.Errorf("%d items of 3 are left for one that was refused: %v", b.Len("a"), err)
	}
	disk = nil
	for i, want := range []string{"2 3|1|2", "3|1|2 3", "|1|2 3 4", "||2 3 4 5", "||2 3 4 5"} {
		err := b.Put("b", fmt.Appendf(nil, "%d%s", i+2, ten))
		if full := i == 4; errors.Is(err, ErrFull) != full || !full && err != nil {
			t.Errorf("item %d: %v", i, err)
		}
		got := texts(t, b, "a") + "|" + texts(t, b, Aside("b")) + "|" + texts(t, b, "b")
		got = strings.ReplaceAll(got, ten, "")
		if got != want {
			t.Errorf("after item %d: %q, want %q", i, got, want)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir, o)
	if b.Len("b") != 4 || len(b.Queues()) != 1 {
		t.Errorf("opened again: %d, %q", b.Len("b"), b.Queues())
	}
}

// TestPowerLoss loses power after each Sync. Everything put before is still there, in order.
// Without the sync to the disk this fails.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	b := open(t, "box", Options{fs: mem})
	defer b.Close()
	var want []string
	for n := range 30 {
		want = append(want, fmt.Sprint("item", n))
		put(t, b, "q", want[n])
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
		after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: n * 3,
			RNG: rand.New(rand.NewPCG(uint64(n), 1))})
		again := open(t, "box", Options{fs: after})
		if got := texts(t, again, "q"); got != strings.Join(want, " ") {
			t.Errorf("after %d items a loss of power leaves %s", n+1, got)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyAtOnce puts from many goroutines. Each finds its own items in its own order.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := open(t, filepath.Join(t.TempDir(), "box"), Options{})
	defer b.Close()
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 20 {
				if err := errors.Join(b.Put("q", fmt.Appendf(nil, "%d-%03d", w, i)),
					b.Sync()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	items, err := b.Peek("q", 0, 1000, 1<<20)
	if err != nil || len(items) != 160 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	last := map[byte][]byte{}
	for _, i := range items {
		if bytes.Compare(last[i.Value[0]], i.Value) >= 0 {
			t.Errorf("%s comes after %s", i.Value, last[i.Value[0]])
		}
		last[i.Value[0]] = i.Value
	}
}

// TestSealed leaves no plain text in the files.
func TestSealed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 40)), 0o400); err != nil {
		t.Fatal(err)
	}
	k, err := seal.Load(t.Context(), "file:"+key, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	box := filepath.Join(dir, "box")
	b := open(t, box, Options{Seal: k})
	put(t, b, "q", "a very secret return")
	if err := errors.Join(b.Sync(), b.Close()); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(box, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("very secret")) {
			t.Errorf("%s can be read", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b = open(t, box, Options{Seal: k})
	defer b.Close()
	if got := texts(t, b, "q"); got != "a very secret return" {
		t.Errorf("read again: %q", got)
	}
}
