package mastertops

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"clustermaster/value"
	"clustermaster/wire"
)

// commandsAtOnce bounds the commands that run at a time, when all minions ask for their states.
// Salt's master runs one for each of its worker_threads, of which there are 5.
const commandsAtOnce = 32

// extNodes runs a command with the minion's id as its last argument. The command prints YAML with
// classes and environment.
func extNodes(command string, d Deps) func(context.Context, Request) (value.Map, error) {
	turns := semaphore.NewWeighted(commandsAtOnce)
	return func(ctx context.Context, r Request) (value.Map, error) {
		quoted, err := wire.QuotedID(r.ID)
		if err != nil {
			return nil, err
		}
		if err := turns.Acquire(ctx, 1); err != nil {
			return nil, fmt.Errorf("wait for %s for other minions: %w", command, err)
		}
		text, err := d.Output(ctx, command+" "+quoted)
		turns.Release(1)
		if err != nil {
			return nil, err
		}
		v, err := yaml(ctx, d.Renderer, command, text)
		if err != nil {
			return nil, fmt.Errorf("read what %s prints: %w", command, err)
		}
		said, _ := v.(value.Map)
		return nodeClasses(said), nil
	}
}

// nodeClasses maps the environment to the classes, which are a list or the keys of a map.
func nodeClasses(said value.Map) value.Map {
	env := said.String("environment")
	if env == "" {
		env = "base"
	}
	v, _ := said.Get("classes")
	switch v := v.(type) {
	case []any:
		return value.Map{{Key: env, Value: v}}
	case value.Map:
		classes := make([]any, len(v))
		for i, p := range v {
			classes[i] = p.Key
		}
		return value.Map{{Key: env, Value: classes}}
	}
	return value.Map{}
}
