package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Bounds of keysize. Salt documents the lower one, to which smaller sizes are raised; the upper one
// is that of the option keysize.
const (
	minKeySize = 2048
	maxKeySize = 8192
)

// generator makes key pairs, one at a time: a long key takes a processor for many seconds.
type generator struct {
	generate func(bits int) (private, public string, err error)
	turn     chan struct{} // holds one element while a key is made
}

func newGenerator(generate func(bits int) (private, public string, err error)) *generator {
	return &generator{generate: generate, turn: make(chan struct{}, 1)}
}

func (g *generator) functions(d KeyFamilyDeps) []Function {
	size := function.Opt("keysize", int64(minKeySize))
	return []Function{
		{
			Name: "key.gen", Params: []function.Param{function.Opt("id_", nil), size},
			Doc: `Make a key pair and return it. The master keeps neither part. keysize is at least 2048 and at
most 8192 bits.

Example:

    wheel.cmd('key.gen')`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				private, public, err := g.pair(ctx, c)
				if err != nil {
					return nil, err
				}
				return toldPair(private, public), nil
			},
		},
		{
			Name: "key.gen_accept", Params: []function.Param{function.Need("id_"), size,
				function.Opt("force", false)},
			Doc: `Make a key pair for a minion, accept the public key on all masters and return both. As with
Salt, characters that a host's name can't have are removed from the id. If the id has an accepted,
pending or rejected key, the return is empty; force=True replaces that key. keysize is at least 2048
and at most 8192 bits.

Example:

    wheel.cmd('key.gen_accept', ['minion1'])`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				id, err := hostID(c.Text("id_"))
				if err != nil {
					return nil, err
				}
				private, public, err := g.pair(ctx, c)
				if err != nil {
					return nil, err
				}
				change, err := d.Keys.PutKey(ctx, id, public, c.True("force"))
				if err != nil {
					return nil, fmt.Errorf("accept the new key of %s: %w", id, err)
				}
				for _, w := range change.Warnings {
					c.Warn(w)
				}
				if len(change.Changed) == 0 {
					return value.Map{}, nil
				}
				return toldPair(private, public), nil
			},
		},
	}
}

// pair makes a key pair of the size that the caller asked for, as a number or as its text: salt-api
// passes the fields of a form.
func (g *generator) pair(ctx context.Context, c *Call) (private, public string, err error) {
	n, err := c.Number("keysize")
	if err != nil {
		return "", "", err
	}
	if n > maxKeySize {
		return "", "", &function.ArgumentError{Text: fmt.Sprintf("keysize must be at most %d",
			maxKeySize)}
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return "", "", context.Cause(ctx)
	}
	return g.generate(int(max(n, minKeySize)))
}

// toldPair keeps the private key out of events and the job cache.
func toldPair(private, public string) Told {
	shown := func(private string) value.Map {
		return value.Map{{Key: "priv", Value: private}, {Key: "pub", Value: public}}
	}
	return Told{Value: shown(private), Kept: shown(redacted)}
}

// maxHostID is the length of the longest id: ids are file names.
const maxHostID = 255

// hostID removes what a host's name can't have from an id, as Salt does
// (salt/utils/sanitizers.py).
func hostID(text string) (string, error) {
	id := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' ||
			r == '-' {
			return r
		}
		return -1
	}, text), ".")
	switch {
	case id == "":
		return "", errors.New("id_ has no letter, digit or hyphen; give the id of a minion")
	case len(id) > maxHostID:
		return "", fmt.Errorf("id_ has more than %d characters; give a shorter one", maxHostID)
	}
	return id, nil
}
