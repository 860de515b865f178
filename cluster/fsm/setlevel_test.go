package fsm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"clustermaster/cluster/level"
)

var updateFields = flag.Bool("update-fields", false,
	"write testdata/level1.fields: only while level 1 is not released")

// recordTypes are what the records of level 1 hold.
var recordTypes = []any{
	scalars{}, Member{}, Bar{}, Key{}, DeniedOf{}, RootsHead{}, Reactors{}, Scheduled{}, doneOnce{},
	RestorePart{}, UserKey{}, Token{},
}

// TestEveryCommandHasItsLevel compares the commands with the table of package level.
func TestEveryCommandHasItsLevel(t *testing.T) {
	t.Parallel()
	in := make(map[int]string)
	for _, e := range level.Table() {
		if e.Kind == level.Command {
			in[e.Number] = e.Name
		}
	}
	for op := range 256 {
		c := newCommand(Op(op))
		name := ""
		if c != nil {
			name = reflect.TypeOf(c).Elem().Name()
		}
		if in[op] != name {
			t.Errorf("op %d: %q in the table of package level, %q in newCommand", op, in[op], name)
		}
	}
}

// TestEveryFieldHasItsLevel lists all fields of what level 1 wrote. A field that is not in the list
// came later: it has a line in the table of package level, and is left out of the bytes while it is
// not set.
func TestEveryFieldHasItsLevel(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "level1.fields")
	old, err := os.ReadFile(path)
	if err != nil && !*updateFields {
		t.Fatal(err)
	}
	known := strings.Fields(string(old))
	var found []string
	seen := make(map[reflect.Type]bool)
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice ||
			typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || typ == reflect.TypeFor[time.Time]() {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			tag, options, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
			if tag == "" {
				if f.IsExported() {
					t.Errorf("%s.%s has no msgpack tag", typ.Name(), f.Name)
				}
				continue
			}
			name := typ.Name() + "." + tag
			if level.OfField(typ.Name(), tag) > 0 {
				if options != "omitempty" {
					t.Errorf("%s came later, so it needs omitempty: older members refuse it", name)
				}
				continue // what it holds came with it
			}
			found = append(found, name)
			if !*updateFields && !slices.Contains(known, name) {
				t.Errorf("%s is not of level 1: give it a level in the table of package level",
					name)
			}
			walk(f.Type)
		}
	}
	for op := range 256 {
		if c := newCommand(Op(op)); c != nil && level.OfCommand(uint8(op)) == level.Base {
			walk(reflect.TypeOf(c))
		}
	}
	for _, v := range recordTypes {
		walk(reflect.TypeOf(v))
	}
	slices.Sort(found)
	if *updateFields {
		if err := os.WriteFile(path, []byte(strings.Join(found, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, name := range known {
		if !slices.Contains(found, name) {
			t.Errorf("%s of level 1 is gone: logs and snapshots that have it can't be read", name)
		}
	}
}

func foundedHere(t *testing.T) *State {
	t.Helper()
	s := New()
	r, _ := s.Apply(1, &Found{
		Cluster: Cluster{UUID: "u", Partitions: 256},
		Member:  Member{Node: "m1/01", ID: "m1", Incarnation: "01"}, AES: "a", Session: []byte("s"),
	})
	if r.Refused != "" {
		t.Fatal(r.Refused)
	}
	return s
}

func TestLevelRisesOnce(t *testing.T) {
	t.Parallel()
	s := foundedHere(t)
	if got := s.Level(); got != level.Base {
		t.Fatalf("a founded cluster is at level %d", got)
	}
	var before bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&before); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(before.Bytes(), []byte("level")) {
		t.Error("a snapshot of level 1 names levels: release 0.1.0 would drop them")
	}
	for i, want := range []struct {
		level   int
		changed bool
		now     int
	}{{2, true, 2}, {2, false, 2}, {1, false, 2}} {
		r, change := s.Apply(uint64(2+i), &SetLevel{Level: want.level, Release: "0.2.0"})
		if r.Changed != want.changed || change.Level != want.changed || s.Level() != want.now {
			t.Errorf("set level %d: got %+v, level %d; want %+v", want.level, r, s.Level(), want)
		}
	}
	var raised bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&raised); err != nil {
		t.Fatal(err)
	}
	other := New()
	if err := other.Restore(bytes.NewReader(raised.Bytes())); err != nil {
		t.Fatal(err)
	}
	if other.Level() != 2 {
		t.Errorf("a restored snapshot is at level %d", other.Level())
	}
}

// TestNewerIsRefused feeds entries and snapshots of a level that no program has yet.
func TestNewerIsRefused(t *testing.T) {
	t.Parallel()
	next := level.Supported() + 1
	pack := func(vs ...any) []byte {
		var b bytes.Buffer
		enc := msgpack.NewEncoder(&b)
		for _, v := range vs {
			if err := enc.Encode(v); err != nil {
				t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	allow := map[string]any{"id": "m1", "why_not": "x"}
	tests := []struct {
		name  string
		entry []byte
		says  string
	}{
		{"an entry of the next level", pack(uint64(next), uint64(4), map[string]any{"id": "m1"}),
			fmt.Sprintf("written at level %d", next)},
		{"an unknown op", pack(uint64(1), uint64(200), map[string]any{}), "newer release"},
		{"an unknown field", pack(uint64(1), uint64(OpAllowMember), allow),
			`unknown field "why_not"`},
		{"within a Once", pack(uint64(1), uint64(OpOnce),
			map[string]any{"token": strings.Repeat("t", 16),
				"entry": pack(uint64(1), uint64(OpAllowMember), allow)}),
			`unknown field "why_not"`},
		{"a raise to the next level", pack(uint64(2), uint64(OpSetLevel),
			map[string]any{"level": next, "release": "9.8.7"}), "install release 9.8.7 or newer"},
	}
	for _, tt := range tests {
		_, err := Decode(tt.entry)
		if !errors.Is(err, ErrUnknown) || !strings.Contains(fmt.Sprint(err), tt.says) {
			t.Errorf("%s: got %v, want ErrUnknown and %q", tt.name, err, tt.says)
		}
	}
	if _, err := Decode(pack(uint64(1), uint64(OpSetLevel),
		map[string]any{"level": 2, "release": "0.2.0"})); !errors.Is(err, ErrCorrupt) {
		t.Errorf("an entry that says to be older than its op: got %v", err)
	}

	s := foundedHere(t)
	s.Apply(2, &SetLevel{Level: next, Release: "9.8.7"})
	var b bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	have := foundedHere(t)
	err := have.Restore(bytes.NewReader(b.Bytes()))
	if !errors.Is(err, ErrUnknown) || !strings.Contains(fmt.Sprint(err),
		"install release 9.8.7 or newer") {
		t.Errorf("a snapshot of the next level: got %v", err)
	}
	if have.Level() != level.Base {
		t.Error("a refused snapshot changed the state")
	}
	for _, body := range [][]byte{
		pack(snapshotMagic, uint64(1), uint64(recordState), &scalars{}, uint64(250), "x"),
		pack(snapshotMagic, uint64(1), uint64(recordState), &scalars{}, uint64(recordBar),
			map[string]any{"id": "m", "why_not": 1}),
	} {
		if err := New().Restore(bytes.NewReader(body)); !errors.Is(err, ErrUnknown) {
			t.Errorf("a snapshot with something unknown: got %v", err)
		}
	}
}

func TestFieldsThatCameLaterNeedTheirLevel(t *testing.T) {
	t.Parallel()
	type inner struct {
		A string `msgpack:"a"`
		L string `msgpack:"level,omitempty"`
	}
	if got := needsOf(reflect.ValueOf(&inner{L: "x"})); got != 0 {
		t.Errorf("a field of another struct: got level %d", got)
	}
	if got := needsOf(reflect.ValueOf(&scalars{})); got != 0 {
		t.Errorf("a field that is not set: got level %d", got)
	}
	if got := needsOf(reflect.ValueOf([]*scalars{{}, {Level: 2}})); got != 2 {
		t.Errorf("a field that is set: got level %d", got)
	}
	if got := Needs(&Once{command: &SetLevel{}}); got != 2 {
		t.Errorf("a Once of a command of level 2: got level %d", got)
	}
}
