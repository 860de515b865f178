package pillar_test

import (
	"testing"

	"clustermaster/salt/pillar"
	"clustermaster/store/miniondata"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
	"clustermaster/value"
)

// TestTopOf: without a minion, the top file is made with the grains of the first one that has some.
func TestTopOf(t *testing.T) {
	t.Parallel()
	data := miniondata.New(ringtest.Alone(t, ringstore.Options{Compilers: map[ringstore.Space]ringstore.Compiler{
		ringstore.SpaceMinions: miniondata.Questions{}}}), nil)
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
	for id, grains := range map[string]value.Map{"a": {}, "c": {{Key: "os", Value: "Fedora"}},
		"b": {{Key: "os", Value: "Debian"}}} {
		packed, err := value.Pack(grains)
		if err != nil {
			t.Fatal(err)
		}
		if err := data.SetGrains(t.Context(), id, packed); err != nil {
			t.Fatal(err)
		}
	}
	top("", "Debian")
	top("c", "Fedora")
	top("d", "none")
}
