package reactor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// chunk is one reaction as low data: state (local, runner, ...), fun, name, __id__, __sls__ and the
// keys of the SLS file.
type chunk struct {
	value.Map
	state, fun, id string
}

// pad moves the functions out of the keys: `local.test.ping: [...]` becomes `local: [...,
// test.ping]`.
func pad(high value.Map) (value.Map, error) {
	for i, e := range high {
		body, ok := e.Value.(value.Map)
		if !ok {
			if short, ok := e.Value.(string); ok && strings.Contains(short, ".") {
				state, fun, _ := strings.Cut(short, ".")
				high[i].Value = value.Map{{Key: state, Value: []any{fun}}}
			}
			continue
		}
		keys := make([]string, len(body))
		for n, p := range body {
			key, ok := p.Key.(string)
			if !ok {
				return nil, fmt.Errorf("ID %s: the key %s is not text", value.Repr(e.Key),
					value.Repr(p.Key))
			}
			keys[n] = key
		}
		slices.Sort(keys)
		taken := map[string]bool{}
		for _, key := range keys {
			v, _ := body.Get(key)
			args, ok := v.([]any)
			if strings.HasPrefix(key, "_") || !ok {
				continue
			}
			state, fun, dotted := strings.Cut(key, ".")
			if !dotted {
				taken[key] = true
				continue
			}
			if taken[state] {
				continue
			}
			body = body.Without(key).Set(state, append(slices.Clip(args), fun))
			taken[state] = true
		}
		high[i].Value = body
	}
	return high, nil
}

// compile makes low data from high data. The texts are its errors.
func compile(ctx context.Context, high value.Map) ([]chunk, []string, error) {
	low, faults, err := orchestrate.Reactions(ctx, high)
	if err != nil || len(faults) > 0 {
		return nil, faults, err
	}
	all := make([]chunk, len(low))
	for i, m := range low {
		all[i] = chunk{Map: m, state: m.String("state"), fun: m.String("fun"),
			id: m.String("__id__")}
		all[i].resolve()
	}
	return all, nil, nil
}

// resolve replaces old names of a kind by its present one.
func (c *chunk) resolve() {
	switch c.state {
	case "cmd":
		c.state = "local"
	case "client": // client.local.test.ping
		c.state, c.fun, _ = strings.Cut(c.fun, ".")
	default:
		return
	}
	c.Map = c.Set("state", c.state).Set("fun", c.fun)
}
