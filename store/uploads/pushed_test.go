package uploads

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
)

func open(t *testing.T) *Files {
	t.Helper()
	store := ringtest.Alone(t, ringstore.Options{})
	return New(store)
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
		{"empty", 0, 0, "", true, ""},
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
	if _, err := f.List(ctx, func(file File) { list = append(list, file) }); err != nil || len(list) != 1 || list[0].ID != "web1" || list[0].Path != "etc/x" || list[0].Size != 2 {
		t.Fatal(list, err)
	}
	if err := f.Delete(ctx, "web1", "etc/x"); err != nil || read() != "-" {
		t.Fatal(err)
	}
	left := 0
	if _, err := f.store.Scan(ctx, ringstore.SpacePushed, "", func(ringstore.Record) error { left++; return nil }); err != nil || left > 0 {
		t.Errorf("%d records are left, %v", left, err)
	}
}

func TestReadNothing(t *testing.T) {
	t.Parallel()
	if err := open(t).WriteTo(context.Background(), "web1", "x", &bytes.Buffer{}); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
}
