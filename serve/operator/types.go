package operator

import (
	"log/slog"
	"strings"

	"clustermaster/value"
)

// Targeted is the set of minions that a target matches.
type Targeted struct {
	Minions    []string
	Missing    []string // named in the target, but without an accepted key
	Incomplete string   // "", or which data could not be read, so that minions may be missing
}

// Credentials authenticate a user of external_auth: eauth, username and password, or a token.
type Credentials struct{ Eauth, Username, Password, Token string }

// String shows no secret.
func (c Credentials) String() string { return c.Eauth + "/" + c.Username }

// LogValue implements slog.LogValuer.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// RefusedError says that external_auth does not allow a user to do something.
type RefusedError struct{ Text string } // Salt's

func (e *RefusedError) Error() string { return e.Text }

// RunRequest asks for one call of a runner or wheel function.
type RunRequest struct {
	Fun    string // a name that begins with "wheel." is a wheel function
	Args   []any
	Kwargs value.Map
	JID    string // "": a new one
	User   string // set by the server to the caller
	Async  bool   // return at once with the jid
}

// RunResult is the outcome of a call.
type RunResult struct {
	JID       string
	Return    any
	Success   bool
	Retcode   int
	Outputter string
	NotRun    bool // the call never began
}

// Key is one minion key.
type Key struct {
	ID    string
	State string // minions, minions_pre, minions_rejected or minions_denied
	Pub   string // PEM text; "" if it was not requested
}

// KeyLists is the key store at one moment.
type KeyLists struct {
	Keys  []Key             // by state, then id
	Local map[string]string // file name of the master's own keys to PEM text; public parts only
	// why the keys may be out of date, such as no quorum; "" if they include every acknowledged
	// change
	Note string
}

// OwnKeyName is the file name in KeyLists.Local of the key that minions see as the master's: as
// with Salt 3008, it is the master's id, without what Salt adds to an id that no option names.
func OwnKeyName(id string, clustered bool) string {
	if clustered {
		return "cluster.pub"
	}
	return strings.TrimSuffix(id, "_master") + ".pub"
}

// KeyChange asks to accept, reject or delete keys.
type KeyChange struct {
	Action          string // accept, reject or delete
	Keys            []Key  // id, and the state in which the operator saw it
	PreserveMinions bool   // keep the caches of deleted minions
	KeepAESKey      bool   // delete and reject without a rotation of the AES key
}

// KeysChanged is what a KeyChange did.
type KeysChanged struct {
	Changed  []Key    // without Pub
	Warnings []string // one line each, for stderr
}

// Status is a master's own status.
type Status struct {
	ID, Version    string
	Serving, Ready bool
}
