package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"clustermaster/value"
)

// Bounds of one compile, far above what a sensible tree needs.
const (
	maxRendered     = 10_000    // SLS files
	maxIncludeDepth = 200       // levels
	maxValues       = 2_000_000 // of all SLS files together
	maxValueDepth   = 100       // levels of maps and lists
	maxDeclarations = 1_000     // states of one id
	maxChunks       = 100_000
	maxEdges        = 1_000_000  // requisites
	maxWork         = 50_000_000 // steps of looking states up by name
	maxErrors       = 1_000
)

// errTooMuch is returned by a compile that exceeded a bound.
var errTooMuch = errors.New("the states are too many to be compiled")

// compilation compiles high data into low chunks.
type compilation struct {
	functions Bound
	disabled  []string // disabled_requisites
	jid       string   // of the orchestration, "" for none
	plain     bool     // like Salt's plain Compiler, which has no functions
	high      *dict
	errors    []string
	work      int
	values    int
}

// fault adds an error about the states.
func (c *compilation) fault(format string, args ...any) {
	if len(c.errors) < maxErrors {
		c.errors = append(c.errors, fmt.Sprintf(format, args...))
	}
}

// spend counts steps; it fails after too many, or when ctx has ended.
func (c *compilation) spend(ctx context.Context, n int) error {
	before := c.work
	if c.work += n; c.work > maxWork {
		return fmt.Errorf("look up states: %w; name fewer states in use, extend and requisites",
			errTooMuch)
	}
	if c.work>>14 != before>>14 {
		return ctx.Err()
	}
	return nil
}

// copyValue returns an unshared copy of a value, within the bounds.
func (c *compilation) copyValue(v any, depth int) (any, error) {
	if c.values++; c.values > maxValues {
		return nil, fmt.Errorf("more than %d values: %w; split the orchestration", maxValues,
			errTooMuch)
	}
	if depth > maxValueDepth {
		return nil, fmt.Errorf("values nested deeper than %d levels: %w", maxValueDepth, errTooMuch)
	}
	switch v := v.(type) {
	case value.Map:
		out := make(value.Map, len(v))
		for i, p := range v {
			made, err := c.copyValue(p.Value, depth+1)
			if err != nil {
				return nil, err
			}
			out[i] = value.Pair{Key: p.Key, Value: made}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			made, err := c.copyValue(e, depth+1)
			if err != nil {
				return nil, err
			}
			out[i] = made
		}
		return out, nil
	}
	return v, nil
}

// compile turns high data into low chunks in the order in which they run: Salt's call_high up to
// the run. The texts are the errors of the states; the error is an exceeded bound, or ctx's.
func (c *compilation) compile(ctx context.Context, high *dict) (*graph, []*chunk, []string, error) {
	c.high = high
	if err := c.reconcileExtend(ctx, false); err != nil {
		return nil, nil, nil, err
	}
	c.verifyHigh()
	if len(c.errors) > 0 {
		return nil, nil, c.errors, nil
	}
	if err := c.requisiteIn(ctx); err != nil {
		return nil, nil, nil, err
	}
	c.applyExclude()
	if len(c.errors) > 0 {
		return nil, nil, c.errors, nil
	}
	g, ordered, err := c.chain(ctx)
	if err != nil || len(c.errors) > 0 {
		return nil, nil, c.errors, err
	}
	return g, ordered, nil, nil
}

// chain makes low chunks from high data and orders them. It adds faults for wrong requisites.
func (c *compilation) chain(ctx context.Context) (*graph, []*chunk, error) {
	chunks, err := c.lowChunks()
	if err != nil {
		return nil, nil, err
	}
	g := newGraph()
	for _, ch := range chunks {
		g.add(ch)
	}
	ordered, err := c.order(ctx, g, chunks)
	return g, ordered, err
}

// isDisabled reports whether a requisite is in disabled_requisites.
func (c *compilation) isDisabled(name string) bool { return slices.Contains(c.disabled, name) }
