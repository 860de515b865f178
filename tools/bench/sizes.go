package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/serve/operator"
	"clustermaster/tools/figure"
	"clustermaster/tools/simminion"
	"clustermaster/value"
)

// Names of figures of a size of jobs.
const (
	FigureReturned = "returns taken"
	FigureArgument = "a job with such an argument, publish to last return"
	FigureAnswer   = "a job with such returns, publish to last return"
)

// Functions of the simulated minions.
const (
	funLength = "bench.length" // the length of its argument
	funText   = "bench.text"   // a text of so many bytes
)

var fleetFunctions = map[string]simminion.Func{
	funLength: func(_ context.Context, c simminion.Call) (any, error) {
		if len(c.Args) == 1 {
			if text, ok := c.Args[0].(string); ok {
				return len(text), nil
			}
		}
		return nil, errors.New("want a text")
	},
	funText: func(_ context.Context, c simminion.Call) (any, error) {
		if len(c.Args) == 1 {
			if n, ok := c.Args[0].(int64); ok && n >= 0 && n <= 1<<24 {
				return textOf(int(n)), nil
			}
		}
		return nil, errors.New("want a number of bytes")
	},
}

// textOf is a text of n bytes that can't be compressed much, the same in each run.
func textOf(n int) string {
	raw := make([]byte, n)
	mathrand.NewChaCha8([32]byte{1}).Read(raw)
	return base64.StdEncoding.EncodeToString(raw)[:n]
}

// sizeName writes a number of bytes, in units of 1,000.
func sizeName(n int) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%g MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%g KB", float64(n)/1e3)
	}
	return figure.Plural(n, "byte")
}

// returnOf is the return of a text, each with a new jid.
func returnOf(text string) kind {
	return kind{name: "_return of " + sizeName(len(text)),
		send: func(ctx context.Context, s *session, l *line, j *job) error {
			return returnValue(ctx, s, l, j.jid(), "test.echo", text)
		}}
}

// measureSize publishes a job with a large argument and a small return, and one with a small
// argument and a large return.
func (f *fleet) measureSize(ctx context.Context, b *bencher, size int, c *Column) error {
	client, err := operator.Dial(ctx, f.own.masters[0].sockDir())
	if err != nil {
		return fmt.Errorf("reach %s: %w", f.own.masters[0].id, err)
	}
	defer client.Close()
	text := textOf(size)
	for _, x := range []struct {
		name, fun string
		arg, want any
	}{{FigureArgument, funLength, text, size}, {FigureAnswer, funText, size, text}} {
		want, err := value.Pack(x.want)
		if err != nil {
			return err
		}
		err = f.median(ctx, b, x.name, c,
			func(ctx context.Context) (int, time.Duration,
				error) {
				return f.job(ctx, client, x.fun, x.arg, want)
			})
		if err != nil {
			return fmt.Errorf("%s of %s: %w", x.fun, sizeName(size), err)
		}
	}
	return nil
}

// job publishes one job to all minions. It returns how many returned, and the time to the last one;
// a wrong return is an error.
func (f *fleet) job(ctx context.Context, client *operator.Client, fun string, arg any,
	want []byte) (answered int, last time.Duration, err error) {
	wrong := 0
	start := time.Now()
	_, err = gather.Run(ctx, client, gather.Publish{Tgt: fleetPrefix + "*", TgtType: "glob",
		Fun: fun, Arg: []any{arg}, User: "root"},
		gather.Options{Timeout: ping{minions: f.n}.timeout()}, func(_ string, r gather.Return) {
			if !bytes.Equal(r.Return, want) {
				wrong++
				return
			}
			answered++
			last = time.Since(start)
		})
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%d of %d minions returned a wrong value", wrong, f.n)
	}
	return answered, last, err
}
