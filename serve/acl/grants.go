package acl

import (
	"errors"
	"slices"
	"strings"

	"clustermaster/value"
)

// ErrSyntax refuses a runner or wheel function whose name is not module.function, with Salt's text.
var ErrSyntax = errors.New("A command invocation error occurred: Check syntax.") // Salt's text

// anybody is the name of the entry that stands in where no other matches.
const anybody = "*"

// Granted returns what a back end's section of external_auth gives to a user: the entries whose
// pattern matches the name (Salt has it the other way round: the name as a pattern of entries,
// which fits equal texts and lets a user named * have all of them), those of his groups (name%),
// and that of * if no name matched or permissive_acl is set. It is never nil, so that it never
// means everything.
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

// FromList makes rights of a list as it stands in external_auth. It is never nil.
func FromList(list []any) *Rights { return &Rights{list: list} }

// List is what the rights were made of. Read only.
func (r *Rights) List() []any { return r.list }

// AllowRunner reports whether the rights cover a call of a runner function. Error: ErrSyntax.
func (r *Rights) AllowRunner(fun string, args []any, kwargs value.Map) (bool, error) {
	return r.allowHere(fun, args, kwargs, "runner")
}

// AllowWheel reports whether the rights cover a call of a wheel function. Error: ErrSyntax.
func (r *Rights) AllowWheel(fun string, args []any, kwargs value.Map) (bool, error) {
	return r.allowHere(fun, args, kwargs, "wheel")
}

// allowHere matches a function that runs on a master with the entries that begin with @: of the
// kind (@runner, @runners), of the module (@jobs), or maps from such to conditions.
func (r *Rights) allowHere(fun string, args []any, kwargs value.Map, kind string) (bool, error) {
	if len(r.list) == 0 {
		return false, nil
	}
	module, name, ok := strings.Cut(fun, ".")
	if !ok || strings.Contains(name, ".") {
		return false, ErrSyntax
	}
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
			if what == module && fulfilled(entry[0].Value, name, args, kwargs) ||
				(what == kind || what == kind+"s") && fulfilled(entry[0].Value, fun, args, kwargs) {
				return true, nil
			}
		}
	}
	return false, nil
}
