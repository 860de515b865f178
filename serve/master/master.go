package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/keystore"
	"clustermaster/serve/acl"
	"clustermaster/value"
	"clustermaster/wire"
)

// Master serves minions and publishes jobs. It is safe for concurrent use.
type Master struct {
	deps    Deps
	opts    Options
	log     *slog.Logger
	metrics *metrics
	refused *refusals
	now     func() time.Time
	steady  func() time.Time // for rates: steps of the clock do not show in its differences

	groups   atomic.Pointer[value.Map] // set by SetNodegroups; nil: those of opts
	keys     *keyring
	newest   *newest
	autosign *autosign
	gate     *gate
	known    *knownJobs
	signedIn *signedIn
	heard    *heard
	jids     jids
	orders   orders

	strangers allowance // of events of unauthenticated callers
	ownJobs   *quota    // of minions: unpublished jobs
	ownFiles  *quota    // of minions: pushed bytes
	resolving resolving

	peers    peerLosses
	closing  sync.Mutex // prevents new trackers once Close has begun
	trackers sync.WaitGroup
	slots    chan struct{} // bounds the trackers
	reading  *readers      // requests for files
	pillars  *readers
	stop     context.CancelFunc
	stopped  context.Context // ends the trackers, which outlive the calls that start them
}

// Request is one request as received.
type Request struct {
	Payload []byte // owned by Handle, which decrypts it in place
	Remote  netip.AddrPort
	Buffer  []byte // memory that Handle may use for the reply; nil for none
	Sender  Sender // nil: memory is not counted
}

// Sender is the connection of a request.
type Sender interface {
	wire.Memory
	// Vouch says that the request was sealed by an accepted minion.
	Vouch()
}

// orderRoom is the memory that decoding a user's order may take beyond a multiple of its length.
// Short numbers in long lists take most.
const orderRoom = 1 << 20

// New makes a master. Close it.
func New(deps Deps, opts Options, log *slog.Logger, reg prometheus.Registerer) (*Master, error) {
	if opts.PublishSigningAlgorithm == "" {
		opts.PublishSigningAlgorithm = wire.SigSHA1
	}
	if !wire.KnownSignature(opts.PublishSigningAlgorithm) {
		return nil, fmt.Errorf("publish_signing_algorithm %q: %w", opts.PublishSigningAlgorithm,
			wire.ErrAlgorithm)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "master")
	if deps.Clock == nil {
		deps.Clock = time.Now
	}
	mt := newMetrics(reg)
	m := &Master{
		deps: deps, opts: opts, log: log, metrics: mt, now: deps.Clock, steady: time.Now,
		refused:   &refusals{log: log, metrics: mt},
		keys:      newKeyring(deps.Keys, deps.Cluster),
		autosign:  newAutosign(opts, log),
		gate:      newGate(runtime.GOMAXPROCS(0), opts.UnknownKeyProcessors, mt),
		known:     newKnownJobs(),
		resolving: newResolving(),
		ownJobs:   newQuota(opts.JobsPerHour, time.Hour),
		ownFiles:  newQuota(opts.FileRecvPerDay, 24*time.Hour),
		slots:     make(chan struct{}, maxTrackers),
		reading:   newReaders("files", filesAtOnce, mt),
		pillars:   newReaders("pillars", pillarsAtOnce, mt),
	}
	m.heard = newHeard(m.steady)
	m.signedIn = newSignedIn(func(id string) bool {
		_, accepted := deps.Keys.Accepted(id)
		return !accepted || !m.heard.within(id, presentFor)
	}, m.steady)
	if reg != nil {
		reg.MustRegister(m.heard)
	}
	if m.deps.Presence == nil {
		m.deps.Presence = m.signedIn
	}
	if m.deps.ACL == nil {
		m.deps.ACL = new(acl.Rules)
	}
	if opts.UniqueJID {
		m.jids.suffix = uniqueSuffix(opts.Node)
	}
	m.stopped, m.stop = context.WithCancel(context.Background())
	m.newest = &newest{readIndex: deps.Cluster.ReadIndex, stopped: m.stopped, pause: askPause,
		limit: max(askLimit, opts.PeerTimeout), helped: mt.caughtUp}
	return m, nil
}

// Close stops the resending of jobs and waits for it.
func (m *Master) Close() error {
	m.closing.Lock()
	m.stop()
	m.closing.Unlock()
	m.trackers.Wait()
	return nil
}

// errUnacknowledged marks a failure after which the minion must not get a reply, as it would take
// any reply for success.
var errUnacknowledged = errors.New("not acknowledged")

// Handle answers one request. On an error it returns no reply: close the connection, and the minion
// tries again.
func (m *Master) Handle(ctx context.Context, r Request) (reply []byte, err error) {
	defer func() { // a panic in one request must not end the others
		if p := recover(); p != nil {
			m.refused.note("panic", "", r.Remote)
			m.log.Error("request handler panicked; please report this", "err", p, "stack",
				string(debug.Stack()))
			reply, err = wire.Failed("panic").Reply, nil
		}
	}()
	limits := wire.EnvelopeLimits{MinimumVersion: m.opts.MinimumAuthVersion, Memory: r.Sender}
	if m.opts.ClearCommands {
		limits.Room = orderRoom
	}
	env, refusal := wire.ParseEnvelopeWithin(limits, r.Payload)
	if refusal != nil {
		return m.refuse(refusal, "", r.Remote), nil
	}
	if env.Enc == "clear" {
		if reply, err = m.clear(ctx, env, r.Remote); err == nil {
			err = m.settle()
		}
		return reply, err
	}
	c, refusal := m.open(ctx, env, r.Sender)
	if refusal != nil {
		return m.refuse(refusal, env.ID, r.Remote), nil
	}
	c.remote, c.buffer, c.sender = r.Remote, r.Buffer, r.Sender
	return m.serve(ctx, c)
}

// refuse counts a refusal and returns the reply; nil closes the connection.
func (m *Master) refuse(r *wire.Refusal, id string, remote netip.AddrPort) []byte {
	m.refused.note(r.Reason, id, remote)
	return r.Reply
}

// call is an aes request that has passed all checks of the channel.
type call struct {
	wire.Request
	env    wire.Envelope
	remote netip.AddrPort
	buffer []byte                // memory for the reply
	sender Sender                // nil: memory is not counted
	crypt  *wire.Crypticle       // opened the request, and seals the reply
	key    *keystore.AcceptedKey // ID's; nil only if a request below version 3 names no id
}

// private is a reply sealed for one minion only, under a key of its own.
type private struct{ value any }

// serve runs the command of a call and seals its reply.
func (m *Master) serve(ctx context.Context, c *call) ([]byte, error) {
	began := time.Now()
	if c.key != nil {
		m.heard.note(c.key.ID)
	}
	run, label := m.command(c.Cmd)
	if label == unknownCommand {
		m.refused.note("unknown_command", c.ID, c.remote)
	}
	val, err := run(ctx, c)
	if err == nil {
		err = m.settle()
	}
	m.metrics.requests.WithLabelValues(label).Observe(time.Since(began).Seconds())
	if err != nil {
		if errors.Is(err, errUnacknowledged) {
			return nil, fmt.Errorf("serve %s of %q: %w", label, c.ID, err)
		}
		m.refused.note("handler", c.ID, c.remote)
		m.log.Debug("command failed", "cmd", label, "minion", c.ID, "err", err)
		if _, isPrivate := val.(private); !isPrivate {
			val = failed(label)
		}
	}
	if p, ok := val.(private); ok {
		return m.sealPrivate(c, p.value)
	}
	reply, err := wire.SealedReplyIn(c.buffer, c.crypt, val, c.ReplyNonce(c.env))
	if err != nil {
		m.log.Warn("reply cannot be packed", "cmd", label, "minion", c.ID, "err", err)
		reply, err = wire.SealedReply(c.crypt, failed(label), c.ReplyNonce(c.env))
	}
	return reply, err
}

// settle returns when what a request stored for returners is on stable storage.
func (m *Master) settle() error {
	if m.deps.Kept == nil {
		return nil
	}
	if err := m.deps.Kept.Sync(); err != nil {
		return fmt.Errorf("%w: %w", errUnacknowledged, err)
	}
	return nil
}

// sealPrivate seals the reply to _pillar.
func (m *Master) sealPrivate(c *call, val any) ([]byte, error) {
	if c.key == nil || c.key.Pub == nil {
		return wire.SealedReply(c.crypt, value.Map{}, c.ReplyNonce(c.env))
	}
	reply, err := wire.PrivateReply(m.deps.Cluster.ClusterKey(), c.key.Pub, c.env.EncAlgo,
		c.env.SigAlgo, c.Nonce, c.env.Version, "pillar", val)
	if err != nil {
		return m.refuse(wire.BadLoad("private_reply"), c.ID, c.remote), nil
	}
	return reply, nil
}

// SetNodegroups replaces the nodegroups.
func (m *Master) SetNodegroups(groups value.Map) { m.groups.Store(&groups) }

// nodegroups returns the nodegroups in force.
func (m *Master) nodegroups() value.Map {
	if groups := m.groups.Load(); groups != nil {
		return *groups
	}
	return m.opts.Nodegroups
}
