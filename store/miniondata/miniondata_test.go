package miniondata

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"clustermaster/salt/target"
	"clustermaster/store/allotment"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
	"clustermaster/value"
)

var compilers = map[ringstore.Space]ringstore.Compiler{ringstore.SpaceMinions: Questions{}}

func open(t *testing.T) (*Data, context.Context) {
	t.Helper()
	store := ringtest.Alone(t, ringstore.Options{Compilers: compilers})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return New(store, nil), ctx
}

func m(pairs ...any) value.Map {
	var out value.Map
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

func raw(t testing.TB, v any) value.Raw {
	t.Helper()
	b, err := value.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGrainsAndPillar(t *testing.T) {
	t.Parallel()
	d, ctx := open(t)
	if _, found, err := d.Grains(ctx, "web1"); err != nil || found {
		t.Fatal(found, err)
	}
	for _, os := range []string{"Debian", "Fedora"} {
		if err := d.SetGrains(ctx, "web1", raw(t, m("os", os))); err != nil {
			t.Fatal(err)
		}
		got, found, err := d.Grains(ctx, "web1")
		if err != nil || !found || got.String("os") != os {
			t.Fatal(got, found, err)
		}
	}
	if err := d.SetPillar(ctx, "web1", "", m("a", int64(1))); err != nil {
		t.Fatal(err)
	}
	if err := d.SetPillar(ctx, "web1", "dev", m("a", int64(2))); err != nil {
		t.Fatal(err)
	}
	if got, found, err := d.Pillar(ctx, "web1"); err != nil || !found ||
		!reflect.DeepEqual(got, m("a", int64(1))) {
		t.Error(got, found, err)
	}
	if got, found, err := d.PillarOf(ctx, "web1", "dev"); err != nil || !found ||
		!reflect.DeepEqual(got, m("a", int64(2))) {
		t.Error(got, found, err)
	}
	if err := d.SetGrains(ctx, "", raw(t, m())); !errors.Is(err, ErrNoID) {
		t.Error("grains of nobody:", err)
	}
}

func TestMine(t *testing.T) {
	t.Parallel()
	d, ctx := open(t)
	mine := func() string {
		got, err := d.Mine(ctx, "web1")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(got)
	}
	if got, err := d.Mine(ctx, "web1"); got != nil || err != nil {
		t.Fatal(got, err)
	}
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"merge", func() error { return d.MergeMine(ctx, "web1", m("b", "1", "a", "1"), false) },
			"[{a 1} {b 1}]"},
		{"merge over", func() error {
			return d.MergeMine(ctx, "web1",
				m("b", "2", "c", "1", "c", "2"), false)
		}, "[{a 1} {b 2} {c 2}]"},
		{"replace", func() error { return d.MergeMine(ctx, "web1", m("b", "3", "d", "1"), true) },
			"[{b 3} {d 1}]"},
		{"odd keys are left out", func() error {
			return d.MergeMine(ctx, "web1",
				m(int64(7), "x", "", "y"), false)
		}, "[{ y} {b 3} {d 1}]"},
		{"delete", func() error { return d.DeleteMine(ctx, "web1", "b") }, "[{ y} {d 1}]"},
		{"delete what is not there", func() error { return d.DeleteMine(ctx, "web1", "nosuch") },
			"[{ y} {d 1}]"},
		{"replace by nothing", func() error { return d.MergeMine(ctx, "web1", nil, true) }, "[]"},
		{"again", func() error { return d.MergeMine(ctx, "web1", m("b", "4"), false) }, "[{b 4}]"},
		{"flush", func() error { return d.FlushMine(ctx, "web1") }, "[]"},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := mine(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	var many value.Map
	for i := range 1000 {
		many = append(many, value.Pair{Key: fmt.Sprintf("f%04d", i), Value: int64(i)})
	}
	if err := d.MergeMine(ctx, "web1", many, true); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Mine(ctx, "web1"); err != nil || !reflect.DeepEqual(got, many) {
		t.Error(len(got), err)
	}
	held := int64(0)
	hold := func(n int64) error { held += n; return nil }
	if got, err := d.MineValues(ctx, "f0007", []string{"web1", "web2"}, hold); err != nil ||
		held != 1 ||
		len(got) != 1 || string(got["web1"]) != string(raw(t, int64(7))) {
		t.Error(got, err)
	}
}

func TestEachAndDrop(t *testing.T) {
	t.Parallel()
	d, ctx := open(t)
	for i := range 100 {
		id := fmt.Sprintf("web%02d", i)
		if err := d.SetGrains(ctx, id, raw(t, m("n", int64(i)))); err != nil {
			t.Fatal(err)
		}
		if err := d.SetPillar(ctx, id, "", m("p", int64(i))); err != nil {
			t.Fatal(err)
		}
		if err := d.SetPillar(ctx, id, "dev", m("p", "wrong")); err != nil {
			t.Fatal(err)
		}
		if err := d.MergeMine(ctx, id, m("ip", int64(i), "ip6", "wrong"), false); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Drop(ctx, "web07", true); err != nil {
		t.Fatal(err)
	}
	if err := d.Drop(ctx, "web08", false); err != nil {
		t.Fatal(err)
	}
	ids := func(terms ...target.Term) map[string]target.Hits {
		out := map[string]target.Hits{}
		cover, err := d.Ask(ctx, target.Question{Terms: terms},
			func(id string, hits target.Hits) { out[id] = append(out[id], hits...) })
		if err != nil || !cover.Complete() {
			t.Fatal(cover, err)
		}
		return out
	}
	if got := ids(grain("n:*")); len(got) != 98 || got["web07"] != nil || got["web08"] != nil {
		t.Errorf("%d minions have the grain n", len(got))
	}
	if got := ids(grain("n:42")); len(got) != 1 || got["web42"] == nil {
		t.Errorf("the grain n of %v is 42", got)
	}
	if got := ids(target.Term{Kind: "pillar", Text: "p:*", Delimiter: ":"}); len(got) != 98 ||
		got["web07"] != nil {
		t.Errorf("%d minions have the pillar p", len(got))
	}
	if got := ids(target.Term{Kind: "pillar", Text: "p:wrong", Delimiter: ":"}); len(got) != 0 {
		t.Errorf("the pillar of another environment is asked about: %v", got)
	}
	for _, n := range []int{100, readOneByOne, 10} { // by one pass, and each by itself
		asked := make([]string, n)
		for i := range asked {
			asked[i] = fmt.Sprintf("web%02d", i)
		}
		held := int64(0)
		mines, err := d.MineValues(ctx, "ip", asked, func(n int64) error { held += n; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if held != int64(len(mines)) { // each value is one byte
			t.Errorf("%d mines hold %d bytes", len(mines), held)
		}
		full := errors.New("full")
		if _, err := d.MineValues(ctx, "ip", asked, func(int64) error { return full }); !errors.Is(err,
			full) {
			t.Errorf("%d mines without memory: %v", n, err)
		}
		if _, found := mines["web08"]; found || len(mines) != n-1 {
			t.Errorf("%d mines of %d, web08 %v", len(mines), n, found)
		}
	}
	if _, found, err := d.PillarOf(ctx, "web07", "dev"); err != nil || found {
		t.Error("pillar of a dropped minion", found, err)
	}
}

func TestDamagedDataIsLeftOutOrSaid(t *testing.T) {
	t.Parallel()
	d, ctx := open(t)
	if err := d.SetGrains(ctx, "bad", value.Raw("\xc1")); err != nil {
		t.Fatal(err)
	}
	if err := d.SetGrains(ctx, "good", raw(t, m("a", "b"))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Grains(ctx, "bad"); err == nil ||
		!strings.Contains(err.Error(), `decode grains of "bad"`) {
		t.Error(err)
	}
	got := map[string]bool{}
	_,
		err := d.Ask(ctx, target.Question{Terms: []target.Term{grain("a:*"),
		{Kind: "ipcidr", Text: "10.0.0.0/8", Unless: true}}},
		func(id string, hits target.Hits) { got[id] = hits.Has(0) && hits.Has(1) })
	if err != nil || len(got) != 1 || !got["good"] {
		t.Error(got, err)
	}
}

func grain(path string) target.Term {
	return target.Term{Kind: "grain", Text: path,
		Delimiter: ":"}
}

// together holds what was listed back until all have begun.
type together struct {
	records
	began *sync.WaitGroup
}

func (t together) Names(ctx context.Context, space ringstore.Space, place,
	prefix string) ([]string, error) {
	names, err := t.records.Names(ctx, space, place, prefix)
	t.began.Wait()
	return names, err
}

// TestQuotas: what is beyond a minion's quota is refused, and what was there stays.
func TestQuotas(t *testing.T) {
	t.Parallel()
	d, ctx := open(t)
	d.Limit(Quotas{MineBytes: 1000, Pillarenvs: 2})
	text := func(n int) value.Map { return value.Map{{Key: "f", Value: strings.Repeat("x", n)}} }
	other := value.Map{{Key: "g", Value: strings.Repeat("x", 700)}}
	for i, step := range []struct {
		id    string
		data  value.Map
		clear bool
		want  error
	}{
		{"a", text(500), false, nil}, {"a", text(900), false, nil},
		{"a", text(1100), false, allotment.ErrQuota}, {"a", other, false, allotment.ErrQuota}, {"b", other, false, nil},
		{"a", text(100), false, nil}, {"a", other, false, nil}, {"a", text(900), false, allotment.ErrQuota},
		{"a", text(900), true, nil}, {"a", text(1100), true, allotment.ErrQuota},
	} {
		if err := d.MergeMine(ctx, step.id, step.data, step.clear); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if mine, err := d.Mine(ctx, "a"); err != nil || len(mine) != 1 || len(mine.String("f")) != 900 {
		t.Errorf("mine %v, %v", mine, err)
	}
	pillar := value.Map{{Key: "x", Value: "y"}}
	for _, step := range []struct {
		env  string
		want error
	}{{"dev", nil}, {"test", nil}, {"third", allotment.ErrQuota}, {"dev", nil}, {"", nil}} {
		if err := d.SetPillar(ctx, "a", step.env, pillar); !errors.Is(err, step.want) {
			t.Errorf("%q: %v", step.env, err)
		}
	}
	if _, found, err := d.PillarOf(ctx, "a", "third"); found || err != nil {
		t.Errorf("kept beyond the quota: %v, %v", found, err)
	}
	const writers = 20
	var at errgroup.Group
	began := new(sync.WaitGroup)
	began.Add(writers)
	d.store = together{d.store, began}
	for i := range writers {
		at.Go(func() error {
			began.Done()
			err := d.SetPillar(ctx, "b", fmt.Sprint(i), pillar)
			if errors.Is(err, allotment.ErrQuota) {
				return nil
			}
			return err
		})
	}
	if err := at.Wait(); err != nil {
		t.Error(err)
	}
	if kept, err := d.store.Names(ctx, ringstore.SpaceMinions, "b", pillarPrefix); err != nil ||
		len(kept) != 2 {
		t.Errorf("kept %v, %v", kept, err)
	}
}

// lists counts how often the records of a place are read.
type lists struct {
	records
	n int
}

func (l *lists) List(ctx context.Context, space ringstore.Space, place,
	prefix string) ([]ringstore.Record, error) {
	l.n++
	return l.records.List(ctx, space, place, prefix)
}

// TestMineIsRarelyRead: a mine is compared with its quota without being read for each change, and
// yet the quota holds, also when two masters write.
func TestMineIsRarelyRead(t *testing.T) {
	t.Parallel()
	d, ctx := open(t)
	counted := &lists{records: d.store}
	d.store = counted
	other := New(counted.records, nil)
	for _, data := range []*Data{d, other} {
		data.Limit(Quotas{MineBytes: 320_000})
	}
	write := func(d *Data, fun string, n int) error {
		return d.MergeMine(ctx, "a", value.Map{{Key: fun, Value: strings.Repeat("x", n)}}, false)
	}
	for i := range 200 {
		if err := write(d, "same", 890); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if counted.n > 12 {
		t.Errorf("read %d times for 200 changes", counted.n)
	}
	stored := 0
	for i := range 60 {
		if write([]*Data{d, other}[i%2], fmt.Sprint(i), 8990) == nil {
			stored += 9000
		}
	}
	if stored < 300_000 || stored > 320_000+2*20_000 {
		t.Errorf("stored about %d of 320,000", stored)
	}
}

// cutOff is the ring store of a master that is cut off: it sees nothing of a place.
type cutOff struct{ *ringstore.Store }

func (cutOff) List(context.Context, ringstore.Space, string, string) ([]ringstore.Record, error) {
	return nil, nil
}

// Grains are dropped whatever the master that drops them can see of them: others may have them.
func TestDropGrainsUnseen(t *testing.T) {
	t.Parallel()
	store := ringtest.Alone(t, ringstore.Options{})
	ctx := t.Context()
	packed, err := value.Pack(value.Map{}.Set("os", "Debian"))
	if err != nil {
		t.Fatal(err)
	}
	if err := New(store, nil).SetGrains(ctx, "web1", packed); err != nil {
		t.Fatal(err)
	}
	if err := New(cutOff{store}, nil).DropGrains(ctx, "web1"); err != nil {
		t.Fatal(err)
	}
	if _, found, err := New(store, nil).Grains(ctx, "web1"); err != nil || found {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestFirstGrains: those of the first minion by id, but not empty ones.
func TestFirstGrains(t *testing.T) {
	t.Parallel()
	d, ctx := open(t)
	if grains, found, err := d.FirstGrains(ctx); found || err != nil {
		t.Errorf("of nobody: %v %v %v", grains, found, err)
	}
	for id, grains := range map[string]value.Map{"a": {}, "c": m("os", "Fedora"), "b": m("os", "Debian")} {
		if err := d.SetGrains(ctx, id, raw(t, grains)); err != nil {
			t.Fatal(err)
		}
	}
	if grains, found, err := d.FirstGrains(ctx); !found || err != nil || grains.String("os") != "Debian" {
		t.Errorf("%v %v %v, want those of b", grains, found, err)
	}
}
