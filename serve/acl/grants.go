package acl

import (
	"errors"
	"slices"
	"strings"

	"clustermaster/value"
)

// ErrSyntax refuses a runner or wheel function whose name is not module.function, with Salt's text.
var ErrSyntax = errors.New("A command invocation error occurred: Check syntax.") // Salt's text

// anybody is the name of the entry that applies if no other matches.
const anybody = "*"

// Granted returns what a back end's section of external_auth gives a user: the entries whose
// pattern matches the name, those of the user's groups (name%), and those of * if no name matched
// or permissive_acl is set. (Salt matches the other way round, with the name as the pattern for
// entries, which matches equal texts and gives a user named * all entries.) It is never nil,
// because nil would mean all rights.
func Granted(section value.Map, user string, groups []string, permissive bool) *Rights {
	r := new(Rights)
	named := false
	for _, p := range section {
		name, _ := p.Key.(string)
		list, ok := p.Value.([]any)
		if !ok || name == anybody && !permissive {
			continue
		}
		switch {
		case strings.HasSuffix(name, "%"):
			if slices.Contains(groups, strings.TrimRight(name, "%")) {
				r.list = append(r.list, list...)
			}
		case fits(name, user):
			named = true
			r.list = append(r.list, list...)
		}
	}
	if list, ok := section.Get(anybody); ok && !named && !permissive {
		given, _ := list.([]any)
		r.list = append(r.list, given...)
	}
	return r
}

// FromList makes rights from a list of external_auth. It is never nil.
func FromList(list []any) *Rights { return &Rights{list: list} }

// List returns the list that the rights were made from. Read only.
func (r *Rights) List() []any { return r.list }

// AllowRunner reports whether the rights cover a call of a runner function. Error: ErrSyntax.
func (r *Rights) AllowRunner(fun string, args []any, kwargs value.Map) (bool, error) {
	return r.allowHere(fun, args, kwargs, "runner")
}

// AllowWheel reports whether the rights cover a call of a wheel function. Error: ErrSyntax.
func (r *Rights) AllowWheel(fun string, args []any, kwargs value.Map) (bool, error) {
	return r.allowHere(fun, args, kwargs, "wheel")
}

// allowHere matches a function that runs on a master with the entries that begin with @: the kind
// (@runner, @runners), the module (@jobs), or maps from these to conditions.
func (r *Rights) allowHere(fun string, args []any, kwargs value.Map, kind string) (bool, error) {
	if len(r.list) == 0 {
		return false, nil
	}
	module, name, ok := strings.Cut(fun, ".")
	if !ok || strings.Contains(name, ".") {
		return false, ErrSyntax
	}
	argsFit := func(conditions any) bool { return argsAllowed(conditions, args, kwargs) }
	for _, entry := range r.list {
		switch entry := entry.(type) {
		case string:
			if what, is := strings.CutPrefix(entry, "@"); is &&
				(what == module || what == kind || what == kind+"s") {
				return true, nil
			}
		case value.Map:
			if len(entry) != 1 {
				continue
			}
			key, _ := entry[0].Key.(string)
			what, is := strings.CutPrefix(key, "@")
			if !is {
				continue
			}
			if what == module && fulfilled(entry[0].Value, name, argsFit) ||
				(what == kind || what == kind+"s") && fulfilled(entry[0].Value, fun, argsFit) {
				return true, nil
			}
		}
	}
	return false, nil
}
