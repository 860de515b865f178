package settings

import (
	"clustermaster/config"
	"clustermaster/internal/yaml11"
	"clustermaster/wire"
)

// Value turns a value of the configuration into one of the wire. Beside what YAML has, options hold
// lists of texts, tables and secrets; a secret becomes "[redacted]".
func Value(v any) any {
	switch x := v.(type) {
	case yaml11.Map:
		m := make(wire.Map, len(x))
		for i, p := range x {
			m[i] = wire.Pair{Key: Value(p.Key), Value: Value(p.Value)}
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = Value(e)
		}
		return l
	case []string:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = e
		}
		return l
	case map[string]any:
		m := make(wire.Map, 0, len(x))
		for k, e := range x {
			m = append(m, wire.Pair{Key: k, Value: Value(e)})
		}
		return m
	case config.Secret:
		return "[redacted]"
	}
	return yaml11.ToWire(v)
}
