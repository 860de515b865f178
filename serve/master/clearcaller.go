package master

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermaster/serve/acl"
	"clustermaster/value"
)

// credentials is the kind of proof in an order.
type credentials string

const (
	kindUser  credentials = "user"  // the key of a user of a master's machine
	kindEauth credentials = "eauth" // name and password of external_auth
	kindToken credentials = "token"
)

// kindOf derives the kind from the fields that are present, as Salt does.
func kindOf(load value.Map) credentials {
	switch {
	case has(load, "token"):
		return kindToken
	case has(load, "eauth"):
		return kindEauth
	}
	return kindUser
}

// errorMap returns an error in the form that callers expect.
func errorMap(name, message string) value.Map {
	return value.Map{{Key: "error", Value: value.Map{{Key: "name", Value: name},
		{Key: "message", Value: message}}}}
}

var (
	notAuthenticated = errorMap("AuthenticationError", acl.NotAuthenticated)
	notAuthorized    = errorMap("AuthorizationError", acl.NotAuthorized)
	tooManyOrders    = errorMap("SaltClientError",
		"too many commands of this user at a time; wait for some to end")
)

// name returns the name of the errors of runner and wheel for this kind.
func (k credentials) name() string {
	return map[credentials]string{kindToken: "TokenAuthenticationError",
		kindEauth: "EauthAuthenticationError", kindUser: "UserAuthenticationError"}[k]
}

// refusal returns runner's and wheel's answer to invalid credentials.
func (k credentials) refusal(load value.Map) value.Map {
	text := `Authentication failure of type "` + string(k) + `" occurred`
	switch k {
	case kindToken:
		text += "."
	case kindEauth:
		text += " for user " + userOf(load) + "."
	}
	return errorMap(k.name(), text)
}

// unauthorized returns runner's and wheel's answer to a user who may not call a function.
func (k credentials) unauthorized(user string) value.Map {
	return errorMap(k.name(), `Authentication failure of type "`+string(k)+`" occurred for user `+
		user+".")
}

// maxShownUser bounds names that are sent back to callers and logged.
const maxShownUser = 64

// userOf returns the name that a caller claims. It is sent back only to that caller.
func userOf(m value.Map) string {
	if user := m.String("username"); user != "" && len(user) <= maxShownUser {
		return user
	}
	return "UNKNOWN"
}

// orderer says who gives an order, and with which rights.
type orderer struct {
	kind   credentials
	user   string
	eauth  string      // for kinds eauth and token: the back end that knows user
	rights *acl.Rights // nil: all
	super  bool        // the key was that of root or of the master's user
}

// errCredentials says that credentials are invalid.
var errCredentials = errors.New("credentials are not good")

// identify checks who gives an order. Creds holds the token, or eauth and its fields; key and user
// are those of the order's load. The error is errCredentials, one of package acl, or ctx's.
func (m *Master) identify(ctx context.Context, o *clearOrder, creds value.Map,
	funs []string) (orderer, error) {
	load := o.load
	who := orderer{kind: kindOf(creds)}
	if who.kind == kindUser {
		claimed, _ := load.Get("user")
		name, isText := claimed.(string)
		if claimed != nil && !isText || len(name) > maxClaimed {
			return who, errCredentials
		}
		caller, ok := m.keyHolder(name, load.String("key"))
		if !ok {
			return who, errCredentials
		}
		who.super = caller.Super
		var err error
		who.user, who.rights, err = m.deps.ACL.Orderer(caller, name, funs)
		return who, err
	}
	if m.deps.Auth == nil {
		return who, errCredentials
	}
	var id Identity
	var err error
	if who.kind == kindToken {
		token, _ := creds.Get("token")
		text, _ := token.(string)
		id, err = m.deps.Auth.ByToken(ctx, text)
	} else {
		id, err = m.deps.Auth.Authenticate(ctx, o.source(), creds)
	}
	switch {
	case ctx.Err() != nil:
		return who, ctx.Err()
	case err != nil:
		return who, errCredentials
	}
	who.user, who.eauth = id.Name, id.Eauth
	who.rights, err = m.deps.ACL.Confirmed(load.String("user"), id.Name, id.Rights, funs)
	return who, err
}

// rootUser has all rights, whatever user runs the master.
const rootUser = "root"

// sudoPrefix is what commands put before the name of the user who called them with sudo.
const sudoPrefix = "sudo_"

// keyHolder returns whose key a caller has that claims to be user; "" claims nothing. With the key
// of root or of the master's user any claim is accepted. Any other key proves only its own user:
// Salt's master accepts it as root's.
func (m *Master) keyHolder(user, key string) (acl.Caller, bool) {
	if key == "" || m.deps.UserKeys == nil {
		return acl.Caller{}, false
	}
	supers := []string{rootUser, m.opts.MasterUser}
	for _, super := range supers {
		if m.holds(super, key) {
			return acl.Caller{Name: super, Super: true}, true
		}
	}
	if user == "" || slices.Contains(supers, user) || strings.HasPrefix(user, sudoPrefix) ||
		!m.holds(user, key) {
		return acl.Caller{}, false
	}
	return acl.Caller{Name: user}, true
}

// holds compares keys in constant time, as digests, which all have the same length.
func (m *Master) holds(user, key string) bool {
	want, ok := m.deps.UserKeys.Key(user)
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(key))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && ok && want != ""
}

// refuseOrder counts and logs a refused order. Fun may be any value of the load.
func (m *Master) refuseOrder(o *clearOrder, reason, user string, fun any) {
	m.refused.order(reason, o.cmd, user, fun, o.remote)
	m.metrics.orders.WithLabelValues(o.cmd, "refused").Inc()
}

func (m *Master) accepted(o *clearOrder, kind credentials) {
	m.metrics.orders.WithLabelValues(o.cmd, string(kind)).Inc()
}

// reasonOf returns the metric label for the reason of a refusal.
func reasonOf(kind credentials, err error) string {
	switch {
	case errors.Is(err, acl.ErrBlacklisted):
		return "clear_blacklist"
	case errors.Is(err, acl.ErrNoRights):
		return "clear_rights"
	case kind == kindToken:
		return "clear_token"
	case kind == kindEauth:
		return "clear_credentials"
	}
	return "clear_key"
}

// Bounds of concurrent orders.
const (
	maxOrders        = 256
	maxOrdersPerUser = 64
)

// orders counts the orders under way. The zero value is ready.
type orders struct {
	mu     sync.Mutex // guards the rest
	n      int
	byUser map[string]int
}

// enter counts one more order of a user. It returns false if that exceeds a bound.
func (o *orders) enter(user string) (leave func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n >= maxOrders || o.byUser[user] >= maxOrdersPerUser {
		return nil, false
	}
	if o.byUser == nil {
		o.byUser = make(map[string]int)
	}
	o.n++
	o.byUser[user]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.n--
		if o.byUser[user]--; o.byUser[user] == 0 {
			delete(o.byUser, user)
		}
	}, true
}

// Events that unauthenticated callers may cause, on all masters' buses.
const (
	strangersBurst = 100
	strangersRate  = 10 // a second
)

// allowance limits the rate of events. The zero value is full.
type allowance struct {
	mu   sync.Mutex // guards the rest
	used float64
	at   time.Time
}

// take uses one up. It returns false if none is left.
func (a *allowance) take(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = max(0, a.used-strangersRate*now.Sub(a.at).Seconds())
	a.at = now
	if a.used+1 > strangersBurst {
		return false
	}
	a.used++
	return true
}
