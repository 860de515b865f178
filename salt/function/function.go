// Package function binds the arguments of a call to the parameters of a function, in the words of
// Python and Salt.
//
// Lives here: the signature of a function, the binder for runners, wheel, execution modules and
// ext_pillars (Bind), the one for low data of states and reactions (Format), and the errors that
// scripts match.
//
// Does not: what a function does, who may call it.
package function

import (
	"fmt"
	"slices"
	"strings"

	"clustermaster/value"
)

// Param is one named parameter of a function.
type Param struct {
	Name     string
	Default  any // value when absent; ignored if Required
	Required bool
	Secret   bool // only the function may see its value
}

// Need makes a parameter that must be given.
func Need(name string) Param { return Param{Name: name, Required: true} }

// Opt makes a parameter with a value for when it is absent.
func Opt(name string, fallback any) Param { return Param{Name: name, Default: fallback} }

// Secret makes a secret parameter, None when absent.
func Secret(name string) Param { return Param{Name: name, Secret: true} }

// Signature is how a function is called.
type Signature struct {
	Name      string // module.function, or the function alone
	Params    []Param
	VarArgs   bool // takes further positional arguments
	VarKwargs bool // takes further keywords
}

// Bound holds the arguments of one call.
type Bound struct {
	Named  map[string]any // by parameter, every one of them
	Rest   []any          // positional arguments beyond the parameters
	Kwargs value.Map      // keywords beyond the parameters
}

// ArgumentError says that a function can't take the arguments of a call, in Python's words.
type ArgumentError struct{ Text string }

func (e *ArgumentError) Error() string { return e.Text }

// KeywordError says that a function does not know keywords of a call, in Salt's words.
type KeywordError struct{ Keywords []string } // name=value

func (e *KeywordError) Error() string {
	if len(e.Keywords) == 1 {
		return "The following keyword argument is not valid: " + e.Keywords[0]
	}
	return "The following keyword arguments are not valid: " + strings.Join(e.Keywords, ", ")
}

// Has reports whether name is a parameter.
func (s Signature) Has(name string) bool {
	return slices.ContainsFunc(s.Params, func(p Param) bool { return p.Name == name })
}

// Short is the name without its module, as error texts use it.
func (s Signature) Short() string { return s.Name[strings.LastIndexByte(s.Name, '.')+1:] }

func (s Signature) wrong(format string, args ...any) error {
	return &ArgumentError{Text: s.Short() + "() " + fmt.Sprintf(format, args...)}
}

// Unexpected is the error for a keyword that the function does not take.
func (s Signature) Unexpected(keyword any) error {
	return s.wrong("got an unexpected keyword argument '%s'", value.Str(keyword))
}

// Bind gives every parameter its value. The error is an *ArgumentError, found in CPython's order:
// keywords one by one, too many positional arguments, missing ones.
func (s Signature) Bind(args []any, kwargs value.Map) (Bound, error) {
	b := Bound{Named: make(map[string]any, len(s.Params))}
	n := min(len(args), len(s.Params))
	for i, v := range args[:n] {
		b.Named[s.Params[i].Name] = v
	}
	b.Rest = args[n:]
	for _, p := range kwargs {
		name, ok := p.Key.(string)
		_, taken := b.Named[name]
		switch {
		case !ok && s.VarKwargs:
			return Bound{}, &ArgumentError{Text: "keywords must be strings"}
		case !ok, !s.Has(name) && !s.VarKwargs:
			return Bound{}, s.Unexpected(p.Key)
		case !s.Has(name):
			b.Kwargs = append(b.Kwargs, p)
		case taken:
			return Bound{}, s.wrong("got multiple values for argument '%s'", name)
		default:
			b.Named[name] = p.Value
		}
	}
	if len(b.Rest) > 0 && !s.VarArgs {
		return Bound{}, s.tooMany(len(args))
	}
	var missing []string
	for _, p := range s.Params {
		if _, ok := b.Named[p.Name]; ok {
			continue
		}
		if p.Required {
			missing = append(missing, "'"+p.Name+"'")
		}
		b.Named[p.Name] = p.Default
	}
	if len(missing) > 0 {
		return Bound{}, s.wrong("missing %d required positional %s: %s", len(missing),
			plural("argument", len(missing)), listed(missing))
	}
	return b, nil
}

func (s Signature) tooMany(given int) error {
	needed, most := 0, len(s.Params)
	for _, p := range s.Params {
		if p.Required {
			needed++
		}
	}
	takes, noun := fmt.Sprint(most), plural("argument", most)
	if needed != most {
		takes, noun = fmt.Sprintf("from %d to %d", needed, most), "arguments"
	}
	were := "were"
	if given == 1 {
		were = "was"
	}
	return s.wrong("takes %s positional %s but %d %s given", takes, noun, given, were)
}

func plural(noun string, n int) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// listed joins words as CPython does.
func listed(words []string) string {
	switch n := len(words); n {
	case 0, 1:
		return strings.Join(words, "")
	case 2:
		return words[0] + " and " + words[1]
	default:
		return strings.Join(words[:n-1], ", ") + ", and " + words[n-1]
	}
}

// CheckKeywords refuses keywords that have no parameter with a *KeywordError. Salt does so before
// it calls a runner, and answers it differently from an *ArgumentError.
func (s Signature) CheckKeywords(kwargs value.Map) error {
	var invalid []string
	for _, p := range kwargs {
		if name, _ := p.Key.(string); !s.VarKwargs && !s.Has(name) {
			invalid = append(invalid, value.Str(p.Key)+"="+value.Str(p.Value))
		}
	}
	if len(invalid) > 0 {
		return &KeywordError{Keywords: invalid}
	}
	return nil
}

// ByName turns low data into a call as Salt does: required arguments stand first, then all others
// by name, with defaults where nothing is given. Keys in client say how to call, not with what; a
// parameter may have such a name all the same. A missing argument shows when the call is bound.
func (s Signature) ByName(low value.Map, client []string) (args []any, kwargs value.Map) {
	named := false
	for _, p := range s.Params {
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
		if name, _ := p.Key.(string); !s.Has(name) && !slices.Contains(client, name) {
			kwargs = append(kwargs, p)
		}
	}
	return args, kwargs
}

// Format reads a call from low data: required parameters by position, all others by name, with
// their defaults. Keys that ignore names are not the function's. This is Salt's format_call, with
// its errors.
func (s Signature) Format(low value.Map, ignore func(key string) bool) (args []any,
	kwargs value.Map, err error) {
	missing := 0
	for _, p := range s.Params {
		v, given := low.Get(p.Name)
		switch {
		case p.Required && given:
			args = append(args, v)
		case p.Required:
			missing++
		case given:
			kwargs = append(kwargs, value.Pair{Key: p.Name, Value: v})
		default:
			kwargs = append(kwargs, value.Pair{Key: p.Name, Value: p.Default})
		}
	}
	if missing > 0 {
		needed := len(args) + missing
		return nil, nil, fmt.Errorf("%s takes at least %d %s (%d given)", s.Short(), needed,
			plural("argument", needed), len(args))
	}
	var unknown []string
	for _, p := range low {
		key := value.Str(p.Key)
		switch {
		case ignore(key) || s.Has(key):
		case s.VarKwargs:
			kwargs = append(kwargs, p)
		default:
			unknown = append(unknown, "'"+key+"'")
		}
	}
	switch n := len(unknown); n {
	case 0:
		return args, kwargs, nil
	case 1:
		return nil, nil, fmt.Errorf("%s is an invalid keyword argument for '%s'", unknown[0],
			s.Name)
	default:
		return nil, nil, fmt.Errorf("%s and %s are invalid keyword arguments for '%s'",
			strings.Join(unknown[:n-1], ", "), unknown[n-1], s.Name)
	}
}

// BindState is Format for a state function: all parameters by name in their order, then the further
// keywords.
func (s Signature) BindState(low value.Map, ignore func(key string) bool) (value.Map, error) {
	args, kwargs, err := s.Format(low, ignore)
	if err != nil {
		return nil, err
	}
	out := make(value.Map, 0, len(s.Params))
	for _, p := range s.Params {
		if p.Required {
			out = append(out, value.Pair{Key: p.Name, Value: args[0]})
			args = args[1:]
			continue
		}
		out, kwargs = append(out, kwargs[0]), kwargs[1:]
	}
	return append(out, kwargs...), nil
}

// MissingState says in Salt's words which required parameters of a state function low data lacks.
func (s Signature) MissingState(low value.Map) (wrong []string) {
	for _, p := range s.Params {
		if _, given := low.Get(p.Name); p.Required && !given {
			wrong = append(wrong, fmt.Sprintf("Missing parameter %s for state %s", p.Name, s.Name))
		}
	}
	return wrong
}
