package orchestrate

import (
	"context"

	"clustermaster/value"
)

// Reactions compiles the high data of reactions into low data, in the order in which Salt runs it:
// requisites, then order, then the texts of state, name and function. It is Salt's plain Compiler
// (salt/state.py): nothing is included, extended or excluded, a declaration may set any keyword,
// and watch stays what it is. Texts say what is wrong with the high data; the error is that a bound
// was reached or that ctx ended.
func Reactions(ctx context.Context, high value.Map) (low []value.Map, faults []string, err error) {
	c := &compilation{plain: true, high: dictOf(high)}
	c.verifyHigh()
	if len(c.errors) > 0 {
		return nil, c.errors, nil
	}
	_, ordered, err := c.chain(ctx)
	if err != nil || len(c.errors) > 0 {
		return nil, c.errors, err
	}
	for _, ch := range ordered {
		low = append(low, ch.low)
	}
	return low, nil, nil
}
