package settings

import (
	"clustermaster/config"
	"clustermaster/value"
)

// Value copies a value of the configuration as a plain one. Besides YAML's types, options hold
// lists of texts, tables and secrets; a secret becomes "[redacted]".
func Value(v any) any { return plain(v, func(config.Secret) any { return "[redacted]" }) }

// Revealed is Value with the secrets, for a package that uses them.
func Revealed(v any) any { return plain(v, func(s config.Secret) any { return s.Reveal() }) }

func plain(v any, secret func(config.Secret) any) any {
	switch x := value.Plain(v).(type) {
	case value.Map:
		m := make(value.Map, len(x))
		for i, p := range x {
			m[i] = value.Pair{Key: plain(p.Key, secret), Value: plain(p.Value, secret)}
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = plain(e, secret)
		}
		return l
	case config.Secret:
		return secret(x)
	default:
		return x
	}
}
