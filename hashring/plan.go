package hashring

import (
	"errors"
	"fmt"
	"slices"
)

// ErrPartitions is returned for two rings with different numbers of partitions: records can't be
// moved between them.
var ErrPartitions = errors.New("rings differ in their number of partitions")

// Move is one partition that a new owner must fetch.
type Move struct {
	Partition int
	Node      string   // the node that gets a copy
	From      []string // the owners in the old ring; shared and read-only
}

// Plan lists what new owners must fetch when the ring changes from old to next, by partition and
// then node.
func Plan(old, next *Ring) ([]Move, error) {
	if old.partitions != next.partitions {
		return nil, fmt.Errorf("plan from %d to %d partitions: %w", old.partitions, next.partitions,
			ErrPartitions)
	}
	var moves []Move
	for p := range next.partitions {
		at := len(moves)
		for _, node := range next.owners[p] {
			if !slices.Contains(old.owners[p], node) {
				moves = append(moves, Move{Partition: p, Node: node, From: old.owners[p]})
			}
		}
		slices.SortFunc(moves[at:], func(a, b Move) int {
			if a.Node < b.Node {
				return -1
			}
			return 1
		})
	}
	return moves, nil
}

// Changed lists the partitions whose set of owners differs between the rings, in order. In these
// even an owner in both rings must compare its copies: a quorum of the old ring need not be one of
// the new ring.
func Changed(old, next *Ring) []int {
	var out []int
	for p := range next.partitions {
		a, b := slices.Clone(old.Owners(p)), slices.Clone(next.Owners(p))
		slices.Sort(a)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			out = append(out, p)
		}
	}
	return out
}
