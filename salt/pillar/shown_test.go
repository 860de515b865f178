package pillar_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"clustermaster/salt/pillar"
	"clustermaster/value"
)

// grainsByID are the kept grains of minions by id, in the place of the ring store.
type grainsByID map[string]value.Map

func (k grainsByID) Grains(_ context.Context, id string) (value.Map, bool, error) {
	grains, found := k[id]
	return grains, found, nil
}

func (k grainsByID) FirstGrains(context.Context) (value.Map, bool, error) {
	for _, id := range slices.Sorted(maps.Keys(k)) {
		if len(k[id]) > 0 {
			return k[id], true, nil
		}
	}
	return nil, false, nil
}

func (k grainsByID) PillarOf(context.Context, string, string) (value.Map, bool, error) {
	return nil, false, nil
}

func (k grainsByID) DropPillar(context.Context, string) error { return nil }

// TestTopOf: without a minion, the top file is made with the grains of the first one that has some.
func TestTopOf(t *testing.T) {
	t.Parallel()
	data := grainsByID{}
	shown := pillar.Shown{Data: data, Compiler: maker(t, pillar.Options{}, pillar.Deps{},
		map[string]string{"top.sls": "base: {'*': [{{ grains.get('os', 'none') }}]}"})}
	top := func(id, want string) {
		t.Helper()
		made, faults, err := shown.Top(t.Context(), id, "base")
		base := mapOf(made, "base")
		if list := texts(valueOf(base, "*")); err != nil || faults != nil || len(list) != 1 ||
			list[0] != want {
			t.Errorf("%q: %v %v %v, want %s", id, made, faults, err, want)
		}
	}
	top("", "none")
	data["a"], data["c"] = value.Map{}, value.Map{{Key: "os", Value: "Fedora"}}
	data["b"] = value.Map{{Key: "os", Value: "Debian"}}
	top("", "Debian")
	top("c", "Fedora")
	top("d", "none")
}
