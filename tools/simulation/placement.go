package simulation

import (
	"fmt"
	"strconv"

	"clustermaster/hashring"
)

// Placement describes how the data of some minions is spread over masters.
type Placement struct {
	Masters, Minions, Partitions int

	// Partitions (copies) of a master.
	LeastPartitions, MostPartitions int
	MeanPartitions                  float64
	// MostMinions is the number of minions' data on the fullest master, relative to the mean.
	MostMinions float64

	// Shares of all copies of minions' data that are fetched when one master joins, and when one is
	// removed; Ideal is the share of that master if all had the same.
	Join, Leave, IdealJoin, IdealLeave float64
	// JoinMost is the share of all copies that the joining master itself fetches.
	JoinMost float64
}

// Members names n masters as a cluster does.
func Members(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%d/%016x", i+1, uint64(i+1)*0x9e3779b97f4a7c15)
	}
	return out
}

// minionID names the ith minion.
func minionID(i int) string { return "minion" + strconv.Itoa(i) + ".example.net" }

// Weigh counts how many minions' data each partition holds.
func Weigh(minions, partitions int) []int {
	ring := hashring.New([]string{"m1"}, partitions, 1, 1)
	out := make([]int, partitions)
	for i := range minions {
		out[ring.Partition(minionID(i))]++
	}
	return out
}

// Place puts minions, given by the weight of each partition, on masters.
func Place(masters int, weight []int) (Placement, error) {
	members := Members(masters + 1)
	partitions := len(weight)
	now := hashring.New(members[:masters], partitions, hashring.MaxReplicas, 2)
	p := Placement{Masters: masters, Partitions: partitions, LeastPartitions: partitions}
	for _, w := range weight {
		p.Minions += w
	}
	for _, m := range now.Members() {
		owned, load := 0, 0
		for i := range partitions {
			if now.Owns(m, i) {
				owned++
				load += weight[i]
			}
		}
		p.LeastPartitions, p.MostPartitions = min(p.LeastPartitions,
			owned), max(p.MostPartitions, owned)
		p.MeanPartitions += float64(owned) / float64(masters)
		p.MostMinions = max(p.MostMinions, float64(load))
	}
	copies := float64(p.Minions * now.Replicas())
	p.MostMinions /= copies / float64(masters)

	more := hashring.New(members, partitions, hashring.MaxReplicas, 3)
	moved, own, err := volume(now, more, weight, members[masters])
	if err != nil {
		return p, err
	}
	after := float64(p.Minions * more.Replicas())
	p.Join, p.JoinMost = moved/after, own/after
	// Below three masters, one more master also means one more copy of everything.
	p.IdealJoin = max(1/float64(masters+1),
		float64(more.Replicas()-now.Replicas())/float64(more.Replicas()))
	if masters > 1 {
		fewer := hashring.New(members[1:masters], partitions, hashring.MaxReplicas, 3)
		if moved, _, err = volume(now, fewer, weight, ""); err != nil {
			return p, err
		}
		p.Leave = moved / float64(p.Minions*fewer.Replicas())
		if masters > hashring.MaxReplicas {
			p.IdealLeave = 1 / float64(masters)
		}
	}
	return p, nil
}

// volume returns how many minions' data is fetched for a change, and how much of that by one
// master.
func volume(from, to *hashring.Ring, weight []int, node string) (all, own float64, err error) {
	moves, err := hashring.Plan(from, to)
	for _, m := range moves {
		all += float64(weight[m.Partition])
		if m.Node == node {
			own += float64(weight[m.Partition])
		}
	}
	return all, own, err
}
