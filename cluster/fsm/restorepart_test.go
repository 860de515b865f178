package fsm_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
)

// backedUp is a state with something of everything that a backup keeps, and the backup.
func backedUp(t testing.TB) fsm.Saved {
	t.Helper()
	s := founded(t)
	keys := &fsm.ImportKeys{At: at}
	for i := range 40 {
		id := fmt.Sprintf("web%d", i)
		keys.Keys = append(keys.Keys, fsm.Key{ID: id,
			State: []fsm.KeyState{fsm.KeyAccepted, fsm.KeyRejected, fsm.KeyPending}[i%3],
			Pub:   strings.Repeat(id, 20)},
			fsm.Key{ID: id, State: fsm.KeyDenied, Pub: "denied"})
	}
	s.Apply(2, keys)
	s.Apply(3, &fsm.PutMember{Member: member(2), At: at})
	s.Apply(4, &fsm.RemoveMember{Node: member(2).Node, Bar: true, At: at})
	for i := range 12 {
		s.Apply(uint64(5+i), put(byte(i+1), "file/carol", at.Add(time.Hour)))
	}
	return savedOf(s)
}

// elsewhere is a state that the backup is not of.
func elsewhere(t testing.TB) *fsm.State {
	t.Helper()
	s := founded(t)
	s.Apply(2,
		&fsm.ImportKeys{At: at, Keys: []fsm.Key{{ID: "stray", State: fsm.KeyAccepted, Pub: "x"}}})
	return s
}

// A restore in parts does what one in a single entry does, at the end and not before, also where a
// snapshot comes in between, and no entry is large.
func TestRestoreInParts(t *testing.T) {
	t.Parallel()
	saved := backedUp(t)
	const limit = 4000
	parts, end := saved.Split("token", at, limit)
	if len(parts) < 4 || end.Parts != len(parts) {
		t.Fatalf("%d parts, %d at the end", len(parts), end.Parts)
	}
	s := elsewhere(t)
	before := savedOf(s)
	for i, p := range parts {
		if b, err := fsm.Encode(p); err != nil || len(b) > limit {
			t.Errorf("part %d has %d bytes, %v", i, len(b), err)
		}
		index := uint64(10 + i)
		if r, change := s.Apply(index, through(t, p)); !r.Changed ||
			!reflect.DeepEqual(change, fsm.Change{Op: fsm.OpRestorePart}) {
			t.Errorf("part %d: %+v %+v", i, r, change)
		}
		was := snapshot(t, s)
		if r, _ := s.Apply(index, through(t, p)); r.Changed || r.Refused != "" ||
			!bytes.Equal(snapshot(t, s), was) {
			t.Errorf("a repeat of part %d: %+v", i, r)
		}
		if !reflect.DeepEqual(savedOf(s), before) {
			t.Errorf("something came back with part %d", i)
		}
		if s = rebuilt(t, s); !bytes.Equal(snapshot(t, s), was) {
			t.Errorf("after part %d a snapshot of a snapshot differs", i)
		}
	}
	if since, ok := s.Unfinished(); !ok || !since.Equal(at) {
		t.Errorf("unfinished since %v, %v", since, ok)
	}
	whole := elsewhere(t)
	r, change := s.Apply(100, through(t, end))
	if want, _ := whole.Apply(100, &fsm.Restore{Saved: saved, At: at}); !reflect.DeepEqual(r,
		want) || !change.Restored || !change.Secrets {
		t.Errorf("the end: %+v %+v", r, change)
	}
	if !bytes.Equal(snapshot(t, s), snapshot(t, whole)) {
		t.Error("it differs from a restore in one entry")
	}
	if _, ok := s.Unfinished(); ok {
		t.Error("unfinished at its end")
	}
}

// A restore of which something is missing, or that another one came into, changes nothing.
func TestRestoreInPartsIsAllOrNothing(t *testing.T) {
	t.Parallel()
	saved := backedUp(t)
	parts, end := saved.Split("token", at, 4000)
	other, _ := saved.Split("another", at, 4000)
	nothing := &fsm.RestorePart{Token: "none", At: at.Add(time.Hour)}
	for _, tt := range []struct {
		name     string
		commands []fsm.Command
		refused  fsm.Refusal // of the last
	}{
		{"the end alone", []fsm.Command{end}, fsm.RefusedStale},
		{"one missing at the end", []fsm.Command{parts[0], parts[1], end}, fsm.RefusedStale},
		{"one missing in the middle", []fsm.Command{parts[0], parts[2]}, fsm.RefusedStale},
		{"no first", []fsm.Command{parts[1]}, fsm.RefusedStale},
		{"another one began", []fsm.Command{parts[0], other[0], parts[1]}, fsm.RefusedStale},
		{"another one's end", []fsm.Command{other[0],
			&fsm.Restore{Saved: end.Saved, Token: "token", Parts: 1}}, fsm.RefusedStale},
		{"thrown away", []fsm.Command{parts[0], parts[1], nothing, parts[2]}, fsm.RefusedStale},
		{"no token", []fsm.Command{&fsm.RestorePart{Keys: saved.Keys}}, fsm.RefusedInvalid},
		{"a number below 0", []fsm.Command{&fsm.RestorePart{Token: "token", Number: -1,
			Keys: saved.Keys}}, fsm.RefusedInvalid},
	} {
		s := elsewhere(t)
		before := savedOf(s)
		var last fsm.Result
		for i, c := range tt.commands {
			last, _ = s.Apply(uint64(10+i), through(t, c))
		}
		if last.Refused != tt.refused || last.Changed {
			t.Errorf("%s: %+v, want %q", tt.name, last, tt.refused)
		}
		if !reflect.DeepEqual(savedOf(s), before) {
			t.Errorf("%s: something came back", tt.name)
		}
		s.Apply(90, nothing)
		if _, ok := s.Unfinished(); ok {
			t.Errorf("%s: parts are left", tt.name)
		}
	}
	if r, _ := fsm.New().Apply(1, parts[0]); r.Refused != fsm.RefusedNotFounded {
		t.Errorf("before founding: %+v", r)
	}
}

func savedOf(s *fsm.State) fsm.Saved {
	saved, _ := s.Saved()
	return saved
}

// TestSavedIsOfOneIndex: what a backup keeps is the state of its index, whatever is applied
// meanwhile.
func TestSavedIsOfOneIndex(t *testing.T) {
	t.Parallel()
	s := elsewhere(t)
	first := s.AppliedIndex() + 1
	ids := []string{"x"}
	key := func(state fsm.KeyState) *fsm.ImportKeys {
		return &fsm.ImportKeys{Keys: []fsm.Key{{ID: "x", Pub: "pub", State: state}}}
	}
	cycle := []fsm.Command{key(fsm.KeyDenied),
		&fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: ids, From: fsm.StateSet(fsm.KeyAccepted)},
		&fsm.ChangeKeys{Action: fsm.AcceptKeys, IDs: ids, From: fsm.StateSet(fsm.KeyDenied)}}
	s.Apply(first, key(fsm.KeyAccepted))
	var applier sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	applier.Go(func() {
		for i := uint64(0); ctx.Err() == nil; i++ {
			s.Apply(first+1+i, cycle[i%3])
		}
	})
	for seen := uint64(0); seen < first+3000; {
		var saved fsm.Saved
		saved, seen = s.Saved()
		accepted := slices.ContainsFunc(saved.Keys, func(k fsm.Key) bool { return k.ID == "x" })
		denied := len(saved.Denied["x"]) > 0
		after := (seen - first) % 3 // 0: accepted, 1: both, 2: denied
		if accepted != (after < 2) || denied != (after > 0) {
			t.Errorf("at index %d, %d of the cycle: accepted %t, denied %t", seen, after, accepted, denied)
			break
		}
	}
	cancel()
	applier.Wait()
}
