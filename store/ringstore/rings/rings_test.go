package rings

import (
	"errors"
	"testing"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
)

// A list is read as it was written, and as another master says it.
func TestViewsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	first := hashring.New([]string{"m1/a", "m2/b"}, 64, 3, 1)
	next := hashring.New([]string{"m1/a", "m2/b", "m3/c", "m4/d"}, 64, 3, 2)
	v := &View{Rings: []*hashring.Ring{first, next}, Base: first}
	b, err := v.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	reply := &ringpb.StatusReply{Base: 1}
	for _, r := range []*hashring.Ring{next, first} { // in any order
		reply.Rings = append(reply.Rings, &ringpb.RingShape{Epoch: r.Epoch(), Members: r.Members(),
			Partitions: uint32(r.Partitions()), Replicas: uint32(r.Replicas())})
	}
	for what, read := range map[string]func() (*View, error){
		"from disk":           func() (*View, error) { return Parse(b) },
		"from another master": func() (*View, error) { return Of(reply) },
	} {
		got, err := read()
		if err != nil || len(got.Rings) != 2 || got.Base.Epoch() != 1 ||
			got.Latest().Epoch() != 2 || !got.Latest().Has("m4/d") || got.Base.Has("m4/d") {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	if GaveUp(reply, v) {
		t.Error("a master that has all rings gave one up")
	}
	reply.Rings, reply.Base, reply.Epoch = reply.Rings[:1], 2, 2
	if !GaveUp(reply, v) {
		t.Error("a master without the base did not give it up")
	}
}

// What another master says is bounded before rings are made of it.
func TestBoundsOfAnswers(t *testing.T) {
	t.Parallel()
	shape := func(members, partitions int) *ringpb.RingShape {
		return &ringpb.RingShape{Epoch: 1, Members: make([]string, members),
			Partitions: uint32(partitions), Replicas: 3}
	}
	for what, shapes := range map[string][]*ringpb.RingShape{
		"rings":        make([]*ringpb.RingShape, maxShapes+1),
		"no rings":     {},
		"members":      {shape(maxShapeMembers+1, 64)},
		"partitions":   {shape(1, disk.MaxPartitions+1)},
		"no partition": {shape(1, 0)},
	} {
		if _, err := Of(&ringpb.StatusReply{Base: 1,
			Rings: shapes}); !errors.Is(err, disk.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
