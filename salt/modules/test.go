package modules

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"clustermaster/value"
)

// Bounds on the counting functions of the family test.
const (
	maxFib     = 93 // the largest whose number fits into 64 bits
	maxCollatz = 1 << 50
	maxSteps   = 10_000
)

func testFunctions() []function {
	random := []param{opt("size", int64(9999999999)), opt("hash_type", nil)}
	return []function{
		{name: "test.ping", run: func(context.Context, *call) (any, error) { return true, nil }},
		{name: "test.echo", params: []param{need("text")},
			run: func(_ context.Context, c *call) (any, error) { return c.any("text"), nil }},
		{name: "test.version", run: func(_ context.Context, c *call) (any,
			error) {
			return c.deps.Version, nil
		}},
		{name: "test.true", run: func(context.Context, *call) (any, error) { return true, nil }},
		{name: "test.false", run: func(context.Context, *call) (any, error) { return false, nil }},
		{name: "test.get_opts", run: func(_ context.Context, c *call) (any,
			error) {
			return c.who.Opts, nil
		}},
		{name: "test.arg", varArgs: true, varKwargs: true,
			run: func(_ context.Context, c *call) (any, error) { return c.given(c.kwargs), nil }},
		{name: "test.arg_clean", varArgs: true, varKwargs: true,
			run: func(_ context.Context, c *call) (any, error) {
				clean := value.Map{}
				for _, p := range c.kwargs {
					if !strings.HasPrefix(text(p.Key), "__") {
						clean = append(clean, p)
					}
				}
				return c.given(clean), nil
			}},
		{name: "test.kwarg", varKwargs: true, run: func(_ context.Context, c *call) (any, error) {
			return orEmpty(c.kwargs), nil
		}},
		{name: "test.fib", params: []param{need("num")}, run: fib},
		{name: "test.collatz", params: []param{need("start")}, run: collatz},
		{name: "test.retcode", params: []param{opt("code", int64(42))},
			run: func(ctx context.Context, c *call) (any, error) {
				code, _ := number(c.any("code"))
				leave(ctx, int(code))
				return true, nil
			}},
		{name: "test.rand_str", params: random, run: randomHash},
		{name: "test.random_hash", params: random, run: randomHash},
		{name: "test.try", python: "try_",
			params: []param{need("module"), opt("return_try_exception", false)}, varKwargs: true,
			run: try},
	}
}

// given returns the arguments of a call.
func (c *call) given(kwargs value.Map) value.Map {
	return value.Map{{Key: "args", Value: append([]any{}, c.more...)},
		{Key: "kwargs", Value: orEmpty(kwargs)}}
}

// fib returns a Fibonacci number and the time in seconds.
func fib(_ context.Context, c *call) (any, error) {
	began := time.Now()
	n, err := c.whole("num")
	switch {
	case err != nil:
		return nil, err
	case n < 0:
		return nil, errors.New("Negative number is not allowed!")
	case n > maxFib:
		return nil, fmt.Errorf("num %d is too large; use at most %d", n, maxFib)
	}
	before, at := uint64(0), uint64(1)
	if n == 0 {
		at = 0
	}
	for i := int64(1); i < n; i++ {
		before, at = at, before+at
	}
	return []any{at, time.Since(began).Seconds()}, nil
}

// collatz returns the Collatz sequence from a number to 1 and the time in seconds. As in
// Python, halving gives floats.
func collatz(_ context.Context, c *call) (any, error) {
	began := time.Now()
	start, err := c.whole("start")
	if err != nil {
		return nil, err
	}
	if start < 1 || start > maxCollatz {
		return nil, fmt.Errorf("start %d is not in the range from 1 to %d", start, int64(maxCollatz))
	}
	steps := []any{}
	halved := false
	for at := start; at != 1; {
		if len(steps) == maxSteps || at > maxCollatz<<2 {
			return nil, fmt.Errorf("the sequence from %d is too long", start)
		}
		var step any = at
		if halved {
			step = float64(at)
		}
		steps = append(steps, step)
		if at%2 == 0 {
			at, halved = at/2, true
		} else {
			at = at*3 + 1
		}
	}
	return []any{steps, time.Since(began).Seconds()}, nil
}

// randomHash is the hash of a random number up to size.
func randomHash(_ context.Context, c *call) (any, error) {
	size, ok := c.any("size").(int64)
	if !ok || size < 0 {
		return nil, fmt.Errorf("size must be a whole number of at least 0, not %s",
			value.Repr(c.any("size")))
	}
	kind := c.text("hash_type")
	if !c.is("hash_type") {
		kind = c.who.Opts.String("hash_type")
	}
	n, err := rand.Int(rand.Reader, new(big.Int).Add(big.NewInt(size), big.NewInt(1)))
	if err != nil {
		return nil, err
	}
	return digest(kind, []byte(n.String()))
}

// try calls a function, and returns nil if it fails.
func try(ctx context.Context, c *call) (any, error) {
	v, err := c.Call(ctx, c.who, c.text("module"), nil, c.kwargs)
	switch {
	case err == nil:
		return v, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case c.is("return_try_exception"):
		return nil,
			fmt.Errorf("return_try_exception is not built in, because an exception is not data: %w", err)
	}
	return nil, nil
}
