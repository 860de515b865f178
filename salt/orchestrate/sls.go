package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clustermaster/salt/modules"
	"clustermaster/salt/render"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// Files are file_roots.
type Files interface {
	// Envs lists the environments.
	Envs() []string
	// List returns the sorted paths of an environment's files. Callers must not change the slice.
	List(env string) []string
	// Open returns a file's content and its path on disk. found is false for a file that does not
	// exist or may not be read.
	Open(env, path string) (abs string, data []byte, found bool, err error)
}

// Renderer runs render pipelines. An error's text is Salt's.
type Renderer interface {
	Render(ctx context.Context, src render.Source, defaultPipe string, c render.Context,
		h render.Host) (any, error)
}

// Modules are the execution modules of the master.
type Modules interface {
	// Has reports whether a function exists; a name that ends with a dot stands for any function of
	// that module.
	Has(ctx context.Context, name string) bool
	// Call runs a function. For an unknown function the error is modules.ErrUnknown.
	Call(ctx context.Context, m modules.Minion, fun string, args []any,
		kwargs value.Map) (any, error)
}

// stages is implemented by Modules that have renderers besides those of package render.
type stages interface {
	HasRenderer(name string, src render.Source) bool
	RunStage(ctx context.Context, m modules.Minion, name, args string, val any,
		src render.Source, keywords value.Map) (any, error)
}

// reader makes high data from SLS files: Salt's render_highstate.
type reader struct {
	*compilation
	files    Files
	renderer Renderer
	modules  Modules
	pipe     string // renderer: the pipeline of files without a shebang
	envOrder []string
	auto     bool // state_auto_order
	who      modules.Minion
	matches  map[string]bool // the requested environments
	asked    []string        // the same in order
	avail    map[string][]string
	known    map[string]bool // environments; nil until asked for
	done     map[string]bool // env:sls
	order    int64           // of the next state without one
	rendered int
}

// firstOrder is Salt's first number of state_auto_order.
const firstOrder = 10000

// anyEnv is the environment that stands for all that have no entry.
const anyEnv = "__env__"

// read renders the SLS files that match patterns in one environment, with all their includes.
func (r *reader) read(ctx context.Context, env string, patterns []string) (*dict, error) {
	r.matches, r.asked = map[string]bool{env: true}, []string{env}
	high := newDict()
	for _, pattern := range patterns {
		names, ok := r.available(env)
		if !ok {
			if names, ok = r.available(anyEnv); !ok {
				r.fault("No matching salt environment for environment '%s' found", env)
			}
		}
		names = fnmatch.Filter(names, pattern)
		if len(names) == 0 {
			names = []string{pattern}
		}
		for _, sls := range names {
			if r.done[env+":"+sls] {
				continue
			}
			before := len(r.errors)
			state, err := r.sls(ctx, sls, env, 0)
			if err != nil {
				return nil, err
			}
			if state != nil {
				r.merge(high, state)
			}
			for i, text := range r.errors[before:] {
				if strings.Contains(text, "is not available") &&
					strings.Contains(text, "SLS "+pattern+" in saltenv") {
					r.errors[before+i] = fmt.Sprintf("No matching sls found for '%s' in env '%s'",
						pattern, env)
				}
			}
		}
	}
	cleanExtends(high)
	return high, nil
}

// cleanExtends removes repeated extensions.
func cleanExtends(high *dict) {
	exts := high.list("__extend__")
	if exts == nil {
		return
	}
	var out []any
	seen := map[string][]value.Pair{}
	for _, e := range exts {
		m, _ := e.(value.Map)
		for _, p := range m {
			key := keyText(p.Key)
			if slices.ContainsFunc(seen[key],
				func(o value.Pair) bool { return value.Equal(o.Value, p.Value) }) {
				continue
			}
			seen[key] = append(seen[key], p)
			out = append(out, value.Map{p})
		}
	}
	high.set("__extend__", out)
}

// available lists the SLS names of an environment, sorted; ok is false for an unknown environment.
func (r *reader) available(env string) (names []string, ok bool) {
	if r.known == nil {
		r.known = map[string]bool{"base": true}
		there := r.files.Envs()
		if len(r.envOrder) > 0 {
			for _, e := range r.envOrder {
				if len(there) == 0 || slices.Contains(there, e) {
					r.known[e] = true
				}
			}
		} else {
			for _, e := range there {
				r.known[e] = true
			}
		}
	}
	if !r.known[env] {
		return nil, false
	}
	if names, ok := r.avail[env]; ok {
		return names, true
	}
	names = []string{}
	for _, path := range r.files.List(env) {
		if base, ok := strings.CutSuffix(path, "/init.sls"); ok {
			names = append(names, strings.ReplaceAll(base, "/", "."))
		} else if base, ok := strings.CutSuffix(path, ".sls"); ok {
			names = append(names, strings.ReplaceAll(base, "/", "."))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	r.avail[env] = names
	return names, true
}

// sls renders one SLS file with its includes; nil means that it has no states. It adds its errors
// to the faults.
func (r *reader) sls(ctx context.Context, sls, env string, depth int) (*dict, error) {
	if depth > maxIncludeDepth {
		return nil, fmt.Errorf("include SLS %q: deeper than %d levels: %w", sls, maxIncludeDepth,
			errTooMuch)
	}
	if r.rendered++; r.rendered > maxRendered {
		return nil, fmt.Errorf("include SLS %q: more than %d files: %w", sls, maxRendered,
			errTooMuch)
	}
	package_, val, err := r.file(ctx, sls, env)
	if err != nil || !value.Truth(val) {
		return nil, err
	}
	m, ok := val.(value.Map)
	if !ok {
		r.fault("SLS %s does not render to a dictionary", sls)
		if depth == 0 {
			r.fault("Error when rendering state with contents: %s", show(val))
		}
		return nil, nil
	}
	made, err := r.copyValue(m, 0) // the rendered value may be shared
	if err != nil {
		return nil, fmt.Errorf("read SLS %q: %w", sls, err)
	}
	m, _ = made.(value.Map)
	state := dictOf(m)
	var includes []any
	if v, ok := state.get("include"); ok {
		if includes, ok = v.([]any); ok {
			state.pop("include")
		} else {
			r.fault("Include Declaration in SLS %s is not formed as a list", sls)
		}
	}
	r.handleExtend(state, sls, env)
	r.handleExclude(state, sls)
	r.declarations(state, sls, env)
	for _, inc := range includes {
		if err := r.include(ctx, state, inc, sls, env, package_, depth); err != nil {
			return nil, err
		}
	}
	r.number(state)
	return state, nil
}

// file finds and renders an SLS file. The value is nil if the file is missing or has an error.
func (r *reader) file(ctx context.Context, sls, env string) (package_ bool, val any, err error) {
	base := strings.ReplaceAll(sls, ".", "/")
	var abs string
	var data []byte
	var found bool
	for _, path := range []string{base + ".sls", base + "/init.sls"} {
		if abs, data, found, err = r.files.Open(env, path); found || err != nil {
			package_ = strings.HasSuffix(path, "/init.sls")
			break
		}
	}
	if err == nil && !found {
		r.fault("Specified SLS %s in saltenv %s is not available on the salt master or through a configured fileserver", sls, env)
		return false, nil, nil
	}
	if err == nil {
		src := render.Source{Path: abs, SLS: sls, SaltEnv: env, Data: data}
		who := r.who
		who.Saltenv = env
		val, err = r.renderer.Render(ctx, src, r.pipe,
			render.Context{ID: r.who.ID, Grains: r.who.Grains, Pillar: r.who.Pillar,
				Opts: r.who.Opts}, host{r, who})
	}
	r.done[env+":"+sls] = true
	if ctx.Err() != nil {
		return false, nil, ctx.Err()
	}
	if err != nil {
		r.fault("Rendering SLS '%s:%s' failed: %s", env, sls, err)
		return false, nil, nil
	}
	return package_, val, nil
}

// include merges one entry of a list of includes into a state.
func (r *reader) include(ctx context.Context, state *dict, entry any, sls, env string,
	package_ bool, depth int) error {
	const anyMatch = "_xenv"
	from, name := env, entry
	if m, ok := entry.(value.Map); ok && len(m) > 0 {
		from, name = value.Str(m[len(m)-1].Key), m[len(m)-1].Value
	}
	want, ok := name.(string)
	if !ok {
		r.fault("Badly formatted include %s found in include in SLS '%s:%s'", show(name), env, sls)
		return nil
	}
	avail, ok := r.available(from)
	if _, any := r.available(anyEnv); !ok && !any {
		r.fault("Nonexistent saltenv '%s' found in include of '%s' within SLS '%s:%s'", from, want,
			env, sls)
		return nil
	}
	if rest := strings.TrimLeft(want, "."); rest != want {
		levels := len(want) - len(rest)
		parts := strings.Split(sls, ".")
		if package_ {
			parts = append(parts, "init")
		}
		if levels > len(parts) {
			r.fault("Attempted relative include of '%s' within SLS '%s:%s' goes beyond top level package ", want, env, sls)
			return nil
		}
		want = strings.Join(append(parts[:len(parts)-levels:len(parts)-levels], rest), ".")
	}
	var resolved []string
	if from != anyMatch {
		if r.matches[from] || len(fnmatch.Filter(avail, want)) > 0 {
			resolved = []string{from}
		}
	} else {
		for _, e := range r.asked {
			if names, _ := r.available(e); len(fnmatch.Filter(names, want)) > 0 {
				resolved = append(resolved, e)
			}
		}
	}
	if len(resolved) != 1 && !slices.Contains(resolved, env) {
		where := from
		if from == anyMatch {
			where = strings.Join(r.asked, ", ")
		}
		if len(resolved) == 0 {
			r.fault("Unknown include: Specified SLS %s: %s is not available on the salt master in saltenv(s): %s ", from, want, where)
		} else {
			r.fault("Ambiguous include: Specified SLS %s: %s is available on the salt master in multiple available saltenvs: %s", from, want, strings.Join(resolved, ", "))
		}
		return nil
	}
	in := env
	if len(resolved) == 1 {
		in = resolved[0]
	}
	own, _ := r.available(env)
	names := fnmatch.Filter(own, want)
	if len(names) == 0 {
		names = []string{want}
	}
	for _, sub := range names {
		if r.done[in+":"+sub] {
			continue
		}
		made, err := r.sls(ctx, sub, in, depth+1)
		if err != nil {
			return err
		}
		if made == nil {
			continue
		}
		for i, p := range made.pairs {
			if body, ok := p.Value.(value.Map); ok && !hidden(p.Key) {
				list, _ := orElse(body, "__sls_included_from__", []any{}).([]any)
				made.pairs[i].Value = body.Set("__sls_included_from__", append(list, sls))
			}
		}
		r.merge(state, made)
	}
	return nil
}

// merge adds states to others: Salt's merge_included_states.
func (r *reader) merge(high, state *dict) {
	for _, key := range []string{"__extend__", "__exclude__"} {
		if v, ok := state.pop(key); ok {
			list, _ := v.([]any)
			high.set(key, append(high.list(key), list...))
		}
	}
	for _, p := range state.pairs {
		if old, ok := high.get(p.Key); ok && !value.Equal(old, p.Value) {
			a, _ := old.(value.Map)
			b, _ := p.Value.(value.Map)
			r.fault("Detected conflicting IDs, SLS IDs need to be globally unique.\n    The conflicting ID is '%s' and is found in SLS '%s:%s' and SLS '%s:%s'",
				value.Str(p.Key), a.String("__env__"), show(slsOf(a)), b.String("__env__"),
				show(slsOf(b)))
		}
		high.set(p.Key, p.Value)
	}
}

func (r *reader) handleExtend(state *dict, sls, env string) {
	v, ok := state.pop("extend")
	if !ok {
		return
	}
	ext, ok := v.(value.Map)
	if !ok {
		r.fault("Extension value in SLS '%s' is not a dictionary", sls)
		return
	}
	for i, p := range ext {
		body, ok := p.Value.(value.Map)
		if !ok {
			r.fault("Extension name '%s' in SLS '%s' is not a dictionary", value.Str(p.Key), sls)
			continue
		}
		if _, has := body.Get("__sls__"); !has {
			body = append(body, value.Pair{Key: "__sls__", Value: sls})
		}
		if _, has := body.Get("__env__"); !has {
			body = append(body, value.Pair{Key: "__env__", Value: env})
		}
		ext[i].Value = r.split(body, value.Str(p.Key), sls, func(string) {})
	}
	state.set("__extend__", append(state.list("__extend__"), ext))
}

func (r *reader) handleExclude(state *dict, sls string) {
	v, ok := state.pop("exclude")
	if !ok {
		return
	}
	list, ok := v.([]any)
	if !ok {
		r.fault("Exclude Declaration in SLS %s is not formed as a list", sls)
	}
	state.set("__exclude__", append(state.list("__exclude__"), list...))
}

// declarations gives each id its SLS and environment, and moves functions out of names such as
// test.nop.
func (r *reader) declarations(state *dict, sls, env string) {
	for i, p := range state.pairs {
		body, ok := p.Value.(value.Map)
		if !ok {
			if p.Key == "__extend__" || p.Key == "__exclude__" {
				continue
			}
			if short, _ := p.Value.(string); strings.Contains(short, ".") {
				parts := strings.Split(short, ".")
				state.pairs[i].Value = value.Map{{Key: "__sls__", Value: sls},
					{Key: "__env__", Value: env}, {Key: parts[0], Value: []any{parts[1]}}}
				continue
			}
			r.fault("ID %s in SLS %s is not a dictionary", value.Str(p.Key), sls)
			continue
		}
		id := value.Str(p.Key)
		body = r.split(body, id, sls, func(string) {
			r.fault("ID '%s' in SLS '%s' contains multiple state declarations of the same type",
				id, sls)
		})
		if _, has := body.Get("__sls__"); !has {
			body = append(body, value.Pair{Key: "__sls__", Value: sls})
		}
		if _, has := body.Get("__env__"); !has {
			body = append(body, value.Pair{Key: "__env__", Value: env})
		}
		state.pairs[i].Value = body
	}
}

// split turns a declaration such as test.nop into test with the function among its arguments. It
// calls twice for a repeated module.
func (r *reader) split(body value.Map, id, sls string, twice func(module string)) value.Map {
	if len(body) > maxDeclarations {
		r.fault("ID '%s' in SLS '%s' has more than %d states", id, sls, maxDeclarations)
		return body[:0:0]
	}
	seen := map[string]bool{}
	for _, p := range slices.Clone(body) {
		key, text := p.Key.(string)
		if !text {
			r.fault("State '%s' of ID '%s' in SLS '%s' is not formed as a string, but is type %s",
				value.Str(p.Key), id, sls, typeName(p.Key))
			continue
		}
		args, isList := p.Value.([]any)
		if strings.HasPrefix(key, "_") || !isList {
			continue
		}
		parts := strings.Split(key, ".")
		if len(parts) == 1 {
			seen[key] = true
			continue
		}
		if seen[parts[0]] {
			twice(parts[0])
			continue
		}
		body = body.Without(key).Set(parts[0], append(slices.Clip(args), parts[1]))
		seen[parts[0]] = true
	}
	return body
}

// number gives each state without an order the next number.
func (r *reader) number(state *dict) {
	if !r.auto {
		return
	}
	for i, p := range state.pairs {
		body, ok := p.Value.(value.Map)
		if !ok {
			switch p.Value.(type) {
			case string, []any, []byte:
				continue
			}
			return // Salt stops here as well
		}
		for j, decl := range body {
			key, text := decl.Key.(string)
			args, isList := decl.Value.([]any)
			if !text || !isList || strings.HasPrefix(key, "_") {
				continue
			}
			if slices.ContainsFunc(args, func(arg any) bool {
				m, _ := arg.(value.Map)
				entry, ok := first(m)
				return ok && entry.Key == "order"
			}) {
				continue
			}
			body[j].Value = append(args, value.Map{{Key: "order", Value: r.order}})
			r.order++
		}
		state.pairs[i].Value = body
	}
}

// host serves the templates of one environment.
type host struct {
	r   *reader
	who modules.Minion
}

var (
	_ render.Host           = host{}
	_ render.FunctionLister = host{}
	_ render.Explainer      = host{}
	_ render.FileNamer      = host{}
	_ render.StageRunner    = host{}
)

// Call runs an execution module's function on the master.
func (h host) Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error) {
	v, err := h.r.modules.Call(ctx, h.who, fun, args, kwargs)
	if errors.Is(err, modules.ErrUnknown) {
		return nil, fmt.Errorf("function %s: %w", fun, render.ErrUnknownFunction)
	}
	return v, err
}

// HasFunction implements render.FunctionLister.
func (h host) HasFunction(ctx context.Context, name string) bool {
	return h.r.modules.Has(ctx, name)
}

// WhyMissing implements render.Explainer.
func (h host) WhyMissing() string { return render.WhyMissing(h.r.modules) }

// HasRenderer implements render.StageRunner.
func (h host) HasRenderer(name string, src render.Source) bool {
	s, ok := h.r.modules.(stages)
	return ok && s.HasRenderer(name, src)
}

// RunStage implements render.StageRunner.
func (h host) RunStage(ctx context.Context, name, args string, val any, src render.Source,
	vars value.Map) (any, error) {
	return h.r.modules.(stages).RunStage(ctx, h.who, name, args, val, src, vars)
}

// File returns a file that a template imports.
func (h host) File(_ context.Context, saltenv, path string) ([]byte, bool, error) {
	_, data, found, err := h.r.files.Open(h.in(saltenv), path)
	return data, found, err
}

// FileName implements render.FileNamer.
func (h host) FileName(saltenv, path string) string {
	if abs, _, found, err := h.r.files.Open(h.in(saltenv), path); found && err == nil {
		return abs
	}
	return path
}

func (h host) in(saltenv string) string {
	if saltenv == "" {
		return h.who.Saltenv
	}
	return saltenv
}
