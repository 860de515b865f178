package orchestrate

import (
	"fmt"
	"slices"
	"strings"

	"clustermaster/value"
)

// chunk is one low chunk: a state that will run.
type chunk struct {
	low    value.Map // as in Salt, for the arguments
	module string
	fun    string
	name   any // nearly always text
	id     string
	sls    any
	from   []any // __sls_included_from__

	nameOrder   int64
	order       float64
	ordered     bool
	try         bool // __prereq__: next is a trial run, because another state has a prereq on it
	prerequires bool
	watched     []Watched // of a mod_watch
	reqs        value.Map // of a mod_watch: the low data of its requisites, by their kinds
}

// tag is the key of the chunk's return.
func (ch *chunk) tag() string {
	return ch.module + "_|-" + ch.id + "_|-" + value.Str(ch.name) + "_|-" + ch.fun
}

// as returns a copy that calls another function of the module.
func (ch *chunk) as(fun string) *chunk {
	c := *ch
	c.low = slices.Clone(ch.low).Set("sfun", ch.fun).Set("fun", fun)
	c.fun = fun
	return &c
}

func (ch *chunk) get(key string) (any, bool) { return ch.low.Get(key) }

// lowChunks is Salt's compile_high_data.
func (c *compilation) lowChunks() ([]*chunk, error) {
	var out []*chunk
	for _, p := range c.high.pairs {
		id := value.Str(p.Key)
		body, ok := p.Value.(value.Map)
		if !ok || strings.HasPrefix(id, "__") {
			continue
		}
		for _, decl := range body {
			module := value.Str(decl.Key)
			args, ok := decl.Value.([]any)
			if !ok || strings.HasPrefix(module, "__") {
				continue
			}
			made, err := c.chunksOf(id, module, body, args)
			if err != nil {
				return nil, err
			}
			if out = append(out, made...); len(out) > maxChunks {
				return nil, fmt.Errorf("more than %d states: %w; split the orchestration",
					maxChunks, errTooMuch)
			}
		}
	}
	return out, nil
}

// chunksOf makes the chunks of one declaration: one, or one per name.
func (c *compilation) chunksOf(id, module string, body value.Map, args []any) ([]*chunk, error) {
	low := value.Map{{Key: "state", Value: module}, {Key: "name", Value: id}}
	if c.jid != "" {
		low = append(low, value.Pair{Key: "__orchestration_jid__", Value: c.jid})
	}
	for _, key := range []string{"__sls__", "__env__", "__sls_included_from__"} {
		if v, ok := body.Get(key); ok {
			low = append(low, value.Pair{Key: key, Value: v})
		}
	}
	low = append(low, value.Pair{Key: "__id__", Value: id})
	var fun string
	var names []any
	for _, arg := range args {
		if s, ok := arg.(string); ok {
			fun = s
			continue
		}
		m, _ := arg.(value.Map)
		for _, p := range m {
			key := value.Str(p.Key)
			switch _, text := p.Value.(string); {
			case key == "names":
				list, _ := p.Value.([]any)
				names = distinct(names, list)
			case c.plain:
				low = low.Set(key, p.Value)
			case key == "state":
			case key == "name" && !text:
				low = low.Set(key, id)
			default:
				low = low.Set(key, p.Value)
			}
		}
	}
	if fun == "" {
		return nil, nil
	}
	if len(names) == 0 {
		live, err := c.copyValue(low, 0)
		if err != nil {
			return nil, err
		}
		low, _ = live.(value.Map)
		return []*chunk{newChunk(low.Set("fun", fun))}, nil
	}
	var out []*chunk
	for i, entry := range names {
		copied, err := c.copyValue(low, 0)
		if err != nil {
			return nil, err
		}
		live, _ := copied.(value.Map)
		if m, ok := entry.(value.Map); ok {
			e, ok := first(m)
			if !ok {
				continue
			}
			live = live.Set("name", e.Key)
			more, _ := e.Value.([]any)
			for _, arg := range more {
				own, _ := arg.(value.Map)
				for _, p := range own {
					live = live.Set(value.Str(p.Key), p.Value)
				}
			}
		} else {
			live = live.Set("name", entry)
		}
		ch := newChunk(live.Set("fun", fun))
		ch.nameOrder = int64(i + 1)
		out = append(out, ch)
	}
	return out, nil
}

// distinct appends the values that are not in have.
func distinct(have, more []any) []any {
	seen := make(map[string]bool, len(have))
	for _, v := range have {
		seen[keyText(v)] = true
	}
	for _, v := range more {
		if _, isMap := v.(value.Map); isMap && value.Contains(have, v) || seen[keyText(v)] {
			continue
		}
		seen[keyText(v)] = true
		have = append(have, v)
	}
	return have
}

func newChunk(low value.Map) *chunk {
	ch := &chunk{low: low, module: low.String("state"), fun: low.String("fun")}
	ch.name, _ = low.Get("name")
	id, _ := low.Get("__id__")
	ch.id = value.Str(id)
	ch.sls = slsOf(low)
	from, _ := low.Get("__sls_included_from__")
	ch.from, _ = from.([]any)
	return ch
}
