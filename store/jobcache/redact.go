package jobcache

import (
	"strings"

	"clustermaster/value"
)

// redacted replaces a secret.
const redacted = "[redacted]"

// Redact returns a copy of a publish load without the caller's key. It blots out passwords and
// tokens in the load, in its kwargs, and in the keyword arguments of its functions. Salt's master
// writes these to disk unencrypted.
func Redact(load value.Map) value.Map {
	out := make(value.Map, 0, len(load))
	for _, p := range load {
		name, _ := p.Key.(string)
		if name == "key" {
			continue
		}
		switch {
		case secretName(name):
			p.Value = redacted
		case name == "kwargs":
			p.Value = blot(p.Value)
		}
		out = append(out, p)
	}
	return out
}

// blot replaces secrets in a map of keyword arguments.
func blot(v any) any {
	m, ok := v.(value.Map)
	if !ok {
		return v
	}
	out := make(value.Map, 0, len(m))
	for _, p := range m {
		name, _ := p.Key.(string)
		if name == "key" {
			continue
		}
		if secretName(name) {
			p.Value = redacted
		} else {
			p.Value = blot(p.Value)
		}
		out = append(out, p)
	}
	return out
}

// secretName reports whether a field authenticates the caller.
func secretName(name string) bool {
	switch strings.ToLower(name) {
	case "password", "token", "auth_token", "eauth_token":
		return true
	}
	return false
}
