package settings

import (
	"clustermaster/config"
	"clustermaster/value"
)

// Value copies a value of the configuration as a plain one. Beside what YAML has, options hold
// lists of texts, tables and secrets; a secret becomes "[redacted]".
func Value(v any) any {
	switch x := value.Plain(v).(type) {
	case value.Map:
		m := make(value.Map, len(x))
		for i, p := range x {
			m[i] = value.Pair{Key: Value(p.Key), Value: Value(p.Value)}
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = Value(e)
		}
		return l
	case config.Secret:
		return "[redacted]"
	default:
		return x
	}
}
