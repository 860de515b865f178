package cache

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"clustermaster/store/miniondata"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
	"clustermaster/value"
)

func open(t *testing.T) (*Cache, *miniondata.Data) {
	t.Helper()
	store := ringtest.Alone(t, ringstore.Options{})
	data := miniondata.New(store, nil)
	return New(store, data, nil), data
}

func list(t *testing.T, c *Cache, bank string) string {
	t.Helper()
	names, incomplete, err := c.List(t.Context(), bank)
	if err != nil || incomplete != "" {
		t.Fatalf("list %q: %q %v", bank, incomplete, err)
	}
	return strings.Join(names, " ")
}

// TestTree: banks, keys and banks in banks, in the forms in which a path can be written.
func TestTree(t *testing.T) {
	t.Parallel()
	c, _ := open(t)
	ctx := t.Context()
	for _, s := range []struct{ bank, key, value string }{
		{"a", "k", "1"}, {"a/b", "k", "2"}, {"/a//b/../b/c/", "k", "3"}, {"a", "b", "4"},
		{"a", "b/d", "5"}, {"", "top", "6"}, {".", "top2", "7"}, {"ab", "x", "8"}, {"a", "k", "9"},
	} {
		if err := c.Store(ctx, s.bank, s.key, s.value); err != nil {
			t.Fatal(s, err)
		}
	}
	for _, f := range []struct{ bank, key, want string }{
		{"a", "k", "9"}, {"a/b", "k", "2"}, {"a/b/c", "k", "3"}, {"a", "b/c/k", "3"},
		{"a", "b", "4"}, {"a/b", "d", "5"}, {"/", "top", "6"}, {"x/..", "top2", "7"},
		{"a", "nosuch", ""}, {"nosuch", "k", ""}, {"", "nosuch", ""}, {"a/b/c", "d", ""},
	} {
		v, found, err := c.Fetch(ctx, f.bank, f.key)
		if got, _ := v.(string); err != nil || found != (f.want != "") || got != f.want {
			t.Errorf("fetch %q %q: %v %v %v", f.bank, f.key, v, found, err)
		}
	}
	for bank, want := range map[string]string{"": "a ab top top2", "a": "b b k", "a/b": "c d k",
		"a/b/c": "k", "b": "", "/ab/": "x"} {
		if got := list(t, c, bank); got != want {
			t.Errorf("list %q: %q, want %q", bank, got, want)
		}
	}
	for _, f := range []struct {
		bank, key string // no key: the whole bank
		want      bool
		left      string // of bank a
	}{
		{"a", "b", true, "b k"}, {"a", "b", false, "b k"}, {"a/b", "nosuch", false, "b k"},
		{"a/b", "k", true, "b k"}, {"a/b", "", true, "k"}, {"a/b", "", false, "k"},
		{"nosuch", "", false, "k"}, {"/a/", "", true, ""},
	} {
		flush := func() (bool, error) { return c.Flush(ctx, f.bank, f.key) }
		if f.key == "" {
			flush = func() (bool, error) { return c.FlushBank(ctx, f.bank) }
		}
		if ok, err := flush(); err != nil || ok != f.want {
			t.Errorf("flush %q %q: %v %v", f.bank, f.key, ok, err)
		}
		if got := list(t, c, "a"); got != f.left {
			t.Errorf("after flush %q %q: %q, want %q", f.bank, f.key, got, f.left)
		}
	}
	if got := list(t, c, ""); got != "ab top top2" {
		t.Errorf("left: %q", got)
	}
}

// TestLargeBanks: what is more than one answer can hold is listed and flushed.
func TestLargeBanks(t *testing.T) {
	t.Parallel()
	store := ringtest.Alone(t, ringstore.Options{MaxList: 1 << 10})
	data := miniondata.New(store, nil)
	c, ctx := New(store, data, nil), t.Context()
	large := value.Map{{Key: "f", Value: strings.Repeat("x", 800)}}
	for _, k := range [][2]string{{"a", "1"}, {"a", "2"}, {"pillar", "web1"}, {"pillar", "web1:dev"},
		{"grains", "web1"}} {
		if err := c.Store(ctx, k[0], k[1], large); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(t, c, "a"); got != "1 2" {
		t.Errorf("listed: %q", got)
	}
	if ok, err := c.FlushBank(ctx, "a"); !ok || err != nil {
		t.Error(ok, err)
	}
	if err := data.Drop(ctx, "web1", false); err != nil {
		t.Error(err)
	}
	if got := list(t, c, ""); got != "" {
		t.Errorf("left: %q", got)
	}
}

// TestPathsStayInside: no bank or key means anything outside, or the whole.
func TestPathsStayInside(t *testing.T) {
	t.Parallel()
	c, _ := open(t)
	ctx := t.Context()
	for _, p := range []struct{ bank, key string }{
		{"..", "k"}, {"../a", "k"}, {"a/../..", "k"}, {"a", "../../k"}, {"a", ".."}, {"", ".."},
		{"a", "."}, {"", "."}, {"a", ""}, {"a/b", "../../../etc/passwd"},
	} {
		err := c.Store(ctx, p.bank, p.key, 1)
		_, _, fetched := c.Fetch(ctx, p.bank, p.key)
		_, flushed := c.Flush(ctx, p.bank, p.key)
		for _, err := range []error{err, fetched, flushed} {
			if !errors.Is(err, ErrOutside) && !errors.Is(err, ErrNoKey) {
				t.Errorf("%q %q: %v", p.bank, p.key, err)
			}
		}
	}
	if _, _, err := c.List(ctx, "../x"); !errors.Is(err, ErrOutside) {
		t.Error(err)
	}
	for _, bank := range []string{"", "/", ".", "a/.."} {
		if _, err := c.FlushBank(ctx, bank); !errors.Is(err, ErrNoBank) {
			t.Errorf("flush of %q: %v", bank, err)
		}
	}
	for _, p := range []struct{ bank, key string }{{strings.Repeat("b", ringstore.MaxPlace+1), "k"},
		{"b", strings.Repeat("k", ringstore.MaxName+1)}} {
		if err := c.Store(ctx, p.bank, p.key, 1); !errors.Is(err, ringstore.ErrTooLarge) {
			t.Errorf("a path of %d bytes: %v", len(p.bank)+len(p.key), err)
		}
	}
}

// TestKeyOfAMap: a bank that is the key of a map is asked for what the map has.
func TestKeyOfAMap(t *testing.T) {
	t.Parallel()
	c, _ := open(t)
	if err := c.Store(t.Context(), "a", "m", value.Map{{Key: "x", Value: int64(1)}}); err != nil {
		t.Fatal(err)
	}
	if v, found, err := c.Fetch(t.Context(), "a/m", "x"); v != int64(1) || !found || err != nil {
		t.Error(v, found, err)
	}
	if _, found, err := c.Fetch(t.Context(), "a/m", "y"); err == nil || found {
		t.Error("no error of a key that the map lacks")
	}
}

// TestMinionBanks: grains, pillar and mine are what the masters keep of minions.
func TestMinionBanks(t *testing.T) {
	t.Parallel()
	c, data := open(t)
	ctx := context.Background()
	grains := value.Map{{Key: "os", Value: "Debian"}}
	for _, s := range []struct {
		bank, key string
		value     any
	}{{"grains", "web1", grains}, {"pillar", "web1", grains}, {"pillar", "web1:dev",
		grains}, {"mine", "web1", value.Map{{Key: "f", Value: "v"}, {Key: "g", Value: "w"}}},
		{"mine", "web2", grains}} {
		if err := c.Store(ctx, s.bank, s.key, s.value); err != nil {
			t.Fatal(err)
		}
	}
	if got, found, err := data.PillarOf(ctx, "web1", "dev"); err != nil || !found ||
		!reflect.DeepEqual(got, grains) {
		t.Error(got, found, err)
	}
	if err := data.SetGrains(ctx, "web9", value.Raw("\x81\xa1a\x01")); err != nil {
		t.Fatal(err)
	}
	for bank, want := range map[string]string{"": "grains mine pillar", "grains": "web1 web9",
		"pillar": "web1 web1:dev", "mine": "web1 web2", "grains/web1": ""} {
		if got := list(t, c, bank); got != want {
			t.Errorf("list %q: %q, want %q", bank, got, want)
		}
	}
	if v, found, err := c.Fetch(ctx, "mine/web1", "g"); v != "w" || !found || err != nil {
		t.Error(v, found, err)
	}
	for _, bad := range []struct {
		bank, key string
		value     any
	}{{"grains", "web1", "text"}, {"grains", "web/1", grains}, {"mine/x", "y", grains}, {"pillar",
		":dev", grains}} {
		if err := c.Store(ctx, bad.bank, bad.key, bad.value); err == nil {
			t.Errorf("%v was stored", bad)
		}
	}
	// An id may have colons; Salt's file of one is taken in as its own, and leads to no other.
	const addr = "2001:db8::1"
	fill := []error{data.SetPillar(ctx, addr, "", grains), data.SetPillar(ctx, addr, "dev", grains),
		data.SetPillar(ctx, "2001", "db8", grains),
		data.SetGrains(ctx, addr, value.Raw("\x81\xa1a\x01"))}
	if err := errors.Join(fill...); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{addr, addr + ":dev", "2001:db8"} {
		if v, found, err := c.Fetch(ctx, "pillar", key); !found || err != nil ||
			!reflect.DeepEqual(v, grains) {
			t.Errorf("pillar of %s: %v %v %v", key, v, found, err)
		}
	}
	for _, perBank := range []bool{false, true} {
		dir := t.TempDir()
		again, taken := open(t)
		_, failed, _, err := c.Export(ctx, dir, perBank)
		if err == nil && failed == 0 {
			_, failed, err = again.Migrate(ctx, dir, "", false)
		}
		_, found, missing := taken.PillarOf(ctx, addr, "")
		if err := errors.Join(err, missing); err != nil || failed > 0 || !found {
			t.Errorf("per bank %t: %v, %d failed, found %t", perBank, err, failed, found)
		}
	}
	if ok, err := c.Flush(ctx, "pillar", addr); !ok || err != nil ||
		list(t, c, "pillar") != "2001:db8 web1 web1:dev" {
		t.Error(ok, err, list(t, c, "pillar"))
	}
	if ok, err := c.FlushBank(ctx, "pillar"); !ok || err != nil || list(t, c, "pillar") != "" {
		t.Error(ok, err, list(t, c, "pillar"))
	}
	if err := c.Store(ctx, "pillar", "web1", grains); err != nil {
		t.Fatal(err)
	}
	if ok, err := c.Flush(ctx, "pillar", "web1"); !ok || err != nil || list(t, c, "pillar") != "" {
		t.Error(ok, err, list(t, c, "pillar"))
	}
	if ok, err := c.FlushBank(ctx, "grains"); !ok || err != nil || list(t, c, "grains") != "" ||
		list(t, c, "mine") != "web1 web2" {
		t.Error(ok, err, list(t, c, ""))
	}
	if ok, err := c.FlushBank(ctx, "grains"); ok || err != nil {
		t.Error(ok, err)
	}
}

// TestMigrate takes in a cachedir as Salt leaves it.
func TestMigrate(t *testing.T) {
	t.Parallel()
	c, data := open(t)
	ctx := t.Context()
	dir := t.TempDir()
	write := func(name string, val any) {
		b, raw := val.([]byte)
		if !raw {
			var err error
			if b, err = value.Pack(val); err != nil {
				t.Fatal(err)
			}
		}
		full := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700),
			os.WriteFile(full, b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	old := value.Map{{Key: "os", Value: "old"}}
	write("grains/web1.p", old)
	write("grains/web2.p", old)
	write("pillar/web1:dev.p", old)
	write("mine/web1.p", value.Map{{Key: "f", Value: "v"}})
	write("minions/web3/data.p", value.Map{{Key: "grains", Value: old},
		{Key: "pillar", Value: old}})
	write("minions/web3/mine.p", value.Map{{Key: "f", Value: "v3"}})
	write("minions/web3/files/etc/hosts", []byte("127.0.0.1"))
	write("cloud/active/k.p", "value")
	write("cloud/empty.p", value.Map{})
	write("cloud/broken.p", []byte{0xc1})
	write("jobs/ab/cd/.load.p", old)
	write("cluster/consensus/m1/cluster/state.p", old)
	write("top.p", "not in a bank")
	if err := errors.Join(os.Symlink("/etc", filepath.Join(dir, "cloud/link")),
		os.Symlink(filepath.Join(dir, "top.p"), filepath.Join(dir, "cloud/linked.p"))); err != nil {
		t.Fatal(err)
	}
	if err := data.SetGrains(ctx, "web2", value.Raw("\x81\xa2os\xa3new")); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"grains": 2, "pillar": 1, "mine": 1, "minions/web3": 2,
		"cloud/active": 1, "cloud": 2}
	keys, failed, err := c.Migrate(ctx, dir, "", true)
	if err != nil || !reflect.DeepEqual(keys, want) || failed != 0 ||
		list(t, c, "") != "grains" {
		t.Fatalf("dry: %v %v, then %q", keys, err, list(t, c, ""))
	}
	keys, failed, err = c.Migrate(ctx, dir, "", false)
	if err != nil || !reflect.DeepEqual(keys, want) || failed != 1 {
		t.Fatal(keys, failed, err)
	}
	for bank, want := range map[string]string{"": "cloud grains mine pillar",
		"grains": "web1 web2 web3", "pillar": "web1:dev web3", "mine": "web1 web3",
		"cloud": "active", "cloud/active": "k"} {
		if got := list(t, c, bank); got != want {
			t.Errorf("list %q: %q, want %q", bank, got, want)
		}
	}
	for id, want := range map[string]string{"web1": "old", "web2": "new", "web3": "old"} {
		if g, _, err := data.Grains(ctx, id); err != nil || g.String("os") != want {
			t.Errorf("grains of %s: %v %v", id, g, err)
		}
	}
	if keys, _, err = c.Migrate(ctx, dir, "jobs/ab", true); err != nil ||
		keys["jobs/ab/cd"] != 1 {
		t.Error(keys, err)
	}
	if keys, failed, err = c.Migrate(ctx, dir, "nosuch", false); err != nil || len(keys) != 0 ||
		failed != 0 {
		t.Error(keys, err)
	}
	if _, _, err = c.Migrate(ctx, dir, "../x", false); !errors.Is(err, ErrOutside) {
		t.Error(err)
	}
}

// FuzzPaths: whatever is asked for, what comes of it lies inside and is found again as itself.
func FuzzPaths(f *testing.F) {
	for _, s := range [][2]string{{"a", "k"}, {"../a", "k"}, {"a//b/..", "../k"}, {"/", "k/"},
		{".", "."}, {"a", "b/../../../c"}, {"\x00", "\xff"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, bank, key string) {
		p, err := keyPath(bank, key)
		if err != nil {
			return
		}
		place, name := locate(p)
		if place == "" || name == "" || strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/") ||
			p == ".." || strings.HasPrefix(p, "../") || strings.Contains("/"+p+"/", "/../") {
			t.Fatalf("%q %q lies at %q: %q %q", bank, key, p, place, name)
		}
		dir, base := path.Split(p)
		if again, err := keyPath(dir, base); err != nil || again != p {
			t.Fatalf("%q is asked for again as %q, %v", p, again, err)
		}
	})
}

// TestExportToAFullDisk leaves no part of a file, which Salt would list as a key.
func TestExportToAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); errors.Is(err, unix.EPERM) {
		t.Skip("needs to mount a small tmpfs; run make test as root")
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	c, _ := open(t)
	if err := c.Store(t.Context(), "cloud", "k", strings.Repeat("x", 100<<10)); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := c.Export(t.Context(), dir, true); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the disk is full: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "cloud"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// TestExportIsReadBack: what Export writes for a release of Salt, Migrate reads back.
func TestExportIsReadBack(t *testing.T) {
	t.Parallel()
	for perBank, files := range map[bool][]string{
		false: {"minions/web1/data.p", "minions/web1/mine.p", "cloud/active/k.p"},
		true: {"grains/web1.p", "pillar/web1.p", "pillar/web1:dev.p", "pillar/web1:a/b.p", "mine/web1.p",
			"cloud/active/k.p"},
	} {
		odd := []string{"/../../grains/web2", "x/../web2", "nul\x00", strings.Repeat("x", 300)}
		c, data := open(t)
		ctx := t.Context()
		dir := t.TempDir()
		text := value.Map{{Key: "os", Value: "Debian, größer"}}
		packed, err := value.Pack(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{data.SetGrains(ctx, "web1", packed),
			data.SetPillar(ctx, "web1", "", text), data.SetPillar(ctx, "web1", "dev", text),
			data.SetPillar(ctx, "web1", "a/b", text), data.SetPillar(ctx, "web1", odd[0], text),
			data.SetPillar(ctx, "web1", odd[1], text), data.SetPillar(ctx, "web1", odd[2], text),
			data.SetPillar(ctx, "web1", odd[3], text),
			data.MergeMine(ctx, "web1", text, true), c.Store(ctx, "cloud/active", "k", "value"),
			c.Store(ctx, "", "top", "no bank"), c.Store(ctx, "clustermaster", "k", "ours"),
			c.Store(ctx, "cluster/consensus", "state", "Salt's Raft")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		failures := 0
		if perBank {
			failures = len(odd)
		} else if err := errors.Join(os.MkdirAll(filepath.Join(dir, "minions/web1"), 0o700),
			os.WriteFile(filepath.Join(dir, "minions/web1/data.p"), nil, 0o600)); err != nil {
			t.Fatal(err) // Salt leaves an empty file when it is killed
		}
		// A minion that this master does not know keeps its file.
		kept := filepath.Join(dir, "minions/web9/data.p")
		if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700),
			os.WriteFile(kept, packed, 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, failed, incomplete, err := c.Export(ctx, dir, perBank); err != nil ||
				failed != failures || incomplete != "" {
				t.Fatal(failed, incomplete, err)
			}
		}
		var found []string
		if err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && p != kept {
				rel, _ := filepath.Rel(dir, p)
				found = append(found, rel)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(files)
		if !slices.Equal(found, files) {
			t.Errorf("per bank %t: files %q, want %q", perBank, found, files)
		}
		if b, err := os.ReadFile(kept); err != nil || !bytes.Equal(b, packed) {
			t.Errorf("file of another minion: %q %v", b, err)
		}
		again, _ := open(t)
		if _, failed, err := again.Migrate(ctx, dir, "", false); err != nil || failed != 0 {
			t.Fatal(failed, err)
		}
		for _, bank := range []string{"grains", "mine", "pillar", "cloud/active"} {
			for _, key := range strings.Fields(list(t, c, bank)) {
				_, env, _ := strings.Cut(key, ":")
				if !perBank && env != "" || slices.Contains(odd, env) {
					continue // Salt has no place for it
				}
				want, _, _ := c.Fetch(ctx, bank, key)
				got, found, err := again.Fetch(ctx, bank, key)
				if err != nil || !found || !reflect.DeepEqual(got, want) {
					t.Errorf("per bank %t: %s/%s: %v, want %v (%v)", perBank, bank, key, got, want, err)
				}
			}
		}
	}
}
