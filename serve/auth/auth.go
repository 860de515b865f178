package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/serve/acl"
	"clustermaster/value"
)

// ErrRefused says that credentials or a token are not valid, for whatever reason.
var ErrRefused = errors.New("authentication error occurred")

// Bounds of credentials in bytes.
const (
	maxUser     = 256
	maxPassword = 4096
)

// Options are the master's options with these names, as wire values.
type Options struct {
	External       value.Map     // external_auth: back end to user or group to list
	PermissiveACL  bool          // permissive_acl
	ACLModule      string        // eauth_acl_module
	KeepACLInToken bool          // keep_acl_in_token
	TokenExpire    time.Duration // token_expire
	ExpireOverride any           // token_expire_user_override: true, or back end to users
	HashType       string        // hash_type of tokens
	SharedSecret   string        // sharedsecret
	BackEnds       value.Map     // auth.pam.* and auth.ldap.*, by their full names
	RestTimeout    time.Duration // of a whole call; 0 means 10 s
}

// Deps is what Auth needs from the daemon.
type Deps struct {
	Tokens   Tokens
	Python   Python // calls libpam; needed for pam only
	Log      *slog.Logger
	Registry prometheus.Registerer
	Now      func() time.Time // nil: time.Now
	Others   Others           // nil: native back ends only
}

// Others are back ends outside this program.
type Others interface {
	// Overrides reports whether one of them replaces the native back end with that name.
	Overrides(name string) bool
	// Check reports whether the password is the user's. It also returns the user's groups and what
	// the user may order; a nil list leaves that to external_auth.
	Check(ctx context.Context, name, user, password string) (groups []string, list []any, good bool,
		err error)
	// Expand replaces parts of a list of what users may order.
	Expand(ctx context.Context, name string, list []any) ([]any, error)
}

// other is one of Others.
type other struct {
	name string
	of   Others
}

func (o other) check(ctx context.Context, user, password string) (known, bool, error) {
	groups, list, good, err := o.of.Check(ctx, o.name, user, password)
	return known{groups: groups, list: list, decided: list != nil}, good, err
}

func (o other) expand(ctx context.Context, list []any) ([]any, error) {
	return o.of.Expand(ctx, o.name, list)
}

// Identity is an authenticated user.
type Identity struct {
	Name   string
	Eauth  string   // the back end that confirmed it
	Groups []string // groups, from the back end
	Rights *acl.Rights
	Expire time.Time // of a token; else zero
}

// backEnd authenticates users. It must be safe for concurrent use.
type backEnd interface {
	// check reports whether the password is the user's, and what the back end knows about the user.
	// An error means that it can't decide.
	check(ctx context.Context, user, password string) (known, bool, error)
}

// known is what a back end reports about a user.
type known struct {
	groups []string
	list   []any // what the user may order in addition to external_auth; of rest and Others only
	// decided says that list replaces external_auth.
	decided bool
}

// expander is a back end that replaces parts of a list of what users may order.
type expander interface {
	expand(ctx context.Context, list []any) ([]any, error)
}

// Auth authenticates users by the options. It is safe for concurrent use.
type Auth struct {
	deps     Deps
	log      *slog.Logger
	m        *metrics
	guard    *guard
	refusals refusals
	now      atomic.Pointer[inForce]
}

// inForce holds the options in force with the back ends that they name. It never changes.
type inForce struct {
	opts     Options
	backEnds map[string]backEnd
}

// New makes the back ends that external_auth names. It returns an error for an unknown one, or for
// one without a required option.
func New(o Options, d Deps) (*Auth, error) {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	a := &Auth{deps: d, log: d.Log.With("component", "auth")}
	use, err := a.Prepare(o)
	if err != nil {
		return nil, err
	}
	use()
	a.m = newMetrics(d.Registry, d.Tokens)
	a.guard = newGuard(a.m)
	return a, nil
}

// Prepare checks other options and makes their back ends; use puts them in force, also for older
// tokens. The errors are those of New and change nothing.
func (a *Auth) Prepare(o Options) (use func(), err error) {
	if o.TokenExpire <= 0 {
		o.TokenExpire = 12 * time.Hour
	}
	f := &inForce{opts: o, backEnds: make(map[string]backEnd)}
	for _, p := range o.External {
		name, _ := p.Key.(string)
		section, err := sectionOf(name, p.Value)
		if err != nil {
			return nil, err
		}
		if f.backEnds[name], err = a.open(name, section, o); err != nil {
			return nil, fmt.Errorf("external_auth: %s: %w", name, err)
		}
		// Salt's master requires it: the list comes only with the password
		if name == "rest" {
			f.opts.KeepACLInToken = true
		}
	}
	if m := o.ACLModule; m != "" && !slices.Contains(Supported, m) {
		return nil, fmt.Errorf("eauth_acl_module: there is no back end %q; use one of %s", m,
			strings.Join(Supported, ", "))
	}
	return func() { a.now.Store(f) }, nil
}

// Supported lists the names of the back ends, which are those of Salt 3008.
var Supported = []string{"auto", "file", "ldap", "pam", "rest", "sharedsecret"}

func (a *Auth) open(name string, section value.Map, o Options) (backEnd, error) {
	if of := a.deps.Others; of != nil &&
		(!slices.Contains(Supported, name) || of.Overrides(name)) {
		return other{name, of}, nil
	}
	switch name {
	case "auto":
		return auto{}, nil
	case "sharedsecret":
		if o.SharedSecret == "" {
			return nil,
				errors.New("the option sharedsecret is empty, so anyone could guess it; set it")
		}
		return sharedSecret(o.SharedSecret), nil
	case "file":
		return newFile(section)
	case "rest":
		return newRest(section, o.RestTimeout)
	case "pam":
		return newPAM(o.BackEnds, a.deps.Python)
	case "ldap":
		return newLDAP(o.BackEnds, a.log)
	}
	return nil, fmt.Errorf("there is no such back end; use one of %s",
		strings.Join(Supported, ", "))
}

// sectionOf checks the form of a back end's section.
func sectionOf(name string, v any) (value.Map, error) {
	section, ok := v.(value.Map)
	if v != nil && !ok {
		return nil, fmt.Errorf("external_auth: the value of %q is not a map of users", name)
	}
	for _, p := range section {
		user, isText := p.Key.(string)
		switch p.Value.(type) {
		case []any:
		default:
			if isText && isParameter(name, user) {
				continue
			}
			return nil,
				fmt.Errorf("external_auth: what %v of %s may order is not a list; write a list of functions",
					p.Key, name)
		}
		if !isText {
			return nil, fmt.Errorf("external_auth: user %v of %s is not text; put it in quotes",
				p.Key, name)
		}
	}
	return section, nil
}

// isParameter distinguishes a back end's parameters, such as ^filename, from patterns of users.
func isParameter(backEnd, key string) bool {
	return strings.HasPrefix(key, "^") &&
		(backEnd == "file" || backEnd == "rest" || !slices.Contains(Supported, backEnd))
}

// Enabled lists the back ends that external_auth names.
func (a *Auth) Enabled() []string { return slices.Sorted(maps.Keys(a.now.Load().backEnds)) }

// Open reports whether external_auth admits anybody.
func (a *Auth) Open() bool { return len(a.now.Load().backEnds) > 0 }

// Authenticate checks the credentials of a request: eauth, username and password, all text. It
// ignores everything else in creds. Source is where the request comes from, such as an address, and
// bounds the attempts. Error: ErrRefused after about a second, or ctx's error.
func (a *Auth) Authenticate(ctx context.Context, source string, creds value.Map) (Identity, error) {
	eauth, user := creds.String("eauth"), creds.String("username")
	f := a.now.Load()
	end, enabled := f.backEnds[eauth]
	if !enabled {
		eauth = "unknown" // for metrics and logs, so that callers don't choose the name
	}
	id, err := a.guard.do(ctx, source, eauth, user, func(ctx context.Context) (Identity, error) {
		password, isText := creds.Get("password")
		word, ok := password.(string)
		switch {
		case !enabled:
			return Identity{}, fmt.Errorf("the back end is not enabled in external_auth: %w",
				ErrRefused)
		case !isText || !ok:
			return Identity{}, fmt.Errorf("no password: %w", ErrRefused)
		case user == "" || len(user) > maxUser || len(word) > maxPassword ||
			strings.ContainsAny(user, "\x00\r\n"):
			return Identity{},
				fmt.Errorf("the user's name or the password is empty or too long: %w", ErrRefused)
		}
		knows, right, err := end.check(ctx, user, word)
		switch {
		case err != nil:
			return Identity{}, fmt.Errorf("ask the back end: %w", err)
		case !right:
			return Identity{}, ErrRefused
		}
		return f.identify(ctx, eauth, user, word, knows)
	})
	if err != nil && ctx.Err() == nil {
		a.refusals.tell(a.log, eauth, source, shown(user), err)
	}
	return id, err
}

// shown makes a name from a stranger safe for a log.
func shown(user string) string {
	if len(user) > maxUser {
		return user[:maxUser]
	}
	return user
}

// identify collects what an authenticated user may order.
func (f *inForce) identify(ctx context.Context, eauth, user, password string, knows known) (Identity,
	error) {
	id := Identity{Name: user, Eauth: eauth, Groups: knows.groups}
	module := eauth
	if f.opts.ACLModule != "" {
		module = f.opts.ACLModule
	}
	if knows.decided {
		id.Rights = acl.FromList(knows.list)
		return id, nil
	}
	section := f.section(eauth)
	var list []any
	if module == "rest" {
		if eauth != "rest" {
			rest, ok := f.backEnds["rest"]
			if !ok {
				return Identity{},
					errors.New("eauth_acl_module is rest, and external_auth has no such section")
			}
			also, right, err := rest.check(ctx, user, password)
			if err != nil {
				return Identity{}, fmt.Errorf("ask eauth_acl_module: %w", err)
			}
			if right {
				knows.list = also.list
			}
		}
		own, _ := f.section("rest").Get(user)
		mine, _ := own.([]any)
		list = append(slices.Clone(mine), knows.list...)
	}
	if len(list) == 0 {
		list = acl.Granted(section, user, knows.groups, f.opts.PermissiveACL).List()
	}
	rights, err := f.expanded(ctx, eauth, list)
	id.Rights = rights
	return id, err
}

// section returns external_auth's section for a back end, without the back end's parameters.
func (f *inForce) section(eauth string) value.Map {
	v, _ := f.opts.External.Get(eauth)
	section, _ := v.(value.Map)
	return slices.DeleteFunc(slices.Clone(section), func(p value.Pair) bool {
		key, _ := p.Key.(string)
		return isParameter(eauth, key)
	})
}

// expanded asks a back end to expand the parts of a list that only it understands.
func (f *inForce) expanded(ctx context.Context, eauth string, list []any) (*acl.Rights, error) {
	if e, ok := f.backEnds[eauth].(expander); ok {
		var err error
		if list, err = e.expand(ctx, list); err != nil {
			return nil, fmt.Errorf("expand the rights of users of %s: %w", eauth, err)
		}
	}
	return acl.FromList(list), nil
}
