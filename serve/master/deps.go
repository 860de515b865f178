package master

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"clustermaster/cluster"
	"clustermaster/keystore"
	"clustermaster/salt/target"
	"clustermaster/serve/acl"
	"clustermaster/serve/event"
	"clustermaster/serve/traces"
	"clustermaster/store/jobcache"
	"clustermaster/value"
	"clustermaster/wire"
)

// Deps is everything that a Master needs from other packages. All of it is called from many
// goroutines. Fields marked optional may be nil.
type Deps struct {
	Keys        Keys
	Cluster     Cluster
	Jobs        Jobs
	Data        Data
	Targets     target.Source
	Bus         *event.Bus
	Mesh        *event.Mesh
	Subscribers Subscribers
	Peers       Peers            // optional: no other masters
	Files       Files            // optional: no files
	Commits     Commits          // optional: files of the newest commits
	Pillars     Pillars          // optional: empty pillars
	Presence    Presence         // optional: minions that signed in here
	Pushed      Pushed           // optional: pushed files are refused
	Disk        Disk             // optional: there is always space
	Kept        Kept             // optional: no returner gets events and jobs
	Traces      *traces.Traces   // optional: no job is traced
	Clock       func() time.Time // optional: time.Now; of job ids
	// Runner runs a runner function for a minion (peer_run) and returns its return; with an error
	// also what salt-run would print. Optional: none runs.
	Runner func(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error)

	// For users' orders (enable_clear_commands), all optional.
	ACL      *acl.Rules // nil: only root and the master's user have rights
	UserKeys UserKeys   // nil: no key is valid
	Auth     Auth       // nil: no external_auth
	Runners  Runners    // nil: no function runs
	// OnDisk writes jobs for Salt's own clients, which read them from disk. Nil: none are written.
	OnDisk OnDisk
}

// Kept holds data for returners.
type Kept interface {
	// Sync returns when the events fired before, and everything kept, are on stable storage.
	Sync() error
	// Job keeps a published job, Minions the minions that a syndic names for it, and Return a
	// return that the job cache has; end may be "". None of them blocks.
	Job(jid string, load value.Map, minions []string)
	Minions(jid, syndic string, minions []string)
	Return(jid string, load value.RawMap, end string)
}

// Disk reports the free space for this master's data.
type Disk interface {
	// Low returns an error for operators while the reserve is in use.
	Low() error
}

// OnDisk is where Salt's own clients look up jobs.
type OnDisk interface {
	// Keep returns once the job can be found there. Load has no secrets. With nocache its returns
	// will not be stored there.
	Keep(jid string, load value.Map, minions []string, nocache bool)
}

// UserKeys are the keys of users of the masters' machines.
type UserKeys interface {
	// Key returns the key of a user, the same on every master; false if the user has none.
	Key(user string) (string, bool)
}

// Identity is a user authenticated by Auth.
type Identity struct {
	Name   string
	Eauth  string      // the back end that knows the user
	Rights *acl.Rights // never nil
}

// Auth authenticates users by external_auth. It delays refusals, bounds attempts and logs them.
type Auth interface {
	// Authenticate checks eauth, username and password from a source, an address.
	Authenticate(ctx context.Context, source string, creds value.Map) (Identity, error)
	ByToken(ctx context.Context, token string) (Identity, error)
	// MakeToken authenticates and returns Salt's map of a new token. Token returns that of a valid
	// one.
	MakeToken(ctx context.Context, source string, creds value.Map) (value.Map, error)
	Token(ctx context.Context, token string) (value.Map, bool)
}

// Runners runs runner and wheel functions on this master.
type Runners interface {
	// StartRunner returns once the call is under way, or, if the function reveals a secret, has
	// ended. The call goes on after the caller has left.
	// Error: too many are running. The origin in ctx goes with it.
	StartRunner(ctx context.Context, o RunOrder) (jid, tag string, err error)
	// RunWheel returns when the function has ended.
	RunWheel(ctx context.Context, o RunOrder) Ran
}

// Pushed keeps the files that minions push.
type Pushed interface {
	// Append adds a piece of a file at offset loc; loc 0 begins a new file. Size is that of the
	// whole file, below 0 if the minion did not say; the file is readable once all of it has
	// arrived. It returns false if the piece does not continue what is stored, and
	// allotment.ErrSpent beyond the bound of one minion or of all.
	Append(ctx context.Context, id, path string, loc, size int64, data []byte) (bool, error)
}

// Keys is the part of the key store that Master needs.
type Keys interface {
	// Accepted returns the accepted key of an id, from memory.
	Accepted(id string) (*keystore.AcceptedKey, bool)
	// Offer decides on an offered key and stores the result. Without a quorum the outcome is pend
	// and it stores nothing.
	Offer(ctx context.Context, id, pub string, p keystore.Policy) (keystore.Outcome, error)
	// Revoke deletes a minion's key as salt-key -d does: it fires the event, rotates the AES key,
	// and removes the minion's grains and pillar.
	Revoke(ctx context.Context, id string) error
}

// Cluster is the part of the cluster that Master needs.
type Cluster interface {
	// Secrets returns the present secrets, as the same pointer until they change: read only.
	Secrets() *cluster.Secrets
	// ClusterKey returns the cluster's RSA key; nil before founding.
	ClusterKey() *wire.PrivateKey
	// ReadIndex returns when the keys and secrets here are at least as new as those by which any
	// master answered before the call.
	ReadIndex(ctx context.Context) error
	// Now returns the time by the clocks of most masters.
	Now() time.Time
}

// Jobs is the part of the job cache that Master needs.
type Jobs interface {
	// SaveLoad stores a job and its expected minions.
	SaveLoad(ctx context.Context, jid string, load value.Map, minions []string) error
	// SaveAccount stores the account of a job by the minion that began it as the job's load, unless
	// it has one; id "" is a syndic. Beyond the bound of one minion or of all it returns
	// allotment.ErrSpent.
	SaveAccount(ctx context.Context, jid, id string, load value.Map) error
	// SaveMinions adds expected minions, as named by a syndic (source).
	SaveMinions(ctx context.Context, jid, source string, ids []string) error
	// SaveReturn puts a return on stable storage. The first return of a minion stays. It stores
	// account, if not nil, as the job's load unless there is one. It may refuse an Own return with
	// allotment.ErrSpent.
	SaveReturn(ctx context.Context, jid, id string, r jobcache.Return,
		account value.Map) (first bool, err error)
	// SaveNoCache notes that no return of a job is to be kept. NoCache reports that.
	SaveNoCache(ctx context.Context, jid string) error
	NoCache(ctx context.Context, jid string) (bool, error)
	// SaveEndTime stores when a job ended.
	SaveEndTime(ctx context.Context, jid, end string) error
	// SavePeer notes the minion that ordered a job. PeerOf returns it.
	SavePeer(ctx context.Context, jid, id string) error
	PeerOf(ctx context.Context, jid string) (id string, found bool, err error)
	// Owner returns who published a job. Found is false if no user did.
	Owner(ctx context.Context, jid string) (owner jobcache.Owner, found bool, err error)
	// EachReturn calls fn with each minion's stored return of a job, and ends with an error of fn.
	EachReturn(ctx context.Context, jid string, fn func(id string, r jobcache.Return) error) error
	// Returned lists the minions with stored returns.
	Returned(ctx context.Context, jid string) ([]string, error)
}

// Data is the part of the minion data that Master needs.
type Data interface {
	SetGrains(ctx context.Context, id string, grains value.Raw) error
	SetPillar(ctx context.Context, id, pillarenv string, pillar value.Map) error
	// MergeMine merges data into the stored mine, or with clear replaces it.
	MergeMine(ctx context.Context, id string, data value.Map, clear bool) error
	// MineValues returns one function's values in the mines of these minions, still packed. Minions
	// without one are left out. Hold is called with the bytes of each, not concurrently; its error
	// ends the reading.
	MineValues(ctx context.Context, fun string, ids []string,
		hold func(int64) error) (map[string]value.Raw, error)
	DeleteMine(ctx context.Context, id, fun string) error
	FlushMine(ctx context.Context, id string) error
}

// Files is the file server.
type Files interface {
	// Serve answers one of the _file_ commands and related ones with the exact reply. For an error
	// the minion gets the empty text, or nil if it asked for a list.
	Serve(ctx context.Context, cmd string, load value.Map) (any, error)
}

// Commits keeps the files of a job at the commits at which it began.
type Commits interface {
	// Begin holds minions at the present commits, on all masters. Fun is a name or a list of names.
	Begin(ctx context.Context, fun any, jid string, minions []string)
	// End releases a minion that returns for the job.
	End(ctx context.Context, fun any, jid, minion string)
	// Started releases a minion that has restarted.
	Started(ctx context.Context, minion string)
	// For returns the context for a minion's file request.
	For(ctx context.Context, minion string) context.Context
}

// PillarRequest is the input of a pillar.
type PillarRequest struct {
	ID                        string
	Grains                    value.Map
	Saltenv, Pillarenv        string // "" for nil
	Override, ExtraMinionData value.Map
	CleanCache                bool
	Ext                       any
}

// MadePillar is a pillar, with the part of it that is stored for targets and pillar_cache.
type MadePillar struct {
	Pillar value.Map
	// nil if there is nothing new to store: the override of one request is never stored
	Keep value.Map
	Env  string // pillarenv under which it is stored; "" for none
}

// Pillars makes pillars.
type Pillars interface {
	Pillar(ctx context.Context, r PillarRequest) (MadePillar, error)
}

// Presence knows which minions are connected, for max_minions.
type Presence interface {
	// Connected returns how many minions are connected, and whether this one is.
	Connected(id string) (count int, is bool)
}

// Publication is a message for subscribers.
type Publication struct {
	Topics  []string // with zmq_filtering: one copy each
	Payload []byte
	JID     string
	Hold    time.Duration // also deliver to subscribers that come within this time
	NoCache bool          // returns of this job are not stored; masters tell each other with it
}

// Subscribers are the publish sessions of this master.
type Subscribers interface {
	Publish(p Publication) (subscribers int) // never blocks
	Release(jid string)                      // ends the Hold of a job
	Losses() []time.Time                     // when many were lost at once, in the last 30 s
}

// Peers gives access to the other masters, as event.Mesh needs them.
type Peers interface {
	Self() string
	Members() []string
	Conn(node string) (grpc.ClientConnInterface, error)
}
