package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"clustermaster/cluster/fsm"
)

func once(t testing.TB, token int, c fsm.Command) *fsm.Once {
	t.Helper()
	o, err := fsm.NewOnce(fmt.Sprintf("%016d", token), c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A command whose answer was lost is proposed again: the key that came back meanwhile stays, and
// the answer is the first.
func TestOnceHasOneEffect(t *testing.T) {
	t.Parallel()
	s := founded(t)
	offer := &fsm.OfferKey{ID: "web1", Pub: "PUB", MaxPending: 10, MaxPerSource: 10, At: at}
	apply(t, s, offer)
	remove := once(t, 1, &fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1"}, From: 0xff,
		At: at})
	first, change := apply(t, s, remove)
	if len(first.Keys) != 1 || len(change.Keys) != 1 || change.Op != fsm.OpChangeKeys {
		t.Fatalf("first: %+v, %+v", first, change)
	}
	apply(t, s, offer)
	for _, state := range []*fsm.State{s, rebuilt(t, s)} {
		again, change := apply(t, state, remove)
		if fmt.Sprint(again) != fmt.Sprint(first) || len(change.Keys) != 0 {
			t.Errorf("again: %+v, %+v; first %+v", again, change, first)
		}
		if k, ok := state.Key("web1"); !ok || k.State != fsm.KeyPending {
			t.Errorf("the key that came back is %+v", k)
		}
	}
	if r, _ := apply(t, s, once(t, 2, &fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1"},
		From: 0xff, At: at})); len(r.Keys) != 1 {
		t.Errorf("another order: %+v", r)
	}
}

// What is kept is bounded by number and by size, and snapshots taken before don't change.
func TestOnceIsBounded(t *testing.T) {
	t.Parallel()
	s := founded(t)
	first := once(t, 0, &fsm.AllowMember{ID: "x"})
	apply(t, s, first)
	sn := s.Snapshot()
	var before bytes.Buffer
	if _, err := sn.WriteTo(&before); err != nil {
		t.Fatal(err)
	}
	ids := make([]string, 5000)
	var keys []fsm.Key
	for i := range ids {
		ids[i] = fmt.Sprintf("minion%d", i)
		keys = append(keys, fsm.Key{ID: ids[i], State: fsm.KeyPending,
			Pub: strings.Repeat("P", 100)})
	}
	size := func() int { return len(snapshot(t, s)) }
	apply(t, s, &fsm.ImportKeys{Keys: keys, At: at})
	for i := range 20 {
		action := []fsm.KeyAction{fsm.AcceptKeys, fsm.RejectKeys}[i%2]
		if r, _ := apply(t, s, once(t, i+1, &fsm.ChangeKeys{Action: action, IDs: ids, From: 0xff,
			At: at})); len(r.Keys) != len(ids) {
			t.Fatalf("%d keys changed", len(r.Keys))
		}
	}
	if n := size(); n > 6*len(before.Bytes())+6*5000*300 {
		t.Errorf("a snapshot of %d bytes", n)
	}
	for i := range 1000 {
		apply(t, s, once(t, i+100, &fsm.AllowMember{ID: "x"}))
	}
	full := size()
	apply(t, s, once(t, 5000, &fsm.AllowMember{ID: "x"}))
	if n := size(); n > full+64 {
		t.Errorf("a snapshot grew from %d to %d bytes", full, n)
	}
	var after bytes.Buffer
	if _, err := sn.WriteTo(&after); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(after.Bytes(), before.Bytes()) {
		t.Error("a snapshot changed after it was taken")
	}
}

func TestOnceWithinItselfIsRefused(t *testing.T) {
	t.Parallel()
	inner := once(t, 1, &fsm.AllowMember{ID: "x"})
	b, err := fsm.Encode(once(t, 2, inner))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := fsm.Decode(b); !errors.Is(err, fsm.ErrCorrupt) || c != nil {
		t.Errorf("got %T, %v", c, err)
	}
	if b, err = fsm.Encode(&fsm.Once{Token: "short", Entry: []byte{1, 0x81, 0x80}}); err != nil {
		t.Fatal(err)
	}
	if c, err := fsm.Decode(b); !errors.Is(err, fsm.ErrCorrupt) || c != nil {
		t.Errorf("got %T, %v", c, err)
	}
}
