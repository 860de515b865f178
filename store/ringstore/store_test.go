package ringstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/store/ringstore/disk"
)

func TestPutGetListDelete(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"m1/a"}, {"m1/a", "m2/b"}, {"m1/a", "m2/b", "m3/c"},
		{"m1/a", "m2/b", "m3/c", "m4/d", "m5/e"}} {
		t.Run(fmt.Sprintf("members=%d", len(names)), func(t *testing.T) {
			t.Parallel()
			k := newKit(t, names...)
			ctx := t.Context()
			s, far := k.store(names[0]), k.store(names[len(names)-1])
			key := Key{Space: SpaceMinions, Place: "web1", Name: "grains"}
			if _, found, err := s.Get(ctx, key); err != nil || found {
				t.Fatalf("get before put: found %v, err %v", found, err)
			}
			for _, v := range []string{"one", "two", ""} {
				if err := s.Put(ctx, key, []byte(v), time.Time{}); err != nil {
					t.Fatal(err)
				}
				got, found, err := far.Get(ctx, key)
				if err != nil || !found || string(got.Value) != v || got.Key != key {
					t.Fatalf("get after put %q: %+v found %v err %v", v, got, found, err)
				}
				s, far = far, s
			}
			first, err := s.PutFirst(ctx, Key{Space: SpaceJobs, Place: "20261121093335299638",
				Name: "r/web1"},
				[]byte("a"), time.Now().Add(time.Hour))
			if err != nil || !first {
				t.Fatalf("first put: %v, %v", first, err)
			}
			first, err = far.PutFirst(ctx, Key{Space: SpaceJobs, Place: "20261121093335299638",
				Name: "r/web1"},
				[]byte("b"), time.Now().Add(time.Hour))
			if err != nil || first {
				t.Fatalf("second put: first %v, %v", first, err)
			}
			got, found, err := s.Get(ctx, Key{Space: SpaceJobs, Place: "20261121093335299638",
				Name: "r/web1"})
			if err != nil || !found || string(got.Value) != "a" {
				t.Fatalf("kept %q %v %v, want the first", got.Value, found, err)
			}
			for _, n := range []string{"mine/b", "mine/a", "mine/\x00\xff odd", "mine/", "other"} {
				if err := s.Put(ctx, Key{Space: SpaceMinions, Place: "web1", Name: n}, []byte(n),
					time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
			names := func(prefix string) string {
				list, err := far.List(ctx, SpaceMinions, "web1", prefix)
				if err != nil {
					t.Fatal(err)
				}
				var out []string
				for _, r := range list {
					out = append(out, fmt.Sprintf("%q", r.Name))
				}
				return strings.Join(out, " ")
			}
			if got, want := names("mine/"),
				`"mine/" "mine/\x00\xff odd" "mine/a" "mine/b"`; got != want {
				t.Errorf("list: %s, want %s", got, want)
			}
			if err := far.Delete(ctx, SpaceMinions, "web1", "mine/a", "mine/",
				"never was"); err != nil {
				t.Fatal(err)
			}
			if got, want := names(""),
				`"grains" "mine/\x00\xff odd" "mine/b" "other"`; got != want {
				t.Errorf("list after delete: %s, want %s", got, want)
			}
			if err := s.Put(ctx, Key{Space: SpaceMinions, Place: "web1", Name: "mine/a"},
				[]byte("again"),
				time.Time{}); err != nil {
				t.Fatal(err)
			}
			if r, found, err := far.Get(ctx,
				Key{Space: SpaceMinions, Place: "web1", Name: "mine/a"}); err != nil ||
				!found || string(r.Value) != "again" {
				t.Errorf("put after delete: %+v %v %v", r, found, err)
			}
		})
	}
}

// TestNamesOfLargeRecords: names are listed however large the values are, and whoever has them.
func TestNamesOfLargeRecords(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.opts.MaxList = 4 << 10
	for _, name := range []string{"m1/a", "m2/b", "m3/c"} {
		k.node(name).kill()
		k.start(name)
	}
	const n = 40
	var want []string
	for i := range n {
		name := fmt.Sprintf("r/%02d", i)
		if err := k.store("m1/a").Put(ctx, Key{Space: SpaceJobs, Place: "big", Name: name},
			make([]byte, 1<<10),
			time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	if err := k.store("m1/a").Put(ctx, Key{Space: SpaceJobs, Place: "big", Name: "m/x"}, nil,
		time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := k.store("m2/b").Delete(ctx, SpaceJobs, "big", "r/07"); err != nil {
		t.Fatal(err)
	}
	want = slices.Delete(want, 7, 8)
	for _, node := range k.all() {
		if got, err := node.store.Names(ctx, SpaceJobs, "big", "r/"); err != nil ||
			!slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", node.name, got, err)
		}
		if _, err := node.store.List(ctx, SpaceJobs, "big", "r/"); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: list: %v, want ErrTooLarge", node.name, err)
		}
		// a list without values must not have been taken for a copy to repair
		for _, name := range want {
			if r, found, err := node.store.Get(ctx,
				Key{Space: SpaceJobs, Place: "big", Name: name}); err != nil ||
				!found || len(r.Value) != 1<<10 {
				t.Fatalf("%s: %s has %d bytes, %v %v", node.name, name, len(r.Value), found, err)
			}
		}
	}
	if _, err := k.store("m1/a").Names(ctx, SpaceJobs, strings.Repeat("p", MaxPlace+1),
		""); !errors.Is(err, ErrTooLarge) {
		t.Errorf("names of a long place: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a")
	k.node("m1/a").kill()
	k.opts.MaxRecord = 1000
	k.start("m1/a")
	ctx := t.Context()
	s := k.store("m1/a")
	for _, tc := range []struct {
		name string
		key  Key
		size int
		is   error
	}{
		{"no space", Key{Space: 0, Place: "p", Name: "n"}, 1, nil},
		{"no place", Key{Space: SpaceJobs, Place: "", Name: "n"}, 1, nil},
		{"long place", Key{Space: SpaceJobs, Place: strings.Repeat("p", MaxPlace+1), Name: "n"}, 1,
			ErrTooLarge},
		{"long name", Key{Space: SpaceJobs, Place: "p", Name: strings.Repeat("p", MaxName+1)}, 1,
			ErrTooLarge},
		{"large value", Key{Space: SpaceJobs, Place: "p", Name: "n"}, 1001, ErrTooLarge},
	} {
		err := s.Put(ctx, tc.key, make([]byte, tc.size), time.Time{})
		if err == nil || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.is)
		}
	}
}

func TestLargeRecordsTravelInPieces(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.opts.ReadTimeout = 20 * time.Second // no master is silent here, however busy the machine
	k.begin("m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	key := Key{Space: SpaceJobs, Place: "big", Name: "r"}
	value := bytes.Repeat([]byte("0123456789abcdef"), 700<<10/16*10) // 7 MB
	if err := k.store("m1/a").Put(ctx, key, value, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, n := range k.all() {
		eventually(t, "copy on "+n.name, func() error {
			if !n.holds(key) {
				return errors.New("not there")
			}
			return nil
		})
	}
	k.node("m1/a").kill()
	got, found, err := k.store("m2/b").Get(ctx, key)
	if err != nil || !found || !bytes.Equal(got.Value, value) {
		t.Fatalf("large record: found %v, %d bytes, err %v", found, len(got.Value), err)
	}
}

// TestLateAnswersChangeNothing: a copy that is answered after the quorum does not change the result
// that the caller is reading.
func TestLateAnswersChangeNothing(t *testing.T) {
	t.Parallel()
	late := target{node: "c", owner: "c"}
	w := &replication{beaten: make([]*disk.Kept, 1), out: []target{late}, done: make(chan struct{})}
	w.end(nil)
	beaten, _, _ := w.result()
	w.answered(late, nil, []disk.Kept{{Index: 0}}, 0, nil)
	if beaten[0] != nil || len(w.copies) != 1 {
		t.Errorf("the result became %v, copies %v", beaten, w.copies)
	}
}
