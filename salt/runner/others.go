package runner

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"clustermaster/value"
)

// Others are functions from outside this program: the site's own and Salt's. It is safe for
// concurrent use.
type Others interface {
	// Overrides reports whether one of them replaces the native function of that name.
	Overrides(fun string) bool
	// Lookup finds a function. If there is none the error wraps ErrUnknown, and gives the reason if
	// a module can't be loaded.
	Lookup(fun string) (Function, error)
	// All lists the functions besides the native ones.
	All() []Function
}

// ErrUnknown is wrapped by the errors of Others.Lookup for unknown functions.
var ErrUnknown = errors.New("unknown function")

// Ended is the return of a function that sets its own success.
type Ended struct {
	Return  any
	Success bool
	Retcode int
}

// operated is the family whose native functions stay available even if a site's module of that name
// lacks them: operators need them to look after the masters.
const operated = "cluster."

// find looks a function up: first the site's own, then native ones, then Salt's. The error is the
// text for the caller.
func (r *Runner) find(fun string) (Function, error) {
	native, known := r.reg.Lookup(fun)
	others := r.deps.Others
	if known && (others == nil || !others.Overrides(fun)) {
		return native, nil
	}
	missing := fmt.Errorf("'%s' is not available.", fun) // Salt's text
	if others == nil {
		return Function{}, missing
	}
	f, err := others.Lookup(fun)
	switch {
	case err == nil:
		return f, nil
	case known && len(fun) > len(operated) && fun[:len(operated)] == operated:
		return native, nil
	case errors.Is(err, ErrUnknown):
		return Function{}, err
	}
	return Function{}, fmt.Errorf("%w %w", missing, err)
}

// docs returns the texts of the native functions and of the others, sorted by name.
func (r *Runner) docs(prefix string) value.Map {
	out := r.reg.Docs(prefix)
	if r.deps.Others == nil {
		return out
	}
	if _, native := r.reg.Lookup(prefix); native && !r.deps.Others.Overrides(prefix) {
		return out
	}
	out = slices.DeleteFunc(out, func(p value.Pair) bool {
		name, _ := p.Key.(string)
		return r.deps.Others.Overrides(name)
	})
	for _, f := range r.deps.Others.All() {
		if _, taken := out.Get(f.Name); !taken && matchesDoc(f.Name, prefix) {
			out = append(out, value.Pair{Key: f.Name, Value: f.Doc})
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		a, _ := out[i].Key.(string)
		b, _ := out[j].Key.(string)
		return a < b
	})
	return out
}
