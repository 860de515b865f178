package runner

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Told is the return of a function that reveals a secret: the caller gets Value, events and the job
// cache get Kept.
type Told struct{ Value, Kept any }

const redacted = "[redacted]"

// A Function is one runner or wheel function.
type Function struct {
	Name      string // family.function
	Doc       string // what it does, its parameters and an example; no indentation of its own
	Params    []function.Param
	VarArgs   bool // takes any further positional arguments
	VarKwargs bool // takes any further keyword arguments
	// Unbound says that the function takes its arguments unchanged (Call.Raw) and checks them
	// itself.
	Unbound bool
	// Reveals says that the caller waits for a secret, so that a call ordered on port 4506 is
	// answered when it has ended.
	Reveals bool
	// Usage is the HelpText of a function whose text is not in our form; Doc is then shown as it
	// is.
	Usage string
	// Run does the work. It returns the function's return as a wire value. An error ends the call
	// as failed, with the error's text; *function.ArgumentError instead shows the caller how to use
	// the function.
	Run func(ctx context.Context, c *Call) (any, error)
}

// Signature returns the function's parameters.
func (f Function) Signature() function.Signature {
	return function.Signature{Name: f.Name, Params: f.Params, VarArgs: f.VarArgs,
		VarKwargs: f.VarKwargs}
}

// Registry is a set of functions by name. It does not change once made, so it is safe for
// concurrent use.
type Registry struct {
	byName map[string]Function
	names  []string
}

// NewRegistry joins families. Two functions with the same name are an error.
func NewRegistry(families ...[]Function) (*Registry, error) {
	r := &Registry{byName: make(map[string]Function)}
	for _, family := range families {
		for _, f := range family {
			// Rights on functions are rights on modules and their functions.
			if strings.Count(f.Name, ".") != 1 && f.Name != "" {
				return nil, fmt.Errorf("register function %s: its name is not module.function",
					f.Name)
			}
			if f.Name == "" || f.Run == nil {
				return nil, fmt.Errorf("register function %q: no name or nothing to run", f.Name)
			}
			if _, ok := r.byName[f.Name]; ok {
				return nil, fmt.Errorf("register function %s: registered twice", f.Name)
			}
			r.byName[f.Name] = f
			r.names = append(r.names, f.Name)
		}
	}
	sort.Strings(r.names)
	return r, nil
}

// Lookup finds a function by its full name.
func (r *Registry) Lookup(name string) (Function, bool) {
	f, ok := r.byName[name]
	return f, ok
}

// Names lists all functions, sorted. The slice is shared: read only.
func (r *Registry) Names() []string { return r.names }

// Docs maps function to text, sorted by name. An empty prefix means all, "jobs" the family,
// "jobs.active" that function; a prefix with "*" is a glob.
func (r *Registry) Docs(prefix string) value.Map {
	docs := value.Map{}
	for _, name := range r.names {
		if matchesDoc(name, prefix) {
			docs = append(docs, value.Pair{Key: name, Value: r.byName[name].HelpText()})
		}
	}
	return docs
}

func matchesDoc(name, prefix string) bool {
	if prefix == "" || name == prefix {
		return true
	}
	if strings.Contains(prefix, "*") {
		ok, err := path.Match(prefix, name)
		return err == nil && ok
	}
	return strings.HasPrefix(name, strings.TrimSuffix(prefix, ".")+".")
}

// HelpText is the function's text in Salt's form: a line break first, every line indented by four
// blanks, a line of four blanks at the end.
func (f Function) HelpText() string {
	if f.Usage != "" {
		return f.Usage
	}
	var b strings.Builder
	b.WriteByte('\n')
	for _, line := range strings.Split(strings.Trim(f.Doc, "\n"), "\n") {
		if line != "" {
			b.WriteString("    " + line)
		}
		b.WriteByte('\n')
	}
	b.WriteString("    ")
	return b.String()
}

// shownDoc is the text of salt-run -d.
func (f Function) shownDoc() string {
	if f.Usage != "" {
		return f.Doc
	}
	return f.HelpText()
}

// public returns req without the values of secret parameters. If a function has such a parameter it
// also hides the values of unknown keywords, which may be misspelt.
func (f Function) public(req Request) Request {
	if !slices.ContainsFunc(f.Params, func(p function.Param) bool { return p.Secret }) {
		return req
	}
	secret := func(name string) bool {
		i := slices.IndexFunc(f.Params, func(p function.Param) bool { return p.Name == name })
		return i < 0 || f.Params[i].Secret
	}
	req.Args, req.Kwargs = slices.Clone(req.Args), slices.Clone(req.Kwargs)
	for i := range req.Args {
		if i >= len(f.Params) || f.Params[i].Secret {
			req.Args[i] = redacted
		}
	}
	for i, p := range req.Kwargs {
		if name, _ := p.Key.(string); secret(name) {
			req.Kwargs[i].Value = redacted
		}
	}
	return req
}
