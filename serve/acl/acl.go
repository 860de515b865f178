package acl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"clustermaster/salt/target"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// Texts of refusals, from Salt's master.
const (
	NotAuthenticated = "Authentication error occurred."
	NotAuthorized    = "Authorization error occurred."
)

// findJob is what commands call while they wait. A user who may order anything may also call it.
const findJob = "saltutil.find_job"

// Options are the master's options of these names.
type Options struct {
	PublisherACL value.Map // patterns of users to lists of what they may order
	// publisher_acl_blacklist: users and modules, each text or a list of patterns
	Blacklist value.Map
	SudoACL   bool
}

// Rules apply the options, which may be replaced while Rules are in use. The zero value admits
// nobody.
type Rules struct{ inForce atomic.Pointer[rules] }

// rules are the checked options. They never change.
type rules struct {
	publisher      value.Map
	users, modules []string
	sudo           bool
}

// New makes the rules. Error: an option of the wrong shape.
func New(o Options) (*Rules, error) {
	r := new(Rules)
	use, err := r.Prepare(o)
	if err != nil {
		return nil, err
	}
	use()
	return r, nil
}

// now returns the rules in force.
func (r *Rules) now() *rules {
	if in := r.inForce.Load(); in != nil {
		return in
	}
	return new(rules)
}

// Prepare checks other options; use puts them in force for all further orders. An error changes
// nothing.
func (r *Rules) Prepare(o Options) (use func(), err error) {
	in, err := read(o)
	if err != nil {
		return nil, err
	}
	return func() { r.inForce.Store(in) }, nil
}

// read checks the options.
func read(o Options) (*rules, error) {
	r := &rules{publisher: o.PublisherACL, sudo: o.SudoACL && len(o.PublisherACL) > 0}
	for _, p := range o.PublisherACL {
		name, isText := p.Key.(string)
		if !isText {
			return nil, fmt.Errorf("publisher_acl: user %v is not text; put it in quotes", p.Key)
		}
		if _, ok := p.Value.([]any); !ok {
			return nil,
				fmt.Errorf("publisher_acl: what %s may order is not a list; write a list of functions",
					name)
		}
	}
	for _, p := range o.Blacklist {
		patterns, ok := texts(p.Value)
		switch {
		case !ok:
			return nil, fmt.Errorf("publisher_acl_blacklist: %v is not a list of texts", p.Key)
		case p.Key == "users":
			r.users = patterns
		case p.Key == "modules":
			r.modules = patterns
		}
	}
	return r, nil
}

// texts reads a text or a list of them.
func texts(v any) ([]string, bool) {
	switch v := v.(type) {
	case nil:
		return nil, true
	case string:
		return []string{v}, true
	case []any:
		out := make([]string, len(v))
		for i, x := range v {
			s, ok := x.(string)
			if !ok {
				return nil, false
			}
			out[i] = s
		}
		return out, true
	}
	return nil, false
}

// Open reports whether anybody but root and the master's user may order anything.
func (r *Rules) Open() bool { return len(r.now().publisher) > 0 }

// Blocked reports whether publisher_acl_blacklist forbids a user these functions, root included.
func (r *Rules) Blocked(user string, funs []string) bool {
	in := r.now()
	blocked := func(patterns []string, s string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			return target.Glob(p, s) || target.Forbids(p, s)
		})
	}
	return blocked(in.users, user) || slices.ContainsFunc(funs,
		func(fun string) bool { return blocked(in.modules, fun) })
}

// fits matches a user or a function with a glob or a regular expression
// (salt.utils.stringutils.expr_match).
func fits(pattern, s string) bool { return target.Glob(pattern, s) || target.MatchFull(pattern, s) }

// sudoPrefix is what commands put before the name of the user who called them with sudo.
const sudoPrefix = "sudo_"

// OfSudo returns the rights of a user who gives orders as root with sudo, and whether sudo_acl
// makes them count.
func (r *Rules) OfSudo(user string) (rights *Rights, counts bool) {
	name, is := strings.CutPrefix(user, sudoPrefix)
	if !is || !r.now().sudo {
		return nil, false
	}
	return r.Of(name), true
}

// Caller gives an order.
type Caller struct {
	Name  string // the authenticated user
	Super bool   // root, or the master's own user
}

// The refusals of Orderer. Their texts are Salt's.
var (
	// publisher_acl_blacklist names the user or a function
	ErrBlacklisted = errors.New(NotAuthorized)
	ErrNoRights    = errors.New(NotAuthenticated) // publisher_acl has nothing for the user
)

// Orderer returns in whose name a caller orders functions, and with which rights; nil means all.
// Only root and the master's user may claim another name.
func (r *Rules) Orderer(c Caller, claimed string, funs []string) (user string, rights *Rights,
	err error) {
	user = c.Name
	sudo := false
	if c.Super {
		if claimed != "" {
			user = claimed
		}
		rights, sudo = r.OfSudo(user)
	} else {
		rights = r.Of(user)
	}
	switch {
	case r.Blocked(user, funs):
		return user, nil, ErrBlacklisted
	case rights == nil && (sudo || !c.Super):
		return user, nil, ErrNoRights
	}
	return user, rights, nil
}

// Confirmed returns the rights with which a user of external_auth orders functions. Salt checks
// publisher_acl_blacklist with the name that the caller claims; Confirmed also checks the proved
// name.
func (r *Rules) Confirmed(claimed, name string, rights *Rights, funs []string) (*Rights, error) {
	switch {
	case r.Blocked(claimed, funs) || r.Blocked(name, nil):
		return nil, ErrBlacklisted
	case rights == nil: // would mean anything
		return nil, ErrNoRights
	}
	return rights, nil
}

// Of returns what publisher_acl gives a user; nil if nothing.
func (r *Rules) Of(user string) *Rights {
	var list []any
	for _, p := range r.now().publisher {
		if fits(p.Key.(string), user) {
			list = append(list, p.Value.([]any)...)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &Rights{list: list}
}

// Rights are what a user may order: patterns of functions on all minions, or maps from a compound
// target to such patterns.
type Rights struct{ list []any }

// Order is a user's order.
type Order struct {
	Funs    []string
	Several bool     // the order has a list of functions, if only of one
	Args    []any    // of the function; if Several, a list for each
	Minions []string // minions that it would go to
}

// Minions resolves a compound target to the minions that certainly match.
type Minions func(ctx context.Context, compound string) ([]string, error)

// Cover says on which minions rights cover an order.
type Cover uint8

const (
	Nowhere Cover = iota
	// on those of the order, if any, and on no others: the order must be sent to their ids
	Here
	Anywhere // on all, whatever the target is
)

// Allow returns where the rights cover every function of an order. An error comes from resolve.
func (r *Rights) Allow(ctx context.Context, o Order, resolve Minions) (Cover, error) {
	covered := map[string]bool{} // by compound target
	covers := func(tgt string) (bool, error) {
		if tgt == everyMinion {
			return true, nil
		}
		if strings.HasPrefix(tgt, "@") { // for a runner or wheel module, not for minions
			return false, nil
		}
		if is, known := covered[tgt]; known {
			return is, nil
		}
		ids, err := resolve(ctx, tgt)
		if err != nil {
			return false, err
		}
		set := make(map[string]struct{}, len(ids))
		for _, id := range ids {
			set[id] = struct{}{}
		}
		covered[tgt] = !slices.ContainsFunc(o.Minions,
			func(id string) bool { _, is := set[id]; return !is })
		return covered[tgt], nil
	}
	where := Anywhere
	if len(o.Funs) == 0 || len(o.Funs) > 1 && !o.Several {
		where = Nowhere
	}
	for i, fun := range o.Funs {
		args := o.Args
		if o.Several {
			args = nil
			if i < len(o.Args) {
				args, _ = o.Args[i].([]any)
			}
		}
		one, err := r.allowOne(fun, args, covers)
		if err != nil {
			return Nowhere, err
		}
		where = min(where, one)
	}
	return where, nil
}

func (r *Rights) allowOne(fun string, args []any, covers func(string) (bool, error)) (Cover,
	error) {
	if fun == findJob {
		return Anywhere, nil
	}
	where, argsFit := Nowhere, minionsArgs(args)
	for _, entry := range r.list {
		switch entry := entry.(type) {
		case string:
			if target.MatchStart(entry, fun) {
				return Anywhere, nil
			}
		case value.Map:
			if len(entry) != 1 {
				continue
			}
			tgt, _ := entry[0].Key.(string)
			if tgt != everyMinion && where == Here || !fulfilled(entry[0].Value, fun, argsFit) {
				continue
			}
			is, err := covers(tgt)
			switch {
			case err != nil:
				return Nowhere, fmt.Errorf("resolve %q of an access list: %w", tgt, err)
			case is && tgt == everyMinion:
				return Anywhere, nil
			case is:
				where = Here
			}
		}
	}
	return where, nil
}

// everyMinion is the target of an entry that limits functions, not minions.
const everyMinion = "*"

// minionsArgs returns the test of conditions on arguments that go to minions. It reads them when it
// is first called: most rights have no such conditions.
func minionsArgs(args []any) func(conditions any) bool {
	var positional []any
	var kwargs value.Map
	var certain bool
	read := sync.OnceFunc(func() { positional, kwargs, certain = asMinions(args) })
	return func(conditions any) bool {
		read()
		return certain && argsAllowed(conditions, positional, kwargs)
	}
}

// asMinions tells keyword arguments from others as minions do (load_args_and_kwargs): each map
// marked with __kwarg__ holds some, and each text such as name=value is one. Not certain: one is
// given twice, releases of Python may differ about its name, or its aliases make it too large.
func asMinions(args []any) (positional []any, kwargs value.Map, certain bool) {
	named := make(map[string]bool)
	certain = true
	add := func(name string, v any) {
		certain = certain && !named[name]
		named[name] = true
		kwargs = append(kwargs, value.Pair{Key: name, Value: decoded(v)})
	}
	for _, arg := range args {
		arg = decoded(arg)
		switch arg := arg.(type) {
		case value.Map:
			m := make(value.Map, len(arg))
			for i, p := range arg {
				m[i] = value.Pair{Key: decoded(p.Key), Value: p.Value}
			}
			if marked, _ := m.Get("__kwarg__"); marked != true {
				break
			}
			for _, p := range m.Without("__kwarg__") {
				if name, isText := p.Key.(string); isText { // Python calls nothing with others
					add(name, p.Value)
				}
			}
			continue
		case string:
			before, _, cut := strings.Cut(arg, "=")
			certain = certain && !(cut && foreign(before))
			if name, text, is := yaml11.SplitKwarg(arg); is {
				v, err := yaml11.ReadArg(text)
				certain = certain && err == nil
				add(name, v)
				continue
			}
		}
		positional = append(positional, arg)
	}
	return positional, kwargs, certain
}

// decoded returns bytes as minions read them: as text, if they are UTF-8.
func decoded(v any) any {
	if b, is := v.([]byte); is && utf8.Valid(b) {
		return string(b)
	}
	return v
}

// foreign reports whether it depends on the version of Unicode whether a text is a name.
func foreign(s string) bool {
	beyond := false
	for _, r := range s {
		switch {
		case r >= utf8.RuneSelf:
			beyond = true
		case !strings.ContainsRune("_.-", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r):
			return false
		}
	}
	return beyond
}

// fulfilled matches a function with conditions: patterns of functions, or maps from such patterns
// to conditions on the arguments, about which it asks argsFit.
func fulfilled(conditions any, fun string, argsFit func(conditions any) bool) bool {
	for _, c := range listOf(conditions) {
		switch c := c.(type) {
		case string:
			if target.MatchStart(c, fun) {
				return true
			}
		case value.Map:
			if len(c) != 1 {
				continue
			}
			if name, _ := c[0].Key.(string); target.MatchStart(name, fun) && argsFit(c[0].Value) {
				return true
			}
		}
	}
	return false
}

// argsAllowed reports whether one of the conditions holds. Each has patterns for the first
// arguments and for keyword arguments; null matches any value, which must be present.
func argsAllowed(conditions any, args []any, kwargs value.Map) bool {
	return slices.ContainsFunc(listOf(conditions), func(v any) bool {
		c, ok := v.(value.Map)
		if !ok {
			return false
		}
		first, _ := c.Get("args")
		for i, pattern := range listOf(first) {
			if i >= len(args) || !argFits(pattern, args[i]) {
				return false
			}
		}
		named, _ := c.Get("kwargs")
		m, _ := named.(value.Map)
		for _, p := range m {
			name, _ := p.Key.(string)
			if val, given := kwargs.Get(name); !given || !argFits(p.Value, val) {
				return false
			}
		}
		return true
	})
}

func argFits(pattern, val any) bool {
	if pattern == nil {
		return true
	}
	text, ok := pattern.(string)
	return ok && target.MatchStart(text, value.Str(val))
}

// listOf makes a list of a value that may come without one.
func listOf(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{v}
}

// Confirmed returns the options of a job with its user of external_auth and the back end that knows
// that user, as Salt's load names them. A user of the system with the same name is somebody else.
func Confirmed(kwargs value.Map, user, eauth string) value.Map {
	return append(kwargs.Without("eauth", "username"), value.Pair{Key: "eauth", Value: eauth},
		value.Pair{Key: "username", Value: user})
}
