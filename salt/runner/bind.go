package runner

import (
	"fmt"
	"slices"
	"strings"

	"clustermaster/value"
)

// ArgumentError tells that a function was called with arguments that it can't take. Text is worded as Python words it, for scripts match it.
type ArgumentError struct{ Text string }

func (e *ArgumentError) Error() string { return e.Text }

// KeywordError tells that a function was given keywords that it doesn't know.
type KeywordError struct{ Keywords []string } // name=value

func (e *KeywordError) Error() string {
	if len(e.Keywords) == 1 {
		return "The following keyword argument is not valid: " + e.Keywords[0]
	}
	return "The following keyword arguments are not valid: " + strings.Join(e.Keywords, ", ")
}

// clientKeys are keys of low data that say how to call, not with what; a function may have a parameter of such a name all the same.
var clientKeys = []string{
	"__jid__", "__tag__", "__user__", "client", "cmd", "eauth", "full_return", "fun", "kwarg", "match", "password", "print_event", "token", "username",
}

// byName turns low data into a call as Salt does: what is required stands first, then all that is optional by name, with defaults where
// nothing is given. What is required and missing shows when the call is bound.
func (f Function) byName(low value.Map) (args []any, kwargs value.Map) {
	named := false
	for _, p := range f.Params {
		v, given := low.Get(p.Name)
		switch {
		case p.Required && given && !named:
			args = append(args, v)
		case p.Required:
			named = true // the rest goes by name, or args would be shifted
			if given {
				kwargs = append(kwargs, value.Pair{Key: p.Name, Value: v})
			}
		case given:
			kwargs = append(kwargs, value.Pair{Key: p.Name, Value: v})
		default:
			kwargs = append(kwargs, value.Pair{Key: p.Name, Value: p.Default})
		}
	}
	for _, p := range low {
		if name, _ := p.Key.(string); !f.has(name) && !slices.Contains(clientKeys, name) {
			kwargs = append(kwargs, p)
		}
	}
	return args, kwargs
}

// bound holds the arguments of one call by parameter.
type bound struct {
	named  map[string]any
	rest   []any
	kwargs value.Map
}

// checkKeywords refuses keywords that f has no parameter for. It comes before binding, because Salt answers it differently.
func checkKeywords(f Function, kwargs value.Map) error {
	if f.VarKwargs {
		return nil
	}
	var invalid []string
	for _, p := range kwargs {
		name, _ := p.Key.(string)
		if !f.has(name) {
			invalid = append(invalid, value.Str(p.Key)+"="+value.Str(p.Value))
		}
	}
	if len(invalid) > 0 {
		return &KeywordError{Keywords: invalid}
	}
	return nil
}

func (f Function) has(name string) bool {
	for _, p := range f.Params {
		if p.Name == name {
			return true
		}
	}
	return false
}

// bind gives every parameter its value. The error is an *ArgumentError.
func bind(f Function, args []any, kwargs value.Map) (bound, error) {
	b := bound{named: make(map[string]any, len(f.Params))}
	if len(args) > len(f.Params) && !f.VarArgs {
		return bound{}, tooMany(f, len(args))
	}
	for i, p := range f.Params {
		if i < len(args) {
			b.named[p.Name] = args[i]
		}
	}
	if len(args) > len(f.Params) {
		b.rest = args[len(f.Params):]
	}
	for _, p := range kwargs {
		name, ok := p.Key.(string)
		if !ok {
			return bound{}, &ArgumentError{Text: "keywords must be strings"}
		}
		if !f.has(name) && !f.VarKwargs {
			return bound{}, &ArgumentError{Text: fmt.Sprintf("%s() got an unexpected keyword argument '%s'", f.short(), name)}
		}
		if !f.has(name) {
			b.kwargs = append(b.kwargs, p)
			continue
		}
		if _, taken := b.named[name]; taken {
			return bound{}, &ArgumentError{Text: fmt.Sprintf("%s() got multiple values for argument '%s'", f.short(), name)}
		}
		b.named[name] = p.Value
	}
	var missing []string
	for _, p := range f.Params {
		if _, ok := b.named[p.Name]; ok {
			continue
		}
		if p.Required {
			missing = append(missing, "'"+p.Name+"'")
			continue
		}
		b.named[p.Name] = p.Default
	}
	if len(missing) > 0 {
		return bound{}, missingArguments(f, missing)
	}
	return b, nil
}

func tooMany(f Function, given int) error {
	needed := 0
	for _, p := range f.Params {
		if p.Required {
			needed++
		}
	}
	takes, noun := fmt.Sprint(len(f.Params)), "arguments"
	switch {
	case needed != len(f.Params):
		takes = fmt.Sprintf("from %d to %d", needed, len(f.Params))
	case len(f.Params) == 1:
		noun = "argument"
	}
	were := "were"
	if given == 1 {
		were = "was"
	}
	return &ArgumentError{Text: fmt.Sprintf("%s() takes %s positional %s but %d %s given", f.short(), takes, noun, given, were)}
}

func missingArguments(f Function, names []string) error {
	noun, list := "arguments", ""
	switch n := len(names); {
	case n == 1:
		noun, list = "argument", names[0]
	case n == 2:
		list = names[0] + " and " + names[1]
	default:
		list = strings.Join(names[:n-1], ", ") + ", and " + names[n-1]
	}
	return &ArgumentError{Text: fmt.Sprintf("%s() missing %d required positional %s: %s", f.short(), len(names), noun, list)}
}
