package main

import (
	"context"
	"strings"

	"clustermaster/internal/yaml11"
	"clustermaster/modules"
	"clustermaster/wire"
)

// masterTops answers _master_tops with ext_nodes, the one module of master_tops that is here: a command that gets the minion's id and
// prints YAML with classes and environment. A failure is logged, and the minion gets no classes, as with Salt. nil: it is not configured.
func (r *rooms) masterTops(functions *modules.Modules) func(ctx context.Context, id string) wire.Map {
	tops, _ := wireValue(r.opts.Extra["master_tops"]).(wire.Map)
	command := tops.String("ext_nodes")
	if command == "" {
		return nil
	}
	return func(ctx context.Context, id string) wire.Map {
		quoted := "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
		out, err := functions.Call(ctx, modules.Minion{ID: id}, "cmd.run_stdout", []any{command + " " + quoted}, nil)
		var v any
		if err == nil {
			text, _ := out.(string)
			v, err = yaml11.Load([]byte(text))
		}
		if err != nil {
			r.log.Error("ext_nodes failed; the minion gets no classes", "minion", id, "err", err)
			return wire.Map{}
		}
		said, _ := wireValue(v).(wire.Map)
		return nodeClasses(said)
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
