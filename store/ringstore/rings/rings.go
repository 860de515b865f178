package rings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
)

// ErrLeft refuses a read by a ring that is not in use any more.
var ErrLeft = errors.New("the ring changed during the query; retry")

// IsLeft reports whether another master refused a read because the ring changed after the read
// began.
func IsLeft(err error) bool {
	return errors.Is(err, ErrLeft) || status.Code(err) == codes.FailedPrecondition
}

// View is the immutable list of the rings in use at one moment.
//
// While the ring changes, writes go to the owners in every ring of the list, with a quorum in each,
// and reads ask the owners in base. A master moves its base to the newest ring when all its members
// have filled their partitions; it drops an older ring when no member of the cluster has that as
// its base any more. So whichever member writes, the owners in each member's base have every
// acknowledged record. DESIGN.md of package ringstore has the argument.
type View struct {
	Rings []*hashring.Ring // ascending epochs, the last is the newest; never empty
	Base  *hashring.Ring   // one of Rings, which reads use
}

// Latest returns the newest ring.
func (v *View) Latest() *hashring.Ring { return v.Rings[len(v.Rings)-1] }

// Settled reports whether no change of the ring is going on.
func (v *View) Settled() bool { return len(v.Rings) == 1 }

// Owners returns the owners of a partition in all rings, the newest ring's first.
func (v *View) Owners(partition int) []string {
	if len(v.Rings) == 1 {
		return v.Rings[0].Owners(partition)
	}
	var out []string
	for i := len(v.Rings) - 1; i >= 0; i-- {
		for _, o := range v.Rings[i].Owners(partition) {
			if !slices.Contains(out, o) {
				out = append(out, o)
			}
		}
	}
	return out
}

// Ring returns the ring of an epoch, nil if it is not in use.
func (v *View) Ring(epoch uint64) *hashring.Ring {
	for _, r := range v.Rings {
		if r.Epoch() == epoch {
			return r
		}
	}
	return nil
}

// Members returns all nodes of all rings, sorted.
func (v *View) Members() []string {
	var out []string
	for _, r := range v.Rings {
		out = append(out, r.Members()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lineage is the form of a view on disk and in messages.
type lineage struct {
	Rings []shape `json:"rings"`
	Base  uint64  `json:"base"`
}

type shape struct {
	Epoch      uint64   `json:"epoch"`
	Members    []string `json:"members"`
	Partitions int      `json:"partitions"`
	Replicas   int      `json:"replicas"`
}

func (v *View) lineage() lineage {
	l := lineage{Base: v.Base.Epoch()}
	for _, r := range v.Rings {
		l.Rings = append(l.Rings, shape{r.Epoch(), r.Members(), r.Partitions(), r.Replicas()})
	}
	return l
}

// Bounds on the rings that another master can make us build.
const (
	maxShapes       = 1024
	maxShapeMembers = 4096
)

func (l lineage) view() (*View, error) {
	if len(l.Rings) == 0 {
		return nil, fmt.Errorf("lineage of %d rings: %w", len(l.Rings), disk.ErrCorrupt)
	}
	v := &View{}
	for _, s := range l.Rings {
		if len(s.Members) > maxShapeMembers || s.Partitions < 1 ||
			s.Partitions > disk.MaxPartitions {
			return nil, fmt.Errorf("ring of %d members and %d partitions: %w", len(s.Members),
				s.Partitions, disk.ErrCorrupt)
		}
		v.Rings = append(v.Rings, hashring.New(s.Members, s.Partitions, s.Replicas, s.Epoch))
	}
	slices.SortFunc(v.Rings, func(a, b *hashring.Ring) int {
		return cmp.Compare(a.Epoch(),
			b.Epoch())
	})
	if v.Base = v.Ring(l.Base); v.Base == nil {
		return nil, fmt.Errorf("lineage without its base %d: %w", l.Base, disk.ErrCorrupt)
	}
	return v, nil
}

// Marshal encodes the view for Parse.
func (v *View) Marshal() ([]byte, error) { return json.Marshal(v.lineage()) }

// Parse decodes the output of Marshal; its errors wrap ErrCorrupt.
func Parse(b []byte) (*View, error) {
	var l lineage
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("read lineage: %w: %w", disk.ErrCorrupt, err)
	}
	v, err := l.view()
	if err != nil {
		return nil, fmt.Errorf("read lineage: %w", err)
	}
	return v, nil
}

// Of returns the rings that a master reports; its errors wrap ErrCorrupt.
func Of(reply *ringpb.StatusReply) (*View, error) {
	if len(reply.Rings) > maxShapes {
		return nil, fmt.Errorf("lineage of %d rings: %w", len(reply.Rings), disk.ErrCorrupt)
	}
	l := lineage{Base: reply.Base}
	for _, r := range reply.Rings {
		l.Rings = append(l.Rings, shape{r.Epoch, r.Members, int(r.Partitions), int(r.Replicas)})
	}
	return l.view()
}

// GaveUp reports whether a member that has all of this one's rings has dropped this one's base. The
// member did so while this master was away and had no share of the data.
func GaveUp(reply *ringpb.StatusReply, v *View) bool {
	if reply.Base == 0 || reply.Epoch < v.Latest().Epoch() {
		return false
	}
	return !slices.ContainsFunc(reply.Rings,
		func(r *ringpb.RingShape) bool { return r.Epoch == v.Base.Epoch() })
}
