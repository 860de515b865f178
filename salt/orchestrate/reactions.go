package orchestrate

import (
	"context"

	"clustermaster/value"
)

// Reactions compiles the high data of reactions into low data, in the order in which Salt runs it:
// requisites, then order, then the texts of state, name and function. It is Salt's plain Compiler
// (salt/state.py): it includes, extends and excludes nothing, a declaration may set any keyword,
// and watch stays unchanged. The texts are errors in the high data; the error is an exceeded bound,
// or ctx's.
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
