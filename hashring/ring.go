package hashring

import (
	"encoding/binary"
	"slices"
	"sort"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// DefaultPartitions is the number of partitions of a new cluster.
const DefaultPartitions = 256

// MaxReplicas bounds the owners of one partition.
const MaxReplicas = 3

// Vnodes is the number of points of each member on the circle that picks primaries.
const Vnodes = 64

// primaryLoad bounds the partitions of a primary, as a factor of the mean. A lower bound moves more
// on a change.
const primaryLoad = 1.15

// Ring is one immutable placement of partitions. It is safe for concurrent use.
type Ring struct {
	members    []string // sorted, distinct
	partitions int
	replicas   int // min(requested, len(members))
	epoch      uint64
	owners     [][]string // by partition, primary first; replicas names each
}

// New places partitions on members, which may be in any order and repeated. It lowers replicas to
// the number of members. An empty member list gives a ring whose partitions have no owners.
// Partitions below 1 count as DefaultPartitions, replicas below 1 as 1.
func New(members []string, partitions, replicas int, epoch uint64) *Ring {
	if partitions < 1 {
		partitions = DefaultPartitions
	}
	sorted := slices.Clone(members)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	r := &Ring{
		members:    sorted,
		partitions: partitions,
		replicas:   min(max(replicas, 1), len(sorted)),
		epoch:      epoch,
		owners:     make([][]string, partitions),
	}
	if len(sorted) > 0 {
		r.place()
	}
	return r
}

// place fills owners: the primary from the circle with bounded loads, the others by rendezvous,
// because neighbours on the circle would be the same few members for all partitions of a primary.
func (r *Ring) place() {
	primary := r.primaries()
	seeds := make([]uint64, len(r.members))
	for i, m := range r.members {
		seeds[i] = xxhash.Sum64String(m)
	}
	backing := make([]string, 0, r.partitions*r.replicas)
	for p := range r.partitions {
		start := len(backing)
		first := primary(p)
		backing = append(backing, first)
		for _, m := range r.ranked(p, seeds) {
			if len(backing)-start == r.replicas {
				break
			}
			if m != first {
				backing = append(backing, m)
			}
		}
		r.owners[p] = backing[start:len(backing):len(backing)]
	}
}

// primaries returns the function from partition to its primary. With more members than partitions
// the circle can't be used (its bound would be zero), and rendezvous alone decides.
func (r *Ring) primaries() func(p int) string {
	if len(r.members) > r.partitions {
		seeds := make([]uint64, len(r.members))
		for i, m := range r.members {
			seeds[i] = xxhash.Sum64String(m)
		}
		return func(p int) string { return r.ranked(p, seeds)[0] }
	}
	points := make([]consistent.Member, len(r.members))
	for i, m := range r.members {
		points[i] = point(m)
	}
	circle := consistent.New(points, consistent.Config{
		Hasher: hasher{}, PartitionCount: r.partitions, ReplicationFactor: Vnodes,
		Load: primaryLoad,
	})
	return func(p int) string { return circle.GetPartitionOwner(p).String() }
}

// ranked orders the members by their rendezvous score for a partition, best first; it returns at
// most replicas+1 of them, enough for replicas owners whichever the primary is.
func (r *Ring) ranked(p int, seeds []uint64) []string {
	type scored struct {
		score uint64
		at    int
	}
	limit := min(r.replicas+1, len(r.members))
	best := make([]scored, 0, limit+1)
	for i, seed := range seeds {
		s := scored{score: mix(seed, uint64(p)), at: i}
		at := sort.Search(len(best), func(j int) bool {
			return best[j].score < s.score || best[j].score == s.score && best[j].at > s.at
		})
		if at == limit {
			continue
		}
		best = slices.Insert(best, at, s)
		best = best[:min(len(best), limit)]
	}
	names := make([]string, len(best))
	for i, b := range best {
		names[i] = r.members[b.at]
	}
	return names
}

// Members returns the sorted members; the slice is shared and read-only.
func (r *Ring) Members() []string { return r.members }

// Epoch returns the number of this placement; a later ring has a higher one.
func (r *Ring) Epoch() uint64 { return r.epoch }

// Partitions returns the number of partitions, fixed when the cluster was founded.
func (r *Ring) Partitions() int { return r.partitions }

// Replicas returns how many owners each partition has.
func (r *Ring) Replicas() int { return r.replicas }

// WriteQuorum returns how many owners must hold a record before it counts as written: R/2+1, or 0
// in an empty ring.
func (r *Ring) WriteQuorum() int {
	if r.replicas == 0 {
		return 0
	}
	return r.replicas/2 + 1
}

// ReadQuorum returns how many owners must answer a read so that it finds every written record:
// R-W+1.
func (r *Ring) ReadQuorum() int {
	if r.replicas == 0 {
		return 0
	}
	return r.replicas - r.WriteQuorum() + 1
}

// Partition returns the partition of a place, from 0.
func (r *Ring) Partition(place string) int {
	return int(xxhash.Sum64String(place) % uint64(r.partitions))
}

// Owners returns the owners of a partition, primary first; the slice is shared and read-only. It is
// empty in an empty ring and for a partition out of range.
func (r *Ring) Owners(partition int) []string {
	if partition < 0 || partition >= r.partitions {
		return nil
	}
	return r.owners[partition]
}

// Owns reports whether node is an owner of the partition.
func (r *Ring) Owns(node string, partition int) bool {
	return slices.Contains(r.Owners(partition), node)
}

// Has reports whether node is a member.
func (r *Ring) Has(node string) bool {
	_, ok := slices.BinarySearch(r.members, node)
	return ok
}

// Share returns the part of all copies that node owns, from 0 to 1; the shares of all members add
// up to 1.
func (r *Ring) Share(node string) float64 {
	if r.replicas == 0 {
		return 0
	}
	n := 0
	for p := range r.partitions {
		if r.Owns(node, p) {
			n++
		}
	}
	return float64(n) / float64(r.partitions*r.replicas)
}

// PrimaryShare returns the part of all partitions whose primary is node, from 0 to 1.
func (r *Ring) PrimaryShare(node string) float64 {
	n := 0
	for p := range r.partitions {
		if len(r.owners[p]) > 0 && r.owners[p][0] == node {
			n++
		}
	}
	return float64(n) / float64(r.partitions)
}

// Rank orders candidates for a partition by rendezvous score, best first, the same on every master;
// writers find the stand-in for an absent owner with it.
func Rank(partition int, candidates []string) []string {
	out := slices.Clone(candidates)
	slices.SortFunc(out, func(a, b string) int {
		sa, sb := mix(xxhash.Sum64String(a), uint64(partition)), mix(xxhash.Sum64String(b),
			uint64(partition))
		switch {
		case sa > sb:
			return -1
		case sa < sb:
			return 1
		case a < b:
			return -1
		}
		return 1
	})
	return out
}

// mix hashes a member's seed with a partition number.
func mix(seed, partition uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], seed)
	binary.LittleEndian.PutUint64(b[8:], partition)
	return xxhash.Sum64(b[:])
}

type point string

func (p point) String() string { return string(p) }

type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }
