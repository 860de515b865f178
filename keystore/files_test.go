package keystore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/keystore"
)

var small = keystore.MmapLayout{Slots: 61}

var stateNames = map[string]keystore.State{
	"accepted": keystore.Accepted, "pending": keystore.Pending, "rejected": keystore.Rejected,
	"denied": keystore.Denied,
}

func lines(keys []keystore.Key) string {
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%s %s %q", k.State, k.ID, k.Pub))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func wanted(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "want.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want []struct{ ID, State, Pub string }
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	var keys []keystore.Key
	for _, w := range want {
		keys = append(keys, keystore.Key{ID: w.ID, State: stateNames[w.State], Pub: w.Pub})
	}
	return lines(keys)
}

// TestReadWhatSaltWrote reads both forms as the library of Salt 3008.3 wrote them
// (testdata/vectors.py).
func TestReadWhatSaltWrote(t *testing.T) {
	t.Parallel()
	keys, err := keystore.ReadMmap("testdata/mmap", small)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := lines(keys), wanted(t, "testdata/mmap"); got != want {
		t.Errorf("mmap_key: got\n%s\nwant\n%s", got, want)
	}
	keys, err = keystore.ReadDir("testdata/localfs")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := lines(keys), wanted(t, "testdata/localfs"); got != want {
		t.Errorf("localfs_key: got\n%s\nwant\n%s", got, want)
	}
}

// TestWriteMmapAsSaltDoes compares with a table that Salt's library filled in the same order.
func TestWriteMmapAsSaltDoes(t *testing.T) {
	t.Parallel()
	keys, err := keystore.ReadMmap("testdata/mmap-fresh", small)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(keys, func(a, b keystore.Key) int { return strings.Compare(a.ID, b.ID) })
	dir := t.TempDir()
	if err := keystore.WriteMmap(dir, small, keys); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".mmap_keys.idx", ".mmap_keys.idx.heap", ".mmap_keys.idx.roster",
		".mmap_denied.idx", ".mmap_denied.idx.heap", ".mmap_denied.idx.roster"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata/mmap-fresh", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from what Salt writes", name)
		}
	}
	back, err := keystore.ReadMmap(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	if lines(back) != lines(keys) {
		t.Error("read back differs")
	}
	// The default layout, a sparse file of 96 MB, and writing over existing records.
	if err := keystore.WriteMmap(dir, keystore.MmapLayout{}, keys[:10]); err != nil {
		t.Fatal(err)
	}
	back, err = keystore.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if lines(back) != lines(keys[:10]) {
		t.Error("read back in the default layout differs")
	}
}

func TestReadDirRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(folder, id, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, folder, id), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("minions", "both", "ACCEPTED")
	put("minions_rejected", "both", "REJECTED")
	put("minions", ".key_cache", "x")
	put("minions", "crlf", "A\r\nB\r\n")
	put("minions_denied", "both", "DENIED")
	put("elsewhere", "secret", "SECRET")
	if err := os.Symlink(filepath.Join(dir, "elsewhere", "secret"),
		filepath.Join(dir, "minions", "link")); err != nil {
		t.Fatal(err)
	}
	keys, err := keystore.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := "minions crlf \"A\\nB\"\nminions_denied both \"DENIED\"\nminions_rejected both \"REJECTED\""
	if got := lines(keys); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	put("minions", "huge", strings.Repeat("x", 70<<10))
	if _, err := keystore.ReadDir(dir); err == nil ||
		!strings.Contains(err.Error(), "more than 65536 bytes") {
		t.Errorf("a huge file: %v", err)
	}
	if keys, err := keystore.ReadDir(filepath.Join(dir, "absent")); err != nil || len(keys) != 0 {
		t.Errorf("an absent directory: %v %v", keys, err)
	}
}

func TestMmapRefusesDamage(t *testing.T) {
	t.Parallel()
	key := []keystore.Key{{ID: "web1", State: keystore.Accepted, Pub: "PUB",
		Since: time.Unix(1, 0)}}
	damage := func(name string, at int64, b byte) error {
		dir := t.TempDir()
		if err := keystore.WriteMmap(dir, small, key); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte{b}, at); err != nil {
			t.Fatal(err)
		}
		_, err = keystore.ReadMmap(dir, small)
		return err
	}
	if err := damage(".mmap_keys.idx.heap", 10, 'x'); err == nil ||
		!strings.Contains(err.Error(), "wrong checksum") {
		t.Errorf("heap: %v", err)
	}
	if err := damage(".mmap_keys.idx", 0, 'x'); err == nil ||
		!strings.Contains(err.Error(), "magic") {
		t.Errorf("header: %v", err)
	}
	if err := damage(".mmap_keys.idx", 61*96, 'x'); err == nil ||
		!strings.Contains(err.Error(), "cut off") {
		t.Errorf("size: %v", err)
	}
	if err := keystore.WriteMmap(t.TempDir(), small,
		[]keystore.Key{{ID: strings.Repeat("x", 65), State: keystore.Accepted}}); err == nil {
		t.Error("an id that does not fit was written")
	}
}

// TestWriteDir: the folders have just the given keys, whatever was there; mmap_key's files too, if
// there are some.
func TestWriteDir(t *testing.T) {
	t.Parallel()
	const a = "-----BEGIN PUBLIC KEY-----\nA\n-----END PUBLIC KEY-----"
	const b = "-----BEGIN PUBLIC KEY-----\nB\n-----END PUBLIC KEY-----"
	for _, mmap := range []bool{false, true} {
		dir := t.TempDir()
		if err := keystore.WriteDir(dir, []keystore.Key{{ID: "gone", State: keystore.Accepted, Pub: a},
			{ID: "moved", State: keystore.Pending, Pub: a}}); err != nil {
			t.Fatal(err)
		}
		if mmap {
			if err := keystore.WriteMmap(dir, keystore.MmapLayout{},
				[]keystore.Key{{ID: "gone", State: keystore.Accepted, Pub: a}}); err != nil {
				t.Fatal(err)
			}
		}
		want := []keystore.Key{{ID: "moved", State: keystore.Accepted, Pub: a},
			{ID: "no", State: keystore.Rejected, Pub: b},
			{ID: "no", State: keystore.Denied, Pub: a}}
		for range 2 {
			if err := keystore.WriteDir(dir, want); err != nil {
				t.Fatal(err)
			}
		}
		keys, err := keystore.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]string)
		for _, k := range keys {
			got[k.State.String()+"/"+k.ID] = k.Pub
		}
		for _, k := range want {
			name := k.State.String() + "/" + k.ID
			if got[name] != k.Pub {
				t.Errorf("mmap %t: %s is %q", mmap, name, got[name])
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("mmap %t: left over %v", mmap, got)
		}
	}
	outside := []keystore.Key{{ID: "../out", State: keystore.Accepted, Pub: a}}
	if err := keystore.WriteDir(t.TempDir(), outside); err == nil {
		t.Error("a name that leads outside was written")
	}
}
