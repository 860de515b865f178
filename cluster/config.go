package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/store/seal"
)

// Config describes this master and how it takes part in the cluster. It is read only after Open.
type Config struct {
	ID      string   // option id
	Addr    string   // host:port at which peers reach this master; "" makes it stand-alone
	Peers   []string // option cluster_peers: host or host:port; the port of Addr is the default
	Version string   // of this program, shown to peers
	SPKI    [32]byte // SHA-256 of the node key's SubjectPublicKeyInfo, transport/peer.NodeKey.SPKI
	NodePub string   // the node key's public part, PEM; members export it as peers/<id>.pub
	Pins    *Pins    // those that the peer port was made with; Open connects them to the state

	ClusterID string
	// JoinKey is K, made from cluster_secret by transport/peer.JoinKey. It serves founding and
	// joining only.
	JoinKey []byte
	// PubFingerprint is the option cluster_pub_fingerprint: the cluster key that a joiner expects.
	PubFingerprint string
	// Found founds without the peers that do not answer. A peer that answers may still forbid it
	// (salt-master --found).
	Found bool

	DataDir string // raft/, identity and grants; made with mode 0700
	// folder of all that this master keeps, DataDir in it, for advice to move it away; "": DataDir
	WholeDir string
	Seal     *seal.Key // seals Raft's log and snapshots on disk; nil: they are not sealed

	MaxVoters int // option cluster_max_voters, default 5
	// option cluster_min_voters: automatic replacement leaves at least this many; default 3
	MinVoters     int
	ReplaceVoters bool // option cluster_auto_replace_voters
	// option cluster_voter_timeout: silence after which a voter is unhealthy; default 10 s
	VoterTimeout time.Duration
	VoterCheck   time.Duration // option cluster_voter_health_check_interval; default 1 s
	// option cluster_demote_cooldown: time until a demoted voter may vote again; 0: at once
	DemoteCooldown time.Duration
	// option ring_dead_after: silence after which a member's share of the data goes to others;
	// default 10 min
	RingDeadAfter time.Duration
	// silence of a member after which one with its id at another address takes its place, so that a
	// box that was given the id by mistake does not take it while the member restarts; default a
	// minute
	ReplaceAfter time.Duration
	// option cluster_join_timeout: after this long without founding, the log names --found; default
	// 30 s
	JoinTimeout time.Duration
	// option cluster_clock_limit: a clock that is off by more is wrong; default 30 s
	ClockLimit time.Duration
	StaleLimit time.Duration // option cluster_stale_limit, default 10 s
	// time after a removal, or after the staging of a secret, until the leader completes the
	// rotation that the proposer left undone; default 30 s
	OwedAfter time.Duration
	// option publish_session: age at which AES and session secrets rotate; 0: never
	PublishSession time.Duration
	// how long a replaced session secret still opens requests; default 10 min
	SessionGrace time.Duration
	AESGrace     time.Duration // how long a replaced AES key still opens requests; default 60 s

	// FoundingKeys are the places where founding looks for the RSA key that signs Salt's messages.
	// It takes the first key with accepted minion keys beside it, else the first key, else makes a
	// new one of KeySize bits.
	FoundingKeys []FoundingKey
	KeySize      int // option keysize, default 2048
	// MayMakeKey returns why founding may not make a new key; nil: it may. An operator's order
	// (Found) overrides it.
	MayMakeKey func() error
	Partitions int // of the ring, fixed at founding; default 256

	// StateSync reports how far this master is with the roots; promotion waits for a joiner's copy.
	// Nil: there is nothing to copy. It is called from Run on, must not block, and must be safe for
	// concurrent use.
	StateSync func() SyncState

	// Unfit says why this master should get no minions although it serves, for example because its
	// disk is almost full. Nil: it is always fit. It must not block and must be safe for concurrent
	// use.
	Unfit func() error

	// OnFounded runs on the founder after founding, again at each start until it has succeeded
	// once. It imports keys.
	OnFounded func(ctx context.Context, n *Node) error

	Now func() time.Time // this machine's clock; nil: time.Now

	// Writing is called when a write of Raft's log, term or vote begins, and what it returns when
	// that has ended; they must not block. Nil: nothing is.
	Writing func() (ended func())

	// OpenLog opens Raft's log, terms and votes in Raft's folder. Nil: a bbolt file there.
	OpenLog func(dir string) (RaftLog, error)

	// HeartbeatTimeout is how long a follower waits for the leader before it calls an election;
	// default 1 s. With that, three masters, a balancer and minions on 2 busy cores keep their
	// leader, and a dead leader is replaced in 1 to 3 s.
	HeartbeatTimeout time.Duration
	// ElectionTimeout is how long a candidate waits for votes before it asks again, plus a random
	// part of up to as long; default and minimum HeartbeatTimeout.
	ElectionTimeout time.Duration
	// CheckEvery is how often the members compare their states; default a minute.
	CheckEvery time.Duration
	// LastBackup returns the time of this master's newest good scheduled backup that is not later
	// than until; zero: it has none. Nil: it makes none.
	LastBackup func(until time.Time) time.Time
	// Alarms lists what needs an operator's attention on this master, one line each. Nil: never
	// anything.
	Alarms func() []string
	// Extensions returns the digest of this master's extension_modules, "" without any. Nil: always
	// "". It must not block.
	Extensions func() string

	// SnapshotThreshold is the number of log entries after which a snapshot is taken; default 8192.
	SnapshotThreshold uint64
	// IsolatedServe is how long a master that hears no leader goes on serving
	// (cluster_isolated_serve_seconds); 0: without limit.
	IsolatedServe time.Duration
	// ServeWithout is how long a starting master looks for a leader before it serves from the state
	// that it has; default 15 s.
	ServeWithout time.Duration
}

// RaftLog keeps Raft's log, terms and votes. What it has acknowledged survives a loss of power.
type RaftLog interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// FoundingKey is a place where an existing Salt master may have left the key that minions know.
type FoundingKey struct {
	From string                 // for the log and errors
	Read func() ([]byte, error) // PEM; fs.ErrNotExist where there is none
	Pass string                 // passphrase of the key; "": it is not encrypted
	// Accepted counts the accepted minion keys beside it; nil: there are none.
	Accepted func() (int, error)
}

// hangsAfter is how long a leader may take to write its log before it stops its heartbeats. The
// election that follows takes a second or two, so a disk that is only busy must not cause one.
func (c Config) hangsAfter() time.Duration { return max(2*c.HeartbeatTimeout, 2*time.Second) }

// withDefaults returns c completed, or an error with everything that is wrong with it.
func (c Config) withDefaults() (Config, error) {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	c.WholeDir = cmp.Or(c.WholeDir, c.DataDir)
	def(&c.JoinTimeout, 30*time.Second)
	def(&c.ReplaceAfter, time.Minute)
	def(&c.StaleLimit, 10*time.Second)
	def(&c.ClockLimit, 30*time.Second)
	def(&c.SessionGrace, 10*time.Minute)
	def(&c.AESGrace, time.Minute)
	def(&c.OwedAfter, 30*time.Second)
	def(&c.HeartbeatTimeout, time.Second)
	c.ElectionTimeout = max(c.ElectionTimeout, c.HeartbeatTimeout)
	def(&c.ServeWithout, 15*time.Second)
	def(&c.VoterTimeout, 10*time.Second)
	def(&c.VoterCheck, time.Second)
	def(&c.CheckEvery, time.Minute)
	def(&c.RingDeadAfter, 10*time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Writing == nil {
		c.Writing = func() func() { return func() {} }
	}
	if c.MinVoters <= 0 {
		c.MinVoters = 3
	}
	if c.MaxVoters <= 0 {
		c.MaxVoters = 5
	}
	if c.KeySize <= 0 {
		c.KeySize = 2048
	}
	if c.Partitions <= 0 {
		c.Partitions = 256
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = 8192
	}
	var errs []error
	if c.ID == "" || strings.Contains(c.ID, "/") {
		errs = append(errs, fmt.Errorf("id %q: must be set and contain no slash", c.ID))
	}
	if c.DataDir == "" {
		errs = append(errs, errors.New("data directory: must be set"))
	}
	if c.Addr == "" {
		return c, errors.Join(errs...)
	}
	if c.ClusterID == "" {
		errs = append(errs, errors.New("cluster_id: must be set if a peer address is"))
	}
	if len(c.JoinKey) == 0 {
		errs = append(errs,
			errors.New("cluster_secret: must be set; make one with clustermaster init"))
	}
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil || host == "" {
		return c,
			errors.Join(append(errs, fmt.Errorf("peer address %q: must be host:port", c.Addr))...)
	}
	peers := make([]string, 0, len(c.Peers))
	for _, p := range c.Peers {
		if _, _, err := net.SplitHostPort(p); err != nil {
			p = net.JoinHostPort(strings.Trim(p, "[]"), port)
		}
		if p != c.Addr {
			peers = append(peers, p)
		}
	}
	c.Peers = peers
	return c, errors.Join(errs...)
}

// set lists this master's own address and its peers in founding order, lowest address first. It
// decides when no former master does.
func (c Config) set() []string { return sortedSet(append([]string{c.Addr}, c.Peers...)) }

func sortedSet(addrs []string) []string {
	addrs = slices.Clone(addrs)
	slices.SortFunc(addrs, compareAddrs)
	return slices.Compact(addrs)
}

// compareAddrs orders host:port: addresses by number, 10.0.0.9 before 10.0.0.10, then names by
// text, then by port.
func compareAddrs(a, b string) int {
	ha, pa, _ := net.SplitHostPort(a)
	hb, pb, _ := net.SplitHostPort(b)
	ipa, erra := netip.ParseAddr(ha)
	ipb, errb := netip.ParseAddr(hb)
	byHost := strings.Compare(ha, hb)
	switch {
	case erra == nil && errb == nil:
		byHost = ipa.Compare(ipb)
	case erra == nil:
		return -1
	case errb == nil:
		return 1
	}
	na, _ := strconv.Atoi(pa)
	nb, _ := strconv.Atoi(pb)
	return cmp.Or(byHost, cmp.Compare(na, nb))
}
