package orchestrate

import (
	"context"
	"slices"
	"strings"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// reference names a state: an id and a module.
type reference struct {
	id     any
	module string
}

// findName lists the states that a name matches: an id, an SLS, or the value of an argument. strict
// requires an id that has the module.
func (c *compilation) findName(ctx context.Context, name any, module string,
	strict bool) ([]reference, error) {
	if body, ok := c.high.body(name); c.high.has(name) {
		_, has := body.Get(module)
		if !strict || ok && has {
			return []reference{{name, module}}, nil
		}
	}
	var found []reference
	for _, p := range c.high.pairs {
		body, ok := p.Value.(value.Map)
		if !ok {
			continue
		}
		if err := c.spend(ctx, 1); err != nil {
			return nil, err
		}
		if module == "sls" {
			if value.Equal(slsOf(body), name) && len(body) > 0 {
				found = append(found, reference{p.Key, value.Str(body[0].Key)})
			}
			continue
		}
		v, _ := body.Get(module)
		args, _ := v.([]any)
		if err := c.spend(ctx, len(args)); err != nil {
			return nil, err
		}
		for _, arg := range args {
			if _, val, ok := single(arg); ok && value.Equal(val, name) {
				found = append(found, reference{p.Key, module})
			}
		}
	}
	return found, nil
}

// idsOf lists the states of an SLS.
func (c *compilation) idsOf(ctx context.Context, sls any) ([]reference, error) {
	var found []reference
	for _, p := range c.high.pairs {
		if err := c.spend(ctx, 1); err != nil {
			return nil, err
		}
		body, ok := p.Value.(value.Map)
		if !ok || !value.Equal(slsOf(body), sls) {
			continue
		}
		for _, decl := range body {
			if !hidden(decl.Key) {
				found = append(found, reference{p.Key, value.Str(decl.Key)})
			}
		}
	}
	return found, nil
}

// reconcileExtend merges the extensions into the states: Salt's reconcile_extend.
func (c *compilation) reconcileExtend(ctx context.Context, strict bool) error {
	v, ok := c.high.pop("__extend__")
	if !ok {
		return nil
	}
	all, _ := v.([]any)
	for _, e := range all {
		ext, _ := e.(value.Map)
		for _, p := range ext {
			body, ok := p.Value.(value.Map)
			if !ok {
				continue // reported when the SLS was read
			}
			if err := c.extend(ctx, p.Key, body, strict); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *compilation) extend(ctx context.Context, name any, body value.Map, strict bool) error {
	env, sls := show(orElse(body, "__env__", "base")), show(orElse(body, "__sls__", "base"))
	unknown := func() {
		c.fault("Cannot extend ID '%[1]s' in '%[2]s:%[3]s'. It is not part of the high state.\nThis is likely due to a missing include statement or an incorrectly typed ID.\n"+
			"Ensure that a state with an ID of '%[1]s' is available\nin environment '%[2]s' and to SLS '%[3]s'", value.Str(name), env, sls)
	}
	at := slices.IndexFunc(body, func(p value.Pair) bool { return !hidden(p.Key) })
	if at < 0 {
		unknown()
		return nil
	}
	module := value.Str(body[at].Key)
	have, ok := c.high.body(name)
	if _, has := have.Get(module); !ok || !has {
		ids, err := c.findName(ctx, name, module, strict)
		if err != nil {
			return err
		}
		if len(ids) != 1 {
			unknown()
			return nil
		}
		name = ids[0].id
		if have, ok = c.high.body(name); !ok {
			unknown()
			return nil
		}
	}
	if c.excluded(sls) {
		return nil
	}
	for _, decl := range body {
		if hidden(decl.Key) {
			continue
		}
		state := value.Str(decl.Key)
		old, has := have.Get(state)
		if !has {
			have = have.Set(state, decl.Value)
			continue
		}
		args, ok := old.([]any)
		more, too := decl.Value.([]any)
		if !ok || !too {
			if !too {
				c.fault("Extension of state '%s' in SLS '%s' is not formed as a list",
					value.Str(name), sls)
			}
			continue
		}
		if err := c.spend(ctx, (len(args)+1)*len(more)); err != nil {
			return err
		}
		have = have.Set(state, extendArgs(args, more))
	}
	c.high.set(name, have)
	return nil
}

// excluded reports whether an SLS is excluded as a whole: it then extends nothing.
func (c *compilation) excluded(sls string) bool {
	for _, e := range c.high.list("__exclude__") {
		switch e := e.(type) {
		case string:
			if e == sls {
				return true
			}
		case value.Map:
			if v, _ := e.Get("sls"); value.Truth(v) && show(v) == sls {
				return true
			}
		}
	}
	return false
}

// extendArgs merges arguments into those of a state: another function, more requisites, other
// values.
func extendArgs(args, more []any) []any {
	for _, arg := range more {
		updated := false
		for i, old := range args {
			if _, ok := arg.(string); ok {
				if _, ok := old.(string); ok {
					args[i], updated = arg, true
				}
				continue
			}
			arg, _ := arg.(value.Map)
			had, _ := old.(value.Map)
			now, ok := first(arg)
			was, too := first(had)
			if !ok || !too {
				continue
			}
			switch {
			case value.Equal(now.Key, was.Key):
				list, isList := was.Value.([]any)
				added, too := now.Value.([]any)
				if isRequisite(now.Key) && isList && too {
					had = slices.Clone(had)
					had[0].Value = append(slices.Clip(list), added...)
					args[i] = had
				} else {
					args[i] = arg
				}
				updated = true
			case now.Key == "name" && was.Key == "names":
				args[i] = arg
			}
		}
		if !updated {
			args = append(args, arg)
		}
	}
	return args
}

func orElse(m value.Map, key string, fallback any) any {
	if v, ok := m.Get(key); ok {
		return v
	}
	return fallback
}

// applyExclude removes excluded ids, and all ids of excluded SLS.
func (c *compilation) applyExclude() {
	v, ok := c.high.pop("__exclude__")
	if !ok {
		return
	}
	list, _ := v.([]any)
	var sls []string
	ids := map[string]bool{}
	for _, e := range list {
		if s, ok := e.(string); ok {
			sls = append(sls, s)
			continue
		}
		key, val, ok := single(e)
		switch {
		case !ok:
		case key == "sls":
			sls = append(sls, value.Str(val))
		case key == "id":
			ids[keyText(val)] = true
		}
	}
	c.high.drop(func(k any) bool {
		if ids[keyText(k)] {
			return true
		}
		body, ok := c.high.body(k)
		of, _ := slsOf(body).(string)
		return ok && !hidden(k) && of != "" &&
			slices.ContainsFunc(sls,
				func(pattern string) bool { return fnmatch.Match(pattern, of) })
	})
}

// inForms are the keywords that give their requisite to other states; use takes from others.
var inForms = []string{"require_in", "watch_in", "onfail_in", "onchanges_in", "use", "use_in",
	"prereq_in"}

// notUsed are the arguments that use does not pass on.
var notUsed = append([]string{"require", "watch", "prereq", "onfail", "onfail_stop", "onchanges",
	"name", "names"}, inForms...)

// requisiteIn turns the _in forms and use into extensions, and merges those.
func (c *compilation) requisiteIn(ctx context.Context) error {
	in := &requisitesIn{c: c, ext: newDict()}
	for _, p := range slices.Clone(c.high.pairs) {
		body, ok := p.Value.(value.Map)
		if !ok {
			continue
		}
		for _, decl := range body {
			args, ok := decl.Value.([]any)
			if !ok || hidden(decl.Key) {
				continue
			}
			in.id, in.state, in.body, in.args = p.Key, value.Str(decl.Key), body, args
			for _, arg := range args {
				m, _ := arg.(value.Map)
				entry, ok := first(m)
				key, _ := entry.Key.(string)
				if !ok || !slices.Contains(inForms, key) || c.isDisabled(key) {
					continue
				}
				if err := in.form(ctx, key, entry.Value); err != nil {
					return err
				}
			}
		}
	}
	var exts []any
	for _, p := range in.ext.pairs {
		exts = append(exts, value.Map{p})
	}
	c.high.set("__extend__", exts)
	return c.reconcileExtend(ctx, true)
}

// requisitesIn gathers the extensions of one state after the other.
type requisitesIn struct {
	c     *compilation
	ext   *dict // id to module to arguments
	id    any   // of the state with the _in form
	state string
	body  value.Map
	args  []any
}

// form reads one _in form: a map from module to name, or a list of states.
func (in *requisitesIn) form(ctx context.Context, key string, items any) error {
	rkey, _, _ := strings.Cut(key, "_")
	switch items := items.(type) {
	case value.Map:
		for _, p := range items {
			module := value.Str(p.Key)
			if short, _, dotted := strings.Cut(module, "."); dotted {
				in.c.fault("Invalid requisite in %s: %s for %s in SLS '%s'. Requisites must not contain dots, did you mean '%s'?", rkey, module, show(p.Value), show(slsOf(in.body)), short)
				module = short
			}
			in.add(p.Value, module, rkey)
		}
	case []any:
		for _, item := range items {
			refs, err := in.resolve(ctx, rkey, item)
			if err != nil {
				return err
			}
			for _, ref := range refs {
				switch key {
				case "use_in":
					err = in.useIn(ctx, ref)
				case "use":
					err = in.use(ctx, ref)
				default:
					err = in.c.spend(ctx, 1)
					in.add(ref.id, ref.module, rkey)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// resolve lists the states that an item of a list matches. As in Salt, an unknown name silently
// matches none.
func (in *requisitesIn) resolve(ctx context.Context, rkey string, item any) ([]reference, error) {
	m, ok := item.(value.Map)
	if !ok {
		ref, found, err := in.c.named(ctx, item)
		if !found || err != nil {
			return nil, err
		}
		return []reference{ref}, nil
	}
	entry, ok := first(m)
	if !ok {
		return nil, nil
	}
	module := value.Str(entry.Key)
	if module == "sls" {
		return in.c.idsOf(ctx, entry.Value)
	}
	if short, _, dotted := strings.Cut(module, "."); dotted {
		in.c.fault("Invalid requisite in %s: %s for %s, in SLS '%s'. Requisites must not contain dots, did you mean '%s'?", rkey, module, show(entry.Value), show(slsOf(in.body)), short)
	}
	return []reference{{entry.Value, module}}, nil
}

// named finds the state with an id, or with a name argument.
func (c *compilation) named(ctx context.Context, name any) (ref reference, found bool, err error) {
	if body, ok := c.high.body(name); ok {
		i := slices.IndexFunc(body, func(p value.Pair) bool { return !hidden(p.Key) })
		if i < 0 {
			return ref, false, nil
		}
		return reference{name, value.Str(body[i].Key)}, true, nil
	}
	for _, p := range c.high.pairs {
		body, _ := p.Value.(value.Map)
		for _, decl := range body {
			args, _ := decl.Value.([]any)
			if err := c.spend(ctx, len(args)+1); err != nil {
				return ref, false, err
			}
			for _, arg := range args {
				m, _ := arg.(value.Map)
				if v, ok := m.Get("name"); ok && !hidden(decl.Key) && value.Equal(v, name) {
					return reference{p.Key, value.Str(decl.Key)}, true, nil
				}
			}
		}
	}
	return ref, false, nil
}

// extension returns the arguments that will extend a state.
func (in *requisitesIn) extension(id any, module string) (value.Map, []any) {
	v, _ := in.ext.get(id)
	body, _ := v.(value.Map)
	list, _ := body.Get(module)
	args, _ := list.([]any)
	return body, args
}

// add gives a state the requisite rkey on the state with the _in form.
func (in *requisitesIn) add(id any, module, rkey string) {
	body, args := in.extension(id, module)
	req := value.Map{{Key: in.state, Value: in.id}}
	found := false
	for i, arg := range args {
		m, _ := arg.(value.Map)
		if entry, ok := first(m); ok && entry.Key == rkey {
			list, _ := entry.Value.([]any)
			args[i] = value.Map{{Key: rkey, Value: append(list, req)}}
			found = true
		}
	}
	if !found {
		args = append(args, value.Map{{Key: rkey, Value: []any{req}}})
	}
	body = body.Set(module, args).Set("__env__", orElse(in.body, "__env__", nil)).Set("__sls__",
		slsOf(in.body))
	in.ext.set(id, body)
}

// useIn passes the arguments of the state with the _in form to another; use takes those of another.
func (in *requisitesIn) useIn(ctx context.Context, ref reference) error {
	return in.hand(ctx, ref, func(to reference) (reference, []any) { return to, in.args })
}

func (in *requisitesIn) use(ctx context.Context, ref reference) error {
	return in.hand(ctx, ref, func(from reference) (reference, []any) {
		body, _ := in.c.high.body(from.id)
		v, _ := body.Get(from.module)
		args, _ := v.([]any)
		return reference{in.id, in.state}, args
	})
}

func (in *requisitesIn) hand(ctx context.Context, ref reference,
	direction func(reference) (to reference, args []any)) error {
	found, err := in.c.findName(ctx, ref.id, ref.module, true)
	if err != nil {
		return err
	}
	for _, f := range found {
		to, args := direction(f)
		if err := in.c.spend(ctx, len(args)); err != nil {
			return err
		}
		body, ext := in.extension(to.id, to.module)
		have := in.c.argNames(to)
		for _, arg := range args {
			key, _, ok := single(arg)
			name := value.Str(key)
			if ok && !have[name] && !slices.Contains(notUsed, name) {
				ext = append(ext, arg)
			}
		}
		if ext == nil {
			ext = []any{}
		}
		in.ext.set(to.id, body.Set(to.module, ext))
	}
	return nil
}

// argNames are the state's own arguments.
func (c *compilation) argNames(ref reference) map[string]bool {
	out := map[string]bool{}
	body, _ := c.high.body(ref.id)
	v, _ := body.Get(ref.module)
	args, _ := v.([]any)
	for _, arg := range args {
		if key, _, ok := single(arg); ok {
			out[value.Str(key)] = true
		}
	}
	return out
}
