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
	"clustermaster/store/jobcache"
	"clustermaster/value"
	"clustermaster/wire"
)

// Deps is everything that a Master asks others for. All of it is called from many goroutines.
// Fields marked optional may be nil.
type Deps struct {
	Keys        Keys
	Cluster     Cluster
	Jobs        Jobs
	Data        Data
	Targets     target.Source
	Bus         *event.Bus
	Mesh        *event.Mesh
	Subscribers Subscribers
	Peers       Peers    // optional: alone
	Files       Files    // optional: no files
	Commits     Commits  // optional: files come from the newest commits
	Pillars     Pillars  // optional: empty pillars
	Presence    Presence // optional: who signed in here
	Pushed      Pushed   // optional: pushed files are refused
	Disk        Disk     // optional: there is always space
	Kept        Kept     // optional: no returner gets events and jobs
	// Runner runs a runner function for a minion (peer_run) and returns its return, with an error
	// what salt-run would tell. Optional: none runs.
	Runner func(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error)

	// Of the orders of users (enable_clear_commands), all optional.
	ACL      *acl.Rules // nil: nobody but root and the master's user has rights
	UserKeys UserKeys   // nil: no key is good
	Auth     Auth       // nil: no external_auth
	Runners  Runners    // nil: none are run
	// OnDisk writes jobs for Salt's own clients, which read them from disk. nil: they wait for no
	// returns.
	OnDisk OnDisk
}

// Kept is what waits for returners.
type Kept interface {
	// Sync returns when the events that were fired before, and what was kept, are on stable
	// storage.
	Sync() error
	// Job keeps a job that was published, Minions those that a syndic names for it, and Return a
	// return that the job cache has; end may be "". None of them blocks.
	Job(jid string, load value.Map, minions []string)
	Minions(jid, syndic string, minions []string)
	Return(jid string, load value.RawMap, end string)
}

// Disk tells of the space that this master's data has.
type Disk interface {
	// Low is an error, for operators to read, while the reserve is used up.
	Low() error
}

// OnDisk is where Salt's own clients look jobs up.
type OnDisk interface {
	// Keep comes back when the job can be found there. load has no secrets. nocache: its returns
	// are not to be found there.
	Keep(jid string, load value.Map, minions []string, nocache bool)
}

// UserKeys are the keys of users of the masters' machines.
type UserKeys interface {
	// Key returns the key of a user, the same on every master; false if he has none.
	Key(user string) (string, bool)
}

// Identity is somebody whom Auth has confirmed.
type Identity struct {
	Name   string
	Eauth  string      // the back end that knows him
	Rights *acl.Rights // never nil
}

// Auth confirms users by external_auth. It takes its time for a refusal, bounds attempts and logs
// them.
type Auth interface {
	// Authenticate confirms eauth, username and password that come from a source, an address.
	Authenticate(ctx context.Context, source string, creds value.Map) (Identity, error)
	ByToken(ctx context.Context, token string) (Identity, error)
	// MakeToken authenticates and returns Salt's map of a new token; Token that of one which is
	// good.
	MakeToken(ctx context.Context, source string, creds value.Map) (value.Map, error)
	Token(ctx context.Context, token string) (value.Map, bool)
}

// Runners runs runner and wheel functions on this master.
type Runners interface {
	// StartRunner returns when the call is under way; it goes on after the caller has left. Error:
	// too many are running. What ctx says of its origin goes with it.
	StartRunner(ctx context.Context, o RunOrder) (jid, tag string, err error)
	// RunWheel returns when the function has ended.
	RunWheel(ctx context.Context, o RunOrder) Ran
}

// Pushed keeps the files that minions push.
type Pushed interface {
	// Append adds a piece of a file at its place; loc 0 begins the file anew. size is the whole
	// file's, below 0 if the minion did not say: what has been pushed is readable once all of it is
	// there. False: the piece does not continue what is stored. Beyond what is stored of one minion
	// or of all it is allotment.ErrSpent.
	Append(ctx context.Context, id, path string, loc, size int64, data []byte) (bool, error)
}

// Keys is what is asked of the key store.
type Keys interface {
	// Accepted returns the accepted key of an id, from memory.
	Accepted(id string) (*keystore.AcceptedKey, bool)
	// Offer decides on an offered key and stores what is to be stored. Without a quorum the outcome
	// is pend and nothing is stored.
	Offer(ctx context.Context, id, pub string, p keystore.Policy) (keystore.Outcome, error)
	// Revoke deletes a minion's key as salt-key -d does: with its event, the rotation of the AES
	// key, and the minion's grains and pillar.
	Revoke(ctx context.Context, id string) error
}

// Cluster is what is asked of the cluster.
type Cluster interface {
	// Secrets returns the present secrets: the same pointer until they change, never written to.
	Secrets() *cluster.Secrets
	// ClusterKey is the cluster's RSA key; nil before founding.
	ClusterKey() *wire.PrivateKey
}

// Jobs is what is asked of the job cache.
type Jobs interface {
	// SaveLoad keeps a job and its expected minions.
	SaveLoad(ctx context.Context, jid string, load value.Map, minions []string) error
	// SaveAccount keeps what a minion that began a job says of it as its load, unless it has one;
	// id "" is a syndic. Beyond what is stored of one minion or of all it is allotment.ErrSpent.
	SaveAccount(ctx context.Context, jid, id string, load value.Map) error
	// SaveMinions adds expected minions, as named by a syndic (source).
	SaveMinions(ctx context.Context, jid, source string, ids []string) error
	// SaveReturn keeps a return on stable storage; the first one of a minion stays. account, if not
	// nil, is kept as the job's load unless there is one. An Own return may be refused with
	// allotment.ErrSpent.
	SaveReturn(ctx context.Context, jid, id string, r jobcache.Return,
		account value.Map) (first bool, err error)
	// SaveNoCache notes that no return of a job is to be kept; NoCache tells.
	SaveNoCache(ctx context.Context, jid string) error
	NoCache(ctx context.Context, jid string) (bool, error)
	// SaveEndTime keeps when a job ended.
	SaveEndTime(ctx context.Context, jid, end string) error
	// SavePeer notes the minion that ordered a job; PeerOf tells it.
	SavePeer(ctx context.Context, jid, id string) error
	PeerOf(ctx context.Context, jid string) (id string, found bool, err error)
	// Owner tells who published a job; found is false for one that nobody did.
	Owner(ctx context.Context, jid string) (owner jobcache.Owner, found bool, err error)
	// Returns are the returns that are kept of a job, by minion.
	Returns(ctx context.Context, jid string) (map[string]jobcache.Return, error)
	// Returned lists the minions whose returns are kept.
	Returned(ctx context.Context, jid string) ([]string, error)
}

// Data is what is asked of the minions' data.
type Data interface {
	SetGrains(ctx context.Context, id string, grains value.Raw) error
	SetPillar(ctx context.Context, id, pillarenv string, pillar value.Map) error
	// MergeMine lays data over the stored mine, or with clear replaces it.
	MergeMine(ctx context.Context, id string, data value.Map, clear bool) error
	// MineValues returns one function's values in the mines of these minions, still packed; those
	// that have none are left out.
	MineValues(ctx context.Context, fun string, ids []string) (map[string]value.Raw, error)
	DeleteMine(ctx context.Context, id, fun string) error
	FlushMine(ctx context.Context, id string) error
}

// Files is the file server.
type Files interface {
	// Serve answers one of the _file_ commands and their kin, with the exact reply. An error is
	// told to the minion as the empty text.
	Serve(ctx context.Context, cmd string, load value.Map) (any, error)
}

// Commits keeps the files of a job at the commits with which it began.
type Commits interface {
	// Begin holds minions at the commits of now, on all masters. fun is a name or a list of names.
	Begin(ctx context.Context, fun any, jid string, minions []string)
	// End lets a minion go that returns for the job.
	End(ctx context.Context, fun any, jid, minion string)
	// Started lets a minion go that has started anew.
	Started(ctx context.Context, minion string)
	// For makes the context of a minion's file request.
	For(ctx context.Context, minion string) context.Context
}

// PillarRequest is what a pillar is made from.
type PillarRequest struct {
	ID                        string
	Grains                    value.Map
	Saltenv, Pillarenv        string // "" for nil
	Override, ExtraMinionData value.Map
	CleanCache                bool
	Ext                       any
}

// MadePillar is a pillar and what of it is kept for targets and pillar_cache.
type MadePillar struct {
	Pillar value.Map
	// nil if there is nothing new to keep: the override of one request is never kept
	Keep value.Map
	Env  string // pillarenv under which it is kept; "" for none
}

// Pillars makes pillars.
type Pillars interface {
	Pillar(ctx context.Context, r PillarRequest) (MadePillar, error)
}

// Presence knows who is connected, for max_minions.
type Presence interface {
	// Connected returns how many minions are connected, and whether this one is.
	Connected(id string) (count int, is bool)
}

// Publication is what goes to subscribers.
type Publication struct {
	Topics  []string // with zmq_filtering: one copy each
	Payload []byte
	JID     string
	Hold    time.Duration // also for subscribers that come within this time
	NoCache bool          // returns of this job are not kept: what masters tell each other with it
}

// Subscribers are the publish sessions of this master.
type Subscribers interface {
	Publish(p Publication) (subscribers int) // never blocks
	Release(jid string)                      // ends the Hold of a job
	Losses() []time.Time                     // when many subscribers went at once, in the last 30 s
}

// Peers are the other masters, as for event.Mesh.
type Peers interface {
	Self() string
	Members() []string
	Conn(node string) (grpc.ClientConnInterface, error)
}
