package hashring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("master%02d/%016x", i, uint64(i)*0x9e3779b97f4a7c15)
	}
	return out
}

func TestOwnersAreDistinctMembersPrimaryFirst(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 4, 5, 7, 16, 43, 86, 100, 129, 255, 256, 257, 300} {
		r := New(names(n), 256, 3, 9)
		if got, want := r.Replicas(), min(3, n); got != want {
			t.Fatalf("n=%d: replicas %d, want %d", n, got, want)
		}
		for p := range r.Partitions() {
			owners := r.Owners(p)
			if len(owners) != r.Replicas() {
				t.Fatalf("n=%d partition %d: %d owners, want %d", n, p, len(owners), r.Replicas())
			}
			seen := map[string]bool{}
			for _, o := range owners {
				if seen[o] || !r.Has(o) || !r.Owns(o, p) {
					t.Fatalf("n=%d partition %d: bad owners %v", n, p, owners)
				}
				seen[o] = true
			}
		}
	}
}

func TestSameRingWhateverTheOrderOfMembers(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 3, 5, 9, 40} {
		want := New(names(n), 256, 3, 1)
		for range 5 {
			members := names(n)
			members = append(members, members[rnd.IntN(n)]) // one twice
			rnd.Shuffle(len(members), func(i, j int) {
				members[i], members[j] = members[j],
					members[i]
			})
			got := New(members, 256, 3, 1)
			if !slices.Equal(got.Members(), want.Members()) {
				t.Fatalf("members %v, want %v", got.Members(), want.Members())
			}
			for p := range 256 {
				if !slices.Equal(got.Owners(p), want.Owners(p)) {
					t.Fatalf("n=%d partition %d: %v, want %v", n, p, got.Owners(p), want.Owners(p))
				}
			}
		}
	}
}

// The owners are part of what masters of different builds must agree on: a change here splits a
// cluster.
func TestPlacementIsPinned(t *testing.T) {
	t.Parallel()
	r := New([]string{"m1/a", "m2/b", "m3/c", "m4/d"}, 256, 3, 1)
	got := fmt.Sprint(r.Partition("20261121093335299638"), r.Partition("web1"), r.Owners(0),
		r.Owners(77), r.Owners(255))
	const want = "126 165 [m3/c m4/d m2/b] [m1/a m3/c m4/d] [m1/a m3/c m4/d]"
	if got != want {
		t.Fatalf("placement changed:\n got %s\nwant %s", got, want)
	}
}

func TestBalance(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 4, 5, 7, 10, 20} {
		r := New(names(n), 256, 3, 1)
		var sum float64
		for _, m := range r.Members() {
			share := r.Share(m)
			sum += share
			if mean := 1 / float64(n); share < mean*0.6 || share > mean*1.45 {
				t.Errorf("n=%d: share of %s is %.3f, mean %.3f", n, m, share, mean)
			}
			if mean := 1 / float64(n); r.PrimaryShare(m) > mean*primaryLoad+1.0/256*2 {
				t.Errorf("n=%d: primary share of %s is %.3f, mean %.3f", n, m,
					r.PrimaryShare(m), mean)
			}
		}
		if sum < 0.999 || sum > 1.001 {
			t.Errorf("n=%d: shares add up to %f", n, sum)
		}
	}
}

func TestAChangeMovesLittle(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 4, 5, 8, 12, 20} {
		all := names(n + 1)
		old, grown := New(all[:n], 256, 3, 1), New(all, 256, 3, 2)
		for name, pair := range map[string][2]*Ring{"join": {old, grown}, "leave": {grown, old}} {
			moves, err := Plan(pair[0], pair[1])
			if err != nil {
				t.Fatal(err)
			}
			copies := 256 * 3
			ideal := float64(copies) / float64(n+1)
			if float64(len(moves)) > ideal*2.0 {
				t.Errorf("%s at n=%d moves %d copies, ideal %.0f", name, n, len(moves), ideal)
			}
			for _, m := range moves {
				if pair[0].Owns(m.Node, m.Partition) || !pair[1].Owns(m.Node, m.Partition) {
					t.Fatalf("%s: move %+v is not one", name, m)
				}
				if !slices.Equal(m.From, pair[0].Owners(m.Partition)) {
					t.Fatalf("%s: move %+v from others than the old owners", name, m)
				}
			}
		}
	}
}

func TestPlanFromOneToThree(t *testing.T) {
	t.Parallel()
	one, two, three := New(names(1), 256, 1, 1), New(names(2), 256, 2, 2), New(names(3), 256, 3, 3)
	for _, tc := range []struct {
		name     string
		old, new *Ring
		moves    int
		changed  int
	}{
		{"1 to 2: the second gets all", one, two, 256, 256},
		{"2 to 3: the third gets all", two, three, 256, 256},
		{"1 to 3", one, three, 512, 256},
		{"3 to 2: nobody gets anything, all compare", three, two, 0, 256},
		{"same", three, three, 0, 0},
	} {
		moves, err := Plan(tc.old, tc.new)
		if err != nil {
			t.Fatal(err)
		}
		if len(moves) != tc.moves || len(Changed(tc.old, tc.new)) != tc.changed {
			t.Errorf("%s: %d moves, %d changed, want %d, %d", tc.name, len(moves),
				len(Changed(tc.old, tc.new)), tc.moves, tc.changed)
		}
	}
	if _, err := Plan(one, New(names(1), 128, 1, 2)); !errors.Is(err, ErrPartitions) {
		t.Errorf("plan over different partitions: %v, want ErrPartitions", err)
	}
}

func TestQuorums(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][2]int{0: {0, 0}, 1: {1, 1}, 2: {2, 1}, 3: {2, 2}, 9: {2, 2}} {
		r := New(names(n), 16, 3, 1)
		if got := [2]int{r.WriteQuorum(), r.ReadQuorum()}; got != want {
			t.Errorf("n=%d: quorums %v, want %v", n, got, want)
		}
	}
	if r := New(nil, 16, 3, 1); len(r.Owners(3)) != 0 || r.Share("x") != 0 ||
		r.PrimaryShare("x") != 0 {
		t.Error("an empty ring owns something")
	}
	if r := New(names(2), 16, 3, 1); r.Owners(-1) != nil || r.Owners(16) != nil {
		t.Error("owners of a partition out of range")
	}
}

func TestRankAgreesAndSpreads(t *testing.T) {
	t.Parallel()
	first := map[string]int{}
	for p := range 256 {
		a := Rank(p, []string{"a", "b", "c", "d"})
		b := Rank(p, []string{"d", "c", "b", "a"})
		if !slices.Equal(a, b) {
			t.Fatalf("partition %d: %v and %v", p, a, b)
		}
		first[a[0]]++
	}
	for m, n := range first {
		if n < 30 {
			t.Errorf("%s is first only %d times of 256", m, n)
		}
	}
}

// Every request looks owners up.
func TestLookupAllocatesNothing(t *testing.T) {
	r := New(names(5), 256, 3, 1)
	if n := testing.AllocsPerRun(100,
		func() { _ = r.Owns("m1", r.Partition("20261121093335299638")) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{3, 20, 100} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			members := names(n)
			for b.Loop() {
				New(members, 256, 3, 1)
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	r := New(names(5), 256, 3, 1)
	b.ReportAllocs()
	for b.Loop() {
		if len(r.Owners(r.Partition("20261121093335299638"))) != 3 {
			b.Fatal("owners")
		}
	}
}
