package mastertops

import (
	"context"
	"fmt"

	"clustermaster/wire"
)

// extNodes asks a command, whose last argument is the minion's id, for YAML with classes and environment.
func extNodes(command string, d Deps) func(context.Context, Request) (wire.Map, error) {
	return func(ctx context.Context, r Request) (wire.Map, error) {
		quoted, err := wire.QuotedID(r.ID)
		if err != nil {
			return nil, err
		}
		text, err := d.Output(ctx, command+" "+quoted)
		if err != nil {
			return nil, err
		}
		v, err := yaml(ctx, d.Renderer, command, text)
		if err != nil {
			return nil, fmt.Errorf("read what %s prints: %w", command, err)
		}
		said, _ := v.(wire.Map)
		return nodeClasses(said), nil
	}
}

// nodeClasses is environment to classes, which may be a list or the keys of a map.
func nodeClasses(said wire.Map) wire.Map {
	env := said.String("environment")
	if env == "" {
		env = "base"
	}
	v, _ := said.Get("classes")
	switch v := v.(type) {
	case []any:
		return wire.Map{{Key: env, Value: v}}
	case wire.Map:
		classes := make([]any, len(v))
		for i, p := range v {
			classes[i] = p.Key
		}
		return wire.Map{{Key: env, Value: classes}}
	}
	return wire.Map{}
}
