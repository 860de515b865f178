package orchestrate

import (
	"fmt"
	"strings"

	"clustermaster/value"
)

// show is Python's str() of a value from an SLS file, in which Salt's maps have their own class.
func show(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	var b strings.Builder
	appendShown(&b, v)
	return b.String()
}

func appendShown(b *strings.Builder, v any) {
	switch v := v.(type) {
	case value.Map:
		b.WriteString("OrderedDict(")
		if len(v) > 0 {
			b.WriteByte('[')
			for i, p := range v {
				if i > 0 {
					b.WriteString(", ")
				}
				b.WriteString("(" + value.Repr(p.Key) + ", ")
				appendShown(b, p.Value)
				b.WriteByte(')')
			}
			b.WriteByte(']')
		}
		b.WriteByte(')')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			appendShown(b, e)
		}
		b.WriteByte(']')
	default:
		b.WriteString(value.Repr(v))
	}
}

// verifyHigh adds faults for malformed high data: Salt's _verify_high, in its order.
func (c *compilation) verifyHigh() {
	for _, p := range c.high.pairs {
		body, isMap := p.Value.(value.Map)
		id := value.Str(p.Key)
		if _, text := p.Key.(string); !text {
			c.fault("ID '%s' in SLS '%s' is not formed as a string, but is type %s. It may need to be quoted.", id, show(slsOf(body)), typeName(p.Key))
		} else if strings.HasPrefix(id, "__") {
			continue
		}
		if !isMap {
			c.fault("The type %s in %s is not formatted as a dictionary", id, show(p.Value))
			continue
		}
		for _, decl := range body {
			if name := value.Str(decl.Key); !strings.HasPrefix(name, "__") {
				c.verifyDeclaration(id, show(slsOf(body)), name, decl.Value)
			}
		}
	}
}

func slsOf(body value.Map) any {
	v, _ := body.Get("__sls__")
	return v
}

func (c *compilation) verifyDeclaration(id, sls, state string, v any) {
	args, ok := v.([]any)
	switch {
	case v == nil:
		c.fault("ID '%s' in SLS '%s' contains a short declaration (%s) with a trailing colon. When not passing any arguments to a state, the colon must be omitted.", id, sls, state)
		return
	case !ok:
		c.fault("State '%s' in SLS '%s' is not formed as a list", id, sls)
		return
	}
	var funs []string
	if _, fun, dotted := strings.Cut(state, "."); dotted {
		funs = append(funs, fun)
	}
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			funs = append(funs, arg)
			if strings.Contains(strings.TrimSpace(arg), " ") {
				c.fault(`The function "%s" in state "%s" in SLS "%s" has whitespace, a function with whitespace is not supported, perhaps this is an argument that is missing a ":"`, arg, id, sls)
			}
		case value.Map:
			c.verifyArgument(id, sls, arg)
		}
	}
	switch {
	case len(funs) == 0:
		c.fault("No function declared in state '%s' in SLS '%s'", id, sls)
	case len(funs) > 1:
		c.fault("Too many functions declared in state '%s' in SLS '%s'. Please choose one of the following: %s", id, sls, strings.Join(funs, ", "))
	}
}

func (c *compilation) verifyArgument(id, sls string, arg value.Map) {
	entry, ok := first(arg)
	if !ok {
		c.fault("State '%s' in SLS '%s' has an argument that is an empty dictionary", id, sls)
		return
	}
	key := value.Str(entry.Key)
	list, isList := entry.Value.([]any)
	if key == "names" && !isList {
		c.fault("The 'names' argument in state '%s' in SLS '%s' needs to be formed as a list",
			id, sls)
	}
	if !isRequisite(entry.Key) {
		return
	}
	if !isList {
		c.fault("The %s statement in state '%s' in SLS '%s' needs to be formed as a list", key,
			id, sls)
		return
	}
	for _, req := range list {
		c.verifyRequisite(id, sls, req)
	}
	if len(arg) != 1 {
		c.fault("Multiple dictionaries defined in argument of state '%s' in SLS '%s'", id, sls)
	}
}

func (c *compilation) verifyRequisite(id, sls string, req any) {
	key, val := any("id"), req
	if _, text := req.(string); !text {
		var ok bool
		if key, val, ok = single(req); !ok {
			c.fault("Requisite declaration %s in state %s in SLS %s is not formed as a single key dictionary", show(req), id, sls)
			return
		}
	}
	name := value.Str(key)
	if module, _, dotted := strings.Cut(name, "."); dotted {
		c.fault("Invalid requisite type '%s' in state '%s', in SLS '%s'. Requisite types must not contain dots, did you mean '%s'?", name, id, sls, module)
	}
	switch val.(type) {
	case []any, value.Map:
		c.errors = append(c.errors,
			fmt.Sprintf("Illegal requisite \"%s\" in SLS \"%s\", please check your syntax.\n",
				show(val), sls))
	}
}
