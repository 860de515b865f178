package config

import (
	"slices"

	"clustermaster/salt/saltpython"
	"clustermaster/value"
)

// checkEngines refuses engines that can't be started, whichever modules exist.
func (l *loader) checkEngines() {
	var names []string
	python := false
	entry := func(name, given any) {
		names = append(names, value.Str(name))
		options, isMap := given.(value.Map)
		if _, isText := name.(string); !isText || given != nil && !isMap {
			l.refuse("engines",
				"%s is not a name, or its options are not a map: write a name, or a name with a map of options",
				value.Str(name))
			return
		}
		module := name
		if m, ok := options.Get("engine_module"); ok {
			module = m
		}
		if module != "reactor" {
			python = true
			return
		}
		l.warn("engines",
			"%s is not started: this master reacts itself, by the option reactor; remove it",
			value.Str(name))
	}
	switch all := l.o.Extra["engines"].(type) {
	case value.Map:
		for _, p := range all {
			entry(p.Key, p.Value)
		}
	case []any:
		for _, one := range all {
			m, isMap := one.(value.Map)
			switch {
			case !isMap:
				entry(one, nil)
			case len(m) > 0:
				entry(m[0].Key, m[0].Value)
			}
			if len(m) > 1 {
				l.warn("engines", "%s: what follows it in the same entry is not read, as with Salt: indent its options further",
					value.Str(m[0].Key))
			}
		}
	}
	for _, name := range l.o.EnginesEverywhere {
		if !slices.Contains(names, name) {
			l.refuse("engines_everywhere", "%s is not an engine of the option engines", name)
		}
	}
	if python {
		if _, err := saltpython.Find(l.o.PythonHost); err != nil {
			l.refuse("engines", "engines are modules in Python: %v", err)
		}
	}
}
