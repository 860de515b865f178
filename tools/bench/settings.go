package bench

import (
	"fmt"
	"os"
	"slices"

	"clustermaster/tools/figure"
)

// Parts of --grow.
const (
	PartMinions = "minions"
	PartMasters = "masters"
	PartSizes   = "sizes"
)

var growParts = []string{PartMinions, PartMasters, PartSizes}

// MostPillars is the largest fleet that fetches its pillars when Salt's own master is measured,
// which makes some 13 in a second.
const MostPillars = 1000

// setting is one start of masters, and what to measure of them.
type setting struct {
	product product
	masters int
	kinds   []kind
	fleets  []int  // numbers of listening minions, rising
	column  Column // still without figures
}

// settings lists what the command line asks for, in the order of measurement.
func (b *bencher) settings() ([]*setting, error) {
	program, err := b.flags.binary, error(nil)
	if program == "" {
		program, err = os.Executable()
	}
	if err != nil {
		return nil, fmt.Errorf("find program to start: %w; give --binary PROGRAM", err)
	}
	ours := clustermaster(program)
	switch {
	case b.flags.compare != "":
		theirs, err := saltProduct(b.flags.compare, b.key)
		if err != nil {
			return nil, err
		}
		ours.ready, ours.compared = theirs.ready, true // the same for both
		return b.rounds(theirs, ours), nil
	case b.flags.grow:
		return b.growth(ours)
	}
	var out []*setting
	for _, n := range b.flags.sizes {
		out = append(out, b.setting(ours, n, Column{}))
	}
	return out, nil
}

// setting measures n masters in every way.
func (b *bencher) setting(p product, n int, c Column) *setting {
	c.Name, c.Minions, c.Workers = figure.Plural(n, "master"), b.flags.minions, b.flags.workers
	return &setting{product: p, masters: n, kinds: b.kinds, fleets: b.flags.fleets, column: c}
}

// rounds measures two products in turns, so that other load on the machine affects both.
func (b *bencher) rounds(theirs, ours product) (out []*setting) {
	for round := 1; round <= b.flags.rounds; round++ {
		for _, n := range b.flags.sizes {
			both := []product{theirs, ours}
			if round%2 == 0 {
				slices.Reverse(both)
			}
			for _, p := range both {
				s := b.setting(p, n, Column{Product: p.name, Size: n, Round: round})
				s.column.Name = fmt.Sprintf("%s, %d of %d rounds, %s", p.name, round,
					b.flags.rounds, s.column.Name)
				if round > 1 || n > 1 {
					s.fleets = nil
				}
				out = append(out, s)
			}
		}
	}
	return out
}

// growth measures the parts of --grow.
func (b *bencher) growth(p product) (out []*setting, err error) {
	some, err := choose("auth,return,minion_event,pillar,mine", "")
	if err != nil {
		return nil, err
	}
	for _, part := range b.flags.parts {
		sizes := map[string][]int{PartMinions: {1}, PartMasters: b.flags.sizes, PartSizes: {1, 3}}
		for _, n := range sizes[part] {
			s := b.setting(p, n, Column{Part: part})
			switch part {
			case PartMinions:
				s.fleets = append([]int{0}, s.fleets...)
			case PartMasters:
				s.kinds, s.fleets = some, []int{b.flags.minions}
			}
			out = append(out, s)
		}
	}
	return out, nil
}
