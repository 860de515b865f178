package fsm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"clustermaster/cluster/fsm"
)

func TestUserKeys(t *testing.T) {
	t.Parallel()
	s := founded(t)
	set := func(index uint64, replace bool, pairs ...string) fsm.Result {
		c := &fsm.SetUserKeys{Replace: replace}
		for i := 0; i < len(pairs); i += 2 {
			c.Keys = append(c.Keys, fsm.UserKey{User: pairs[i], Key: pairs[i+1]})
		}
		r, change := s.Apply(index, through(t, c))
		if change.Secrets != r.Changed {
			t.Errorf("command %d: secrets changed %v, state changed %v", index, change.Secrets,
				r.Changed)
		}
		return r
	}
	for i, tt := range []struct {
		name    string
		replace bool
		pairs   []string
		changed bool
		refused fsm.Refusal
		want    string
	}{
		{"the first decides", false, []string{"root", "k1"}, true, "", "[{root k1}]"},
		{"the second is told nothing else", false, []string{"root", "k2", "carol", "c1"}, true, "",
			"[{carol c1} {root k1}]"},
		{"a repeat", false, []string{"root", "k1", "carol", "c1"}, false, "",
			"[{carol c1} {root k1}]"},
		{"a rotation", true, []string{"root", "k3"}, true, "", "[{carol c1} {root k3}]"},
		{"a user without a name", false, []string{"dave", "d", "", "x"}, false, fsm.RefusedInvalid,
			"[{carol c1} {root k3}]"},
		{"a user without a key", true, []string{"root", ""}, false, fsm.RefusedInvalid,
			"[{carol c1} {root k3}]"},
		{"a long name", false, []string{strings.Repeat("n", 256), "x"}, false, fsm.RefusedInvalid,
			"[{carol c1} {root k3}]"},
		{"a long key", false, []string{"dave", strings.Repeat("k", 257)}, false, fsm.RefusedInvalid,
			"[{carol c1} {root k3}]"},
	} {
		r := set(uint64(i+2), tt.replace, tt.pairs...)
		if r.Changed != tt.changed || r.Refused != tt.refused ||
			fmt.Sprint(s.UserKeys()) != tt.want {
			t.Errorf("%s: got %+v, keys %v, want changed %v, refused %q, keys %s", tt.name, r,
				s.UserKeys(), tt.changed, tt.refused, tt.want)
		}
	}
	if key, ok := s.UserKey("carol"); !ok || key != "c1" {
		t.Errorf("carol: %q, %v", key, ok)
	}
	if key, ok := s.UserKey("mallory"); ok {
		t.Errorf("mallory has %q", key)
	}
	many := &fsm.SetUserKeys{}
	for n := range 4096 {
		many.Keys = append(many.Keys, fsm.UserKey{User: fmt.Sprint("u", n), Key: "k"})
	}
	if r, _ := s.Apply(100, many); r.Refused != fsm.RefusedInvalid {
		t.Errorf("4098 users: %+v", r)
	}
	if r, _ := fsm.New().Apply(1, many); r.Refused != fsm.RefusedNotFounded {
		t.Errorf("before founding: %+v", r)
	}
}

// TestUserKeysInSnapshots: equal keys give equal bytes, whatever order they came in, and come back.
func TestUserKeysInSnapshots(t *testing.T) {
	t.Parallel()
	keys := []fsm.UserKey{{User: "root", Key: "r"}, {User: "carol", Key: "c"},
		{User: "dave", Key: "d"}}
	var want []byte
	for seed := range uint64(10) {
		s := founded(t)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(keys),
			func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for _, k := range keys {
			s.Apply(2, &fsm.SetUserKeys{Keys: []fsm.UserKey{k}})
		}
		got := snapshot(t, s)
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("seed %d: snapshots of equal keys differ", seed)
		}
	}
	back := fsm.New()
	if err := back.Restore(bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(back.UserKeys()); got != "[{carol c} {dave d} {root r}]" {
		t.Errorf("restored: %s", got)
	}
	sn := back.Snapshot()
	back.Apply(9, &fsm.SetUserKeys{Keys: []fsm.UserKey{{User: "root", Key: "other"}},
		Replace: true})
	var later bytes.Buffer
	if _, err := sn.WriteTo(&later); err != nil || !bytes.Equal(later.Bytes(), want) {
		t.Errorf("a snapshot changed after it was taken (%v)", err)
	}
}

// userKeys is a command for the fuzz targets.
func userKeys() fsm.Command {
	return &fsm.SetUserKeys{Keys: []fsm.UserKey{{User: "root", Key: "k"},
		{User: "carol", Key: "c"}}, Replace: true}
}
