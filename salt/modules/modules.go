package modules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	sig "clustermaster/salt/function"
	"clustermaster/value"
)

// Minion is the minion that a function runs for. Grains, pillar and options are the minion's,
// commands and files the master's.
type Minion struct {
	ID                 string
	Grains, Pillar     value.Map
	Saltenv, Pillarenv string
	States             bool      // it is the master itself, whose states run (Salt's MasterMinion)
	Opts               value.Map // as Salt passes them to functions, with the master's id
}

// Files reads files from file_roots.
type Files interface {
	// List returns the sorted files and Dirs the sorted folders of an environment. The caller
	// must not change the slices.
	List(env string) []string
	Dirs(env string) []string
	Envs() []string
	// Open returns a file's content and its path on disk.
	Open(env, path string) (abs string, data []byte, found bool, err error)
}

// Deps is what the functions use of other packages. A nil field counts as empty.
type Deps struct {
	Files Files
	// Mine is _mine_get with the minion's own rights: minion to value, or function to minion to
	// value.
	Mine func(ctx context.Context, id string, tgt, fun any, tgtType string) (value.Map, error)
	// Runner runs a runner function and returns its return.
	Runner func(ctx context.Context, fun string, args []any, kwargs value.Map) (v any,
		success bool, err error)
	// Render renders text through a pipeline for a minion.
	Render func(ctx context.Context, m Minion, path, text, pipe string, vars value.Map) (any, error)
	// SDB returns the master's option of an sdb profile as a map.
	SDB func(profile string) (value.Map, bool)
	// ForeignSDB reports whether a driver belongs to the site.
	ForeignSDB func(driver string) bool
	// Nodegroup returns the definition of a nodegroup.
	Nodegroup func(name string) (any, bool)
	Datastore Datastore
	Version   string // of Salt, for test.version
	HashType  string // hash_type, for cp.hash_file
	Log       *slog.Logger
}

// ErrUnknown is returned for an unknown function.
var ErrUnknown = errors.New("no such function")

// ErrOutside is wrapped by errors about a part of a function that exists in Salt but not here, such
// as a driver of sdb. Salt's own function may support it.
var ErrOutside = errors.New("not built in")

// outside is an ErrOutside with its text.
type outside string

func (o outside) Error() string        { return string(o) }
func (o outside) Is(target error) bool { return target == ErrOutside }

// Modules holds the functions. It is safe for concurrent use.
type Modules struct {
	deps   Deps
	byName map[string]function
	names  []string
}

// New makes the functions.
func New(deps Deps) *Modules {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.HashType == "" {
		deps.HashType = "sha256"
	}
	m := &Modules{deps: deps, byName: make(map[string]function)}
	for _, family := range [][]function{
		grainsFunctions(), pillarFunctions(), configFunctions(), dataFunctions(),
		commandFunctions(), programFunctions(), fileFunctions(), inodeFunctions(),
		searchFunctions(), matchFunctions(), cpFunctions(), hashFunctions(), environFunctions(),
		testFunctions(), masterFunctions(), httpFunctions(), datastoreFunctions(),
		jinjaFunctions(), sysFunctions(),
	} {
		for _, f := range family {
			if _, twice := m.byName[f.name]; twice {
				panic("function " + f.name + " occurs twice")
			}
			m.byName[f.name] = f
			m.names = append(m.names, f.name)
		}
	}
	slices.Sort(m.names)
	return m
}

// Names lists the functions, sorted. Callers must not change the slice.
func (m *Modules) Names() []string { return m.names }

// Has reports whether a function exists; a name that ends with a dot stands for any function of
// that module.
func (m *Modules) Has(_ context.Context, name string) bool {
	if strings.HasSuffix(name, ".") {
		i, _ := slices.BinarySearch(m.names, name)
		return i < len(m.names) && strings.HasPrefix(m.names[i], name)
	}
	_, ok := m.byName[name]
	return ok
}

// Call runs a function for a minion.
func (m *Modules) Call(ctx context.Context, who Minion, fun string, args []any,
	kwargs value.Map) (any, error) {
	f, ok := m.byName[fun]
	if !ok {
		return nil, fmt.Errorf("function %s: %w; see docs/template-functions.md",
			fun, ErrUnknown)
	}
	c := &call{Modules: m, who: who}
	if err := c.bind(f, args, kwargs); err != nil {
		return nil, err
	}
	v, err := f.run(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fun, err)
	}
	return v, nil
}

// function is one function of a module.
type function struct {
	name               string
	params             []param
	varArgs, varKwargs bool     // takes further arguments, keywords
	keywords           []string // those that only keywords give, all with the default nil
	python             string   // its name in Python, if different
	run                func(ctx context.Context, c *call) (any, error)
}

// param is a parameter; need and opt make one.
type param = sig.Param

var need, opt = sig.Need, sig.Opt

// call is one call with its arguments by name.
type call struct {
	*Modules
	who    Minion
	named  map[string]any
	more   []any     // further positional arguments
	kwargs value.Map // further keywords
}

// bind assigns the arguments to the parameters.
func (c *call) bind(f function, args []any, kwargs value.Map) error {
	s := sig.Signature{Name: cmp.Or(f.python, f.name), Params: f.params, VarArgs: f.varArgs,
		VarKwargs: f.varKwargs || len(f.keywords) > 0}
	b, err := s.Bind(args, kwargs)
	c.named, c.more, c.kwargs = b.Named, b.Rest, b.Kwargs
	for _, p := range b.Kwargs {
		if name, _ := p.Key.(string); !f.varKwargs && !slices.Contains(f.keywords, name) {
			return s.Unexpected(p.Key)
		}
	}
	return err
}

func (c *call) any(name string) any { return c.named[name] }

// text returns an argument as text: "" for nil, Python's str() of any other value.
func (c *call) text(name string) string { return text(c.named[name]) }

// bytes returns an argument that must be text or bytes.
func (c *call) bytes(name string) ([]byte, error) {
	switch v := c.named[name].(type) {
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	default:
		return nil, fmt.Errorf("%s must be text, not %s", name, value.Repr(v))
	}
}

// whole returns an argument that must be a whole number, or the text of one.
func (c *call) whole(name string) (int64, error) {
	v := c.named[name]
	if n, ok := number(v); ok {
		return n, nil
	}
	if s, ok := v.(string); ok {
		if n, ok := value.ParseInt(s); ok {
			return int64(n), nil
		}
	}
	return 0, fmt.Errorf("%s must be a whole number, not %s", name, value.Repr(v))
}

func (c *call) is(name string) bool { return value.Truth(c.named[name]) }

// dict returns an argument that is a map; nil for any other value.
func (c *call) dict(name string) value.Map {
	m, _ := c.named[name].(value.Map)
	return m
}

// list returns an argument that is a list, or one value as a list.
func (c *call) list(name string) []any {
	switch v := c.named[name].(type) {
	case nil:
		return nil
	case []any:
		return v
	default:
		return []any{v}
	}
}
