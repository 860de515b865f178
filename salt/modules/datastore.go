package modules

import (
	"context"
	"errors"
	"slices"

	"clustermaster/value"
)

// Datastore stores the map for the functions of data.
type Datastore interface {
	Load(ctx context.Context) (value.Map, error)
	Dump(ctx context.Context, data value.Map) error
}

// datastoreFunctions are the family data.
func datastoreFunctions() []function {
	// on makes a function that calls run with the stored map. The returned keep replaces
	// that map unless it is nil.
	on := func(name string, params []param,
		run func(c *call, kept value.Map) (result any, keep value.Map, err error)) function {
		return function{name: "data." + name, params: params,
			run: func(ctx context.Context, c *call) (any, error) {
				if c.deps.Datastore == nil {
					return nil, errors.New("no data store is available here")
				}
				kept, err := c.deps.Datastore.Load(ctx)
				if err != nil {
					return nil, err
				}
				result, keep, err := run(c, kept)
				if err != nil || keep == nil {
					return result, err
				}
				return result, c.deps.Datastore.Dump(ctx, keep)
			}}
	}
	key := need("key")
	return []function{
		on("load", nil, func(_ *call, kept value.Map) (any, value.Map,
			error) {
			return orEmpty(kept), nil, nil
		}),
		on("items", nil, func(_ *call, kept value.Map) (any, value.Map,
			error) {
			return orEmpty(kept), nil, nil
		}),
		on("keys", nil, func(_ *call, kept value.Map) (any, value.Map, error) {
			return keys(kept),
				nil, nil
		}),
		on("values", nil, func(_ *call, kept value.Map) (any, value.Map, error) {
			out := make([]any, len(kept))
			for i, p := range kept {
				out[i] = p.Value
			}
			return out, nil, nil
		}),
		on("has_key", []param{key}, func(c *call, kept value.Map) (any, value.Map, error) {
			_, ok := kept.Get(c.text("key"))
			return ok, nil, nil
		}),
		on("get", []param{key, opt("default", nil)},
			func(c *call, kept value.Map) (any, value.Map, error) {
				if _, one := c.any("key").(string); one {
					v, ok := kept.Get(c.text("key"))
					if !ok {
						v = c.any("default")
					}
					return v, nil, nil
				}
				out := []any{}
				for _, k := range c.list("key") {
					if v, ok := kept.Get(text(k)); ok {
						out = append(out, v)
					} else if c.any("default") != nil {
						out = append(out, c.any("default"))
					}
				}
				return out, nil, nil
			}),
		on("update", []param{key, need("value")},
			func(c *call, kept value.Map) (any, value.Map, error) {
				return true, kept.Set(c.text("key"), c.any("value")), nil
			}),
		on("cas", []param{key, need("value"), need("old_value")},
			func(c *call, kept value.Map) (any, value.Map, error) {
				v, ok := kept.Get(c.text("key"))
				if !ok || !value.Equal(v, c.any("old_value")) {
					return false, nil, nil
				}
				return true, kept.Set(c.text("key"), c.any("value")), nil
			}),
		on("pop", []param{key, opt("default", nil)},
			func(c *call, kept value.Map) (any, value.Map, error) {
				v, ok := kept.Get(c.text("key"))
				if !ok {
					return c.any("default"), nil, nil
				}
				return v, orEmpty(slices.Clone(kept).Without(c.text("key"))), nil
			}),
		on("dump", []param{need("new_data")}, func(c *call, _ value.Map) (any, value.Map, error) {
			m, ok := c.any("new_data").(value.Map)
			if !ok {
				return false, nil, nil
			}
			return true, orEmpty(m), nil
		}),
		on("clear", nil, func(*call, value.Map) (any, value.Map, error) {
			return true, value.Map{},
				nil
		}),
	}
}
