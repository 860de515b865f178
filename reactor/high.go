package reactor

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"clustermaster/internal/pytext"
	"clustermaster/wire"
)

// chunk is one reaction as low data: state (local, runner, ...), fun, name, __id__, __sls__ and what the SLS file says.
type chunk struct {
	wire.Map
	state, fun, id string
}

// pad takes the functions out of the keys: `local.test.ping: [...]` becomes `local: [..., test.ping]`.
func pad(high wire.Map) (wire.Map, error) {
	for i, e := range high {
		body, ok := e.Value.(wire.Map)
		if !ok {
			if short, ok := e.Value.(string); ok && strings.Contains(short, ".") {
				state, fun, _ := strings.Cut(short, ".")
				high[i].Value = wire.Map{{Key: state, Value: []any{fun}}}
			}
			continue
		}
		keys := make([]string, len(body))
		for n, p := range body {
			key, ok := p.Key.(string)
			if !ok {
				return nil, fmt.Errorf("ID %s: the key %s is no text", pytext.Repr(e.Key), pytext.Repr(p.Key))
			}
			keys[n] = key
		}
		slices.Sort(keys)
		taken := map[string]bool{}
		for _, key := range keys {
			v, _ := body.Get(key)
			args, ok := v.([]any)
			if strings.HasPrefix(key, "_") || !ok {
				continue
			}
			state, fun, dotted := strings.Cut(key, ".")
			if !dotted {
				taken[key] = true
				continue
			}
			if taken[state] {
				continue
			}
			body = body.Without(key).Set(state, append(slices.Clip(args), fun))
			taken[state] = true
		}
		high[i].Value = body
	}
	return high, nil
}

// requisites are the keywords that have to hold lists of single maps.
var requisites = []string{
	"onfail", "onfail_any", "onfail_all", "require", "require_any", "onchanges", "onchanges_any", "watch", "watch_any", "prereq", "listen", "onfail_stop",
}

// verify says what is wrong with high data, in Salt's words.
func verify(high wire.Map) (errs []string) {
	say := func(form string, args ...any) { errs = append(errs, fmt.Sprintf(form, args...)) }
	for _, e := range high {
		id := pytext.Str(e.Key)
		body, isMap := e.Value.(wire.Map)
		sls := body.String("__sls__")
		if _, ok := e.Key.(string); !ok {
			say("ID '%s' in SLS '%s' is not formed as a string, but is type %s. It may need to be quoted.", id, sls, typeName(e.Key))
		} else if strings.HasPrefix(id, "__") {
			continue
		}
		if !isMap {
			say("The type %s in %s is not formatted as a dictionary", id, pytext.Str(e.Value))
			continue
		}
		for _, s := range body {
			state := pytext.Str(s.Key)
			if strings.HasPrefix(state, "__") {
				continue
			}
			switch args := s.Value.(type) {
			case nil:
				say("ID '%s' in SLS '%s' contains a short declaration (%s) with a trailing colon. When not passing any arguments to a state, the colon must be omitted.", id, sls, state)
			case []any:
				errs = append(errs, verifyArgs(id, sls, state, args)...)
			default:
				say("State '%s' in SLS '%s' is not formed as a list", id, sls)
			}
		}
	}
	return errs
}

func verifyArgs(id, sls, state string, args []any) (errs []string) {
	say := func(form string, args ...any) { errs = append(errs, fmt.Sprintf(form, args...)) }
	var funs []string
	if _, fun, ok := strings.Cut(state, "."); ok {
		funs = append(funs, fun)
	}
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			funs = append(funs, arg)
			if strings.Contains(strings.TrimSpace(arg), " ") {
				say(`The function "%s" in state "%s" in SLS "%s" has whitespace, a function with whitespace is not supported, perhaps this is an argument that is missing a ":"`, arg, id, sls)
			}
		case wire.Map:
			if len(arg) == 0 {
				continue
			}
			first := pytext.Str(arg[0].Key)
			_, isList := arg[0].Value.([]any)
			if first == "names" && !isList {
				say("The 'names' argument in state '%s' in SLS '%s' needs to be formed as a list", id, sls)
			}
			if slices.Contains(requisites, first) {
				if !isList {
					say("The %s statement in state '%s' in SLS '%s' needs to be formed as a list", first, id, sls)
				} else if len(arg) != 1 {
					say("Multiple dictionaries defined in argument of state '%s' in SLS '%s'", id, sls)
				}
			}
		}
	}
	switch {
	case len(funs) == 0:
		say("No function declared in state '%s' in SLS '%s'", id, sls)
	case len(funs) > 1:
		say("Too many functions declared in state '%s' in SLS '%s'. Please choose one of the following: %s", id, sls, strings.Join(funs, ", "))
	}
	return errs
}

func typeName(v any) string {
	switch v.(type) {
	case bool:
		return "bool"
	case float64:
		return "float"
	case nil:
		return "NoneType"
	}
	return "int"
}

// compile makes low data of high data that verify found nothing wrong with, in the order in which Salt runs it: by order, then by the text
// of state, name and function.
func compile(high wire.Map) []chunk {
	var all []chunk
	for _, e := range high {
		id := pytext.Str(e.Key)
		body, _ := e.Value.(wire.Map)
		if strings.HasPrefix(id, "__") {
			continue
		}
		for _, s := range body {
			state := pytext.Str(s.Key)
			if !strings.HasPrefix(state, "__") {
				args, _ := s.Value.([]any)
				all = append(all, chunks(state, id, body.String("__sls__"), args)...)
			}
		}
	}
	limit := 1.0
	for _, c := range all {
		if n, ok := integer(c.Map, "order"); ok && n > limit-1 && n > 0 {
			limit = n + 100
		}
	}
	slices.SortStableFunc(all, func(a, b chunk) int {
		if d := place(a, limit) - place(b, limit); d != 0 {
			return int(math.Copysign(1, d))
		}
		return strings.Compare(label(a), label(b))
	})
	for i := range all {
		all[i].Map = all[i].Without("name_order")
		all[i].resolve()
	}
	return all
}

// chunks are the reactions of one state of an ID: one, or one for each of names.
func chunks(state, id, sls string, args []any) (out []chunk) {
	low := wire.Map{{Key: "state", Value: state}, {Key: "name", Value: id}, {Key: "__sls__", Value: sls}, {Key: "__id__", Value: id}}
	var fun string
	var names []any
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			fun = arg
		case wire.Map:
			for _, p := range arg {
				if p.Key != "names" {
					low = low.Set(pytext.Str(p.Key), p.Value)
					continue
				}
				list, _ := p.Value.([]any)
				for _, name := range list {
					if !slices.ContainsFunc(names, func(n any) bool { return pytext.Repr(n) == pytext.Repr(name) }) {
						names = append(names, name)
					}
				}
			}
		}
	}
	if fun == "" {
		return nil
	}
	add := func(low wire.Map) {
		low = low.Set("fun", fun)
		out = append(out, chunk{Map: low, state: low.String("state"), fun: fun, id: id})
	}
	if len(names) == 0 {
		add(slices.Clone(low))
	}
	for i, name := range names {
		live := slices.Clone(low)
		if m, ok := name.(wire.Map); ok && len(m) > 0 {
			live = live.Set("name", m[0].Key)
			more, _ := m[0].Value.([]any)
			for _, e := range more {
				if kw, ok := e.(wire.Map); ok {
					for _, p := range kw {
						live = live.Set(pytext.Str(p.Key), p.Value)
					}
				}
			}
		} else {
			live = live.Set("name", name)
		}
		add(live.Set("name_order", int64(i+1)))
	}
	return out
}

func label(c chunk) string {
	name, _ := c.Get("name")
	return c.state + pytext.Str(name) + c.fun
}

// place is a chunk's order as a number.
func place(c chunk, limit float64) float64 {
	const last = 1_000_000
	v, _ := c.Get("order")
	at := limit
	switch n := v.(type) {
	case int64:
		at = float64(n)
	case float64:
		at = n
	case string:
		if n == "last" {
			at = limit + last
		} else if n == "first" {
			at = 0
		}
	}
	if n, ok := integer(c.Map, "name_order"); ok {
		at += n / 10000
	}
	if at < 0 {
		at += limit + last
	}
	return at
}

func integer(m wire.Map, key string) (float64, bool) {
	v, _ := m.Get(key)
	n, ok := v.(int64)
	return float64(n), ok
}

// resolve gives the old names of a kind its present one.
func (c *chunk) resolve() {
	switch c.state {
	case "cmd":
		c.state = "local"
	case "client": // client.local.test.ping
		c.state, c.fun, _ = strings.Cut(c.fun, ".")
	default:
		return
	}
	c.Map = c.Set("state", c.state).Set("fun", c.fun)
}
