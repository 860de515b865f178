package pillar

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// decrypt applies decrypt_pillar: it sends the values at the listed keys through a decrypting
// renderer. A failure is an error of the pillar, and the value stays as it was.
func (p *compilation) decrypt(ctx context.Context, pillar value.Map) value.Map {
	if !value.Truth(p.opts.DecryptPillar) {
		return pillar
	}
	keys, ok := dictList(p.opts.DecryptPillar)
	if !ok || len(keys) == 0 {
		p.fault("decrypt_pillar config option is malformed")
		return pillar
	}
	for _, pair := range keys {
		key, _ := pair.Key.(string)
		path := strings.Split(key, p.opts.DecryptPillarDelimiter)
		v, found := at(pillar, path)
		if !found || v == nil {
			continue
		}
		renderer, _ := pair.Value.(string)
		if renderer == "" {
			renderer = p.opts.DecryptPillarDefault
		}
		if !slices.Contains(p.opts.DecryptPillarRenderers, renderer) {
			p.fault("Failed to decrypt pillar key '%s': '%s' is not a valid decryption renderer. Valid choices are: %s",
				key, renderer, strings.Join(p.opts.DecryptPillarRenderers, ", "))
			continue
		}
		plain, err := p.decrypted(ctx, v, renderer)
		if err != nil {
			p.fault("Failed to decrypt pillar key '%s': %s", key, err)
			continue
		}
		pillar, _ = replace(pillar, path, plain).(value.Map)
	}
	return pillar
}

// decrypted sends a value through a renderer. Only gpg looks for texts within a value by itself;
// other renderers get a text as it is.
func (p *compilation) decrypted(ctx context.Context, v any, renderer string) (any, error) {
	if text, ok := v.(string); ok && renderer != "gpg" {
		return p.parse(ctx, text, renderer)
	}
	made, err := p.parse(ctx, string(yaml11.Dump(value.Map{{Key: "v", Value: v}})),
		"yaml|"+renderer)
	if err != nil {
		return nil, err
	}
	m, _ := made.(value.Map)
	plain, ok := m.Get("v")
	if !ok {
		return nil, fmt.Errorf("renderer %s gave no value", renderer)
	}
	return plain, nil
}

// dictList reads a list of maps of one entry each, or of names, as one map.
func dictList(v any) (value.Map, bool) {
	switch v := v.(type) {
	case value.Map:
		return v, true
	case []any:
		out := value.Map{}
		for _, e := range v {
			switch e := e.(type) {
			case string:
				out = out.Set(e, nil)
			case value.Map:
				if len(e) != 1 {
					return nil, false
				}
				name, _ := e[0].Key.(string)
				out = out.Set(name, e[0].Value)
			default:
				return nil, false
			}
		}
		return out, true
	}
	return nil, false
}

// at follows keys through maps.
func at(v any, path []string) (any, bool) {
	for _, key := range path {
		m, ok := v.(value.Map)
		if !ok {
			return nil, false
		}
		if v, ok = m.Get(key); !ok {
			return nil, false
		}
	}
	return v, true
}

// replace returns a copy of v with another value at an existing path.
func replace(v any, path []string, to any) any {
	if len(path) == 0 {
		return to
	}
	m, _ := v.(value.Map)
	old, _ := m.Get(path[0])
	return value.Update(m, value.Map{{Key: path[0], Value: replace(old, path[1:], to)}})
}
