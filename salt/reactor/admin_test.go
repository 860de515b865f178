package reactor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
)

// alone is a cluster of one: each command is applied at once.
type alone struct {
	state     *fsm.State
	index     uint64
	confirmed []uint64
}

func (a *alone) State() *fsm.State { return a.state }
func (a *alone) Now() time.Time    { return time.Unix(0, 0) }

func (a *alone) Propose(_ context.Context, c fsm.Command) (fsm.Result, uint64, error) {
	a.index++
	r, _ := a.state.Apply(a.index, c)
	return r, a.index, nil
}

func (a *alone) ConfirmEverywhere(_ context.Context, index uint64) []string {
	a.confirmed = append(a.confirmed, index)
	return nil
}

// A change is in force as soon as it is made, and what is too much is refused with its bounds.
func TestAdminChangesReactorsWithinTheirBounds(t *testing.T) {
	t.Parallel()
	c := &alone{state: fsm.New(), index: 1}
	if r, _ := c.state.Apply(1, &fsm.Found{
		Cluster: fsm.Cluster{UUID: "u", Partitions: 256},
		Member:  fsm.Member{Node: fsm.NodeName("m1", "1"), ID: "m1", Incarnation: "1"},
		AES:     "a", Session: []byte("s"), At: time.Unix(0, 0),
	}); r.Refused != "" {
		t.Fatal(r.Refused)
	}
	agreed := NewAgreed(c)
	a := Admin{Reactor: New(Deps{Changes: agreed.Changes}, Options{Rules: []Rule{{Tag: "own"}}},
		nil, nil), Agreed: agreed}
	if ok, err := a.AddReactor(t.Context(), "tag", []string{"salt://a.sls"}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got := fmt.Sprint(a.Reactors()); !strings.Contains(got, "salt://a.sls") {
		t.Errorf("reactors %s", got)
	}
	if len(c.confirmed) != 1 || c.confirmed[0] != c.index {
		t.Errorf("confirmed %v, index %d", c.confirmed, c.index)
	}
	_, err := a.AddReactor(t.Context(), strings.Repeat("x", fsm.MaxReactorTag+1), nil)
	if err == nil || !strings.Contains(err.Error(),
		"at most 1024 bytes and 100 files of 4096 bytes") {
		t.Errorf("a long tag: %v", err)
	}
	for i := 1; i < fsm.MaxReactors; i++ {
		if _, err := a.AddReactor(t.Context(), fmt.Sprint("tag", i), []string{"a"}); err != nil {
			t.Fatal(i, err)
		}
	}
	_, err = a.AddReactor(t.Context(), "more", []string{"a"})
	if err == nil || !strings.Contains(err.Error(), "1000 are added or deleted") {
		t.Errorf("one too many: %v", err)
	}
	if err := a.Lead(t.Context(), false); err != nil || a.Leading() || !agreed.Changes().Off {
		t.Errorf("not off: %v", err)
	}
}
