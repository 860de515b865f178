package runner

import (
	"context"
	"strconv"
	"strings"

	"clustermaster/internal/pytext"
	"clustermaster/wire"
)

// Config is the family config. options is the master's configuration as read, without secrets.
func Config(options func() wire.Map) []Function {
	return []Function{{
		Name: "config.get", Params: []Param{Need("key"), Opt("default", ""), Opt("delimiter", ":")},
		Doc: "Return an option of the master; a key with colons goes into maps and lists.\n\nExample:\n\n    salt-run config.get file_roots:base\n" +
			"    salt-run config.get file_roots,base delimiter=','",
		Run: func(_ context.Context, c *Call) (any, error) {
			v, ok := traverse(options(), c.Text("key"), c.Text("delimiter"))
			if !ok {
				return c.Arg("default"), nil
			}
			return v, nil
		},
	}}
}

// ConfigWheel is the wheel family config. values are all options of the master, set or not, without secrets.
func ConfigWheel(values func() wire.Map) []Function {
	return []Function{{
		Name: "config.values",
		Doc:  "Return every option of the master with its value. Secrets are hidden.\n\nExample:\n\n    wheel.cmd('config.values')",
		Run:  func(context.Context, *Call) (any, error) { return values(), nil },
	}}
}

// traverse walks down maps by key and lists by number. A list with a step that is no number is searched for the first map that has it.
func traverse(v any, key, delimiter string) (any, bool) {
	steps := []string{key}
	if delimiter != "" {
		steps = strings.Split(key, delimiter)
	}
	for _, step := range steps {
		switch x := pytext.Plain(v).(type) {
		case wire.Map:
			next, ok := x.Get(step)
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			next, ok := element(x, step)
			if !ok {
				return nil, false
			}
			v = next
		default:
			return nil, false
		}
	}
	return v, true
}

func element(list []any, step string) (any, bool) {
	if i, err := strconv.Atoi(step); err == nil {
		if i < 0 {
			i += len(list)
		}
		if i < 0 || i >= len(list) {
			return nil, false
		}
		return list[i], true
	}
	for _, e := range list {
		if m, ok := pytext.Plain(e).(wire.Map); ok {
			if v, ok := m.Get(step); ok {
				return v, true
			}
		}
	}
	return nil, false
}
