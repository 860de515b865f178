package config

import "clustermaster/value"

// Plain copies a value of the configuration as a plain one. Besides YAML's types, options hold
// lists of texts, tables and secrets; a secret becomes "[redacted]".
func Plain(v any) any { return copied(v, func(Secret) any { return redacted }) }

// Revealed is Plain with the secrets, for a package that uses them.
func Revealed(v any) any { return copied(v, func(s Secret) any { return s.Reveal() }) }

func copied(v any, secret func(Secret) any) any {
	switch x := value.Plain(v).(type) {
	case value.Map:
		m := make(value.Map, len(x))
		for i, p := range x {
			m[i] = value.Pair{Key: copied(p.Key, secret), Value: copied(p.Value, secret)}
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = copied(e, secret)
		}
		return l
	case Secret:
		return secret(x)
	default:
		return x
	}
}
