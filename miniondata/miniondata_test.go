package miniondata

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"clustermaster/hashring"
	"clustermaster/ringstore"
	"clustermaster/wire"

	"google.golang.org/grpc"
)

// alone is a cluster of one.
type alone struct{ ring *hashring.Ring }

func (a alone) Self() string         { return "m1/a" }
func (a alone) Ring() *hashring.Ring { return a.ring }
func (a alone) Conn(node string) (grpc.ClientConnInterface, error) {
	return nil, fmt.Errorf("no way to %s", node)
}
func (a alone) Alive(string) bool { return false }
func (a alone) Members() []string { return []string{"m1/a"} }

func open(t *testing.T) (*Data, context.Context) {
	t.Helper()
	store, err := ringstore.Open(t.TempDir(), alone{hashring.New([]string{"m1/a"}, 256, 3, 1)}, ringstore.Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return New(store, nil), ctx
}

func m(pairs ...any) wire.Map {
	var out wire.Map
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, wire.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

func raw(t *testing.T, v any) wire.Raw {
	t.Helper()
	b, err := wire.Pack(v)
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
	if got, found, err := d.Pillar(ctx, "web1"); err != nil || !found || !reflect.DeepEqual(got, m("a", int64(1))) {
		t.Error(got, found, err)
	}
	if got, found, err := d.PillarOf(ctx, "web1", "dev"); err != nil || !found || !reflect.DeepEqual(got, m("a", int64(2))) {
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
		{"merge", func() error { return d.MergeMine(ctx, "web1", m("b", "1", "a", "1"), false) }, "[{a 1} {b 1}]"},
		{"merge over", func() error { return d.MergeMine(ctx, "web1", m("b", "2", "c", "1", "c", "2"), false) }, "[{a 1} {b 2} {c 2}]"},
		{"replace", func() error { return d.MergeMine(ctx, "web1", m("b", "3", "d", "1"), true) }, "[{b 3} {d 1}]"},
		{"odd keys are left out", func() error { return d.MergeMine(ctx, "web1", m(int64(7), "x", "", "y"), false) }, "[{ y} {b 3} {d 1}]"},
		{"delete", func() error { return d.DeleteMine(ctx, "web1", "b") }, "[{ y} {d 1}]"},
		{"delete what is not there", func() error { return d.DeleteMine(ctx, "web1", "nosuch") }, "[{ y} {d 1}]"},
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
	var many wire.Map
	for i := range 1000 {
		many = append(many, wire.Pair{Key: fmt.Sprintf("f%04d", i), Value: int64(i)})
	}
	if err := d.MergeMine(ctx, "web1", many, true); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Mine(ctx, "web1"); err != nil || !reflect.DeepEqual(got, many) {
		t.Error(len(got), err)
	}
	if got, err := d.MineValues(ctx, "f0007", []string{"web1", "web2"}); err != nil || len(got) != 1 || string(got["web1"]) != string(raw(t, int64(7))) {
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
	all, cover, err := d.AllGrains(ctx)
	if err != nil || !cover.Complete() || len(all) != 98 {
		t.Fatal(len(all), cover, err)
	}
	for id, g := range all {
		if n, _ := g.Get("n"); fmt.Sprintf("web%02d", n) != id {
			t.Errorf("%s has grains %v", id, g)
		}
	}
	var pillars []string
	if _, err := d.EachPillar(ctx, func(id string, p wire.Map) {
		if n, _ := p.Get("p"); fmt.Sprintf("web%02d", n) != id {
			t.Errorf("%s has pillar %v", id, p)
		}
		pillars = append(pillars, id)
	}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{100, readOneByOne, 10} { // by one pass, and each by itself
		asked := make([]string, n)
		for i := range asked {
			asked[i] = fmt.Sprintf("web%02d", i)
		}
		mines, err := d.MineValues(ctx, "ip", asked)
		if err != nil {
			t.Fatal(err)
		}
		if _, found := mines["web08"]; found || len(mines) != n-1 {
			t.Errorf("%d mines of %d, web08 %v", len(mines), n, found)
		}
	}
	if len(pillars) != 98 {
		t.Errorf("%d pillars", len(pillars))
	}
	if _, found, err := d.PillarOf(ctx, "web07", "dev"); err != nil || found {
		t.Error("pillar of a dropped minion", found, err)
	}
}

func TestDamagedDataIsLeftOutOrSaid(t *testing.T) {
	t.Parallel()
	d, ctx := open(t)
	if err := d.SetGrains(ctx, "bad", wire.Raw("\xc1")); err != nil {
		t.Fatal(err)
	}
	if err := d.SetGrains(ctx, "good", raw(t, m("a", "b"))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Grains(ctx, "bad"); err == nil || !strings.Contains(err.Error(), `decode grains of "bad"`) {
		t.Error(err)
	}
	all, _, err := d.AllGrains(ctx)
	if err != nil || len(all) != 1 || all["good"] == nil {
		t.Error(all, err)
	}
}

func TestKept(t *testing.T) {
	t.Parallel()
	d, ctx := open(t)
	for _, err := range []error{
		d.SetGrains(ctx, "web2", raw(t, m("a", 1))), d.SetGrains(ctx, "web1", raw(t, m("a", 1))), d.SetPillar(ctx, "web1", "", m("a", 1)), d.SetPillar(ctx, "web3", "dev/x", m("a", 1)),
		d.MergeMine(ctx, "web4", m("f", 1, "g", 2), false), d.MergeMine(ctx, "web1", m("f", 1), false),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, want := range map[string]string{"grains": "web1 web2", "pillar": "web1 web3:dev/x", "mine": "web1 web4", "gra": ""} {
		if got, cover, err := d.Kept(ctx, what); err != nil || !cover.Complete() || strings.Join(got, " ") != want {
			t.Errorf("%s: %q %v %v", what, got, cover, err)
		}
	}
}
