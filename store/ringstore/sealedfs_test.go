package ringstore

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"clustermaster/store/ringstore/diskfs"
	"clustermaster/store/seal"
)

func sealKey(t *testing.T) *seal.Key {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat("k", 40)), 0o400); err != nil {
		t.Fatal(err)
	}
	k, err := seal.Load(t.Context(), "file:"+path, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestSealedFilesReadAsWritten writes in pieces of any size and reads at any place.
func TestSealedFilesReadAsWritten(t *testing.T) {
	t.Parallel()
	files := diskfs.Sealed{FS: vfs.Default, Key: sealKey(t)}
	path := filepath.Join(t.TempDir(), "f")
	f, err := files.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 10_000)
	for i := range text {
		text[i] = byte(rand.Uint32())
	}
	for rest := bytes.Clone(text); len(rest) > 0; {
		n := min(len(rest), 1+rand.IntN(700))
		if _, err := f.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = files.Open(path); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 200 {
		from := rand.IntN(len(text))
		p := make([]byte, 1+rand.IntN(len(text)-from))
		if _, err := f.ReadAt(p, int64(from)); err != nil ||
			!bytes.Equal(p, text[from:from+len(p)]) {
			t.Fatalf("%d bytes at %d differ, %v", len(p), from, err)
		}
	}
	if all, err := io.ReadAll(f); err != nil || !bytes.Equal(all, text) {
		t.Errorf("%d bytes, %v", len(all), err)
	}
	if st, err := files.Stat(path); err != nil || st.Size() != int64(len(text)) {
		t.Errorf("size %d, %v", st.Size(), err)
	}
}

// TestSealedStore opens a store again, looks for its records in all files, and refuses the files
// without the key.
func TestSealedStore(t *testing.T) {
	t.Parallel()
	dir, key := filepath.Join(t.TempDir(), "ring"), sealKey(t)
	open := func(k *seal.Key) (*pebble.DB, error) {
		files := vfs.Default
		if k != nil {
			files = diskfs.Sealed{FS: files, Key: k}
		}
		return pebble.Open(dir, &pebble.Options{FS: files, Logger: quietLog{}})
	}
	for round := range 3 {
		db, err := open(key)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			name := fmt.Sprintf("name-%d-%d", round, i)
			if err := db.Set([]byte(name), []byte(strings.Repeat("password of "+name, 40)),
				pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
		if round == 1 { // tables beside the log
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		for r := range round + 1 {
			v, c, err := db.Get(fmt.Appendf(nil, "name-%d-7", r))
			if err != nil || !bytes.HasPrefix(v, []byte("password of")) {
				t.Fatalf("round %d: %q, %v", round, v, err)
			}
			c.Close()
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		n++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte("password of")) || bytes.Contains(b, []byte("name-0-7")) {
			t.Errorf("%s is open", path)
		}
		return err
	})
	if err != nil || n < 4 {
		t.Errorf("%d files, %v", n, err)
	}
	if db, err := open(nil); err == nil {
		db.Close()
		t.Error("the files open without the key")
	}
}

type quietLog struct{}

func (quietLog) Infof(string, ...any)  {}
func (quietLog) Errorf(string, ...any) {}
func (quietLog) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// TestSealNeedsNewStore: a key for a store that lies open on the disk is refused; the store stays.
func TestSealNeedsNewStore(t *testing.T) {
	t.Parallel()
	dir, key := filepath.Join(t.TempDir(), "ring"), sealKey(t)
	begin := func(k *seal.Key) error {
		s, err := Open(dir, newAlone(), Options{Seal: k}, nil, nil)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	if err := begin(nil); err != nil {
		t.Fatal(err)
	}
	if err := begin(key); err == nil || !strings.Contains(err.Error(), "is not sealed") {
		t.Errorf("with a key: %v", err)
	}
	if err := begin(nil); err != nil {
		t.Errorf("without it again: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := begin(key); err != nil {
			t.Fatalf("a new store: %v", err)
		}
	}
}
