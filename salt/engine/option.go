package engine

import (
	"slices"

	"clustermaster/value"
)

// Engine is an entry of the option engines.
type Engine struct {
	Name       string // as configured
	Module     string // its function start is run
	Options    value.Map
	Everywhere bool // on every master
}

// Native is the one engine that every master contains. It is never started.
const Native = "reactor"

// Parse reads the option engines: a list of names and of maps from a name to its options, or one
// such map. everywhere lists the engines that run on every master.
func Parse(option any, everywhere []string) []Engine {
	var out []Engine
	add := func(name, given any) {
		e := Engine{Name: value.Str(name)}
		e.Module, e.Everywhere = e.Name, slices.Contains(everywhere, e.Name)
		if m, ok := given.(value.Map); ok {
			if module, ok := m.Get("engine_module"); ok {
				e.Module = value.Str(module)
			}
			e.Options = m.Without("engine_module")
		}
		if e.Module != Native {
			out = append(out, e)
		}
	}
	switch all := option.(type) {
	case value.Map:
		for _, p := range all {
			add(p.Key, p.Value)
		}
	case []any:
		for _, one := range all {
			if m, ok := one.(value.Map); !ok {
				add(one, nil)
			} else if len(m) > 0 { // like Salt, take the first entry
				add(m[0].Key, m[0].Value)
			}
		}
	}
	return out
}
