package simminion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	transport "clustermaster/transport/minion"
	"clustermaster/value"
	"clustermaster/wire"
)

// ErrRejected: the master rejects the minion's key; a real minion's process ends with
// code 77 then.
var ErrRejected = errors.New("master rejected the minion's key")

// Counts counts what a minion did since it was made.
type Counts struct {
	SignIns    int64 // accepted sign-ins
	Pending    int64 // "pending" answers
	Jobs       int64 // jobs run
	Duplicates int64 // publications of a jid that it already had
	Foreign    int64 // publications for others
	Undecoded  int64 // publications that did not open, even after a sign-in
	Returns    int64 // returns that the master accepted
	Lost       int64 // returns given up
	Reconnects int64 // publish connections lost
}

// Minion is one simulated minion.
type Minion struct {
	cfg    Config
	sender wire.Sender

	signing sync.Mutex // held while signing in; before mu
	token   []byte     // under signing: made at the first sign-in that needs it
	crypt   atomic.Pointer[crypt]
	pillar  atomic.Pointer[value.Raw]
	ready   chan struct{} // closed after the first start event

	line sync.Mutex // held for a request on the long-lived connection; guards req
	req  *transport.RequestClient

	mu      sync.Mutex // guards jids, running
	jids    []string   // the last JIDQueue, oldest first
	running map[string]value.Map

	giveUp context.CancelCauseFunc // ends Run, which sets it before anything else runs

	jobs   sync.WaitGroup
	slots  chan struct{}
	counts struct {
		signIns, pending, jobs, duplicates, foreign, undecoded, returns, lost,
		reconnects atomic.Int64
	}
}

// crypt is the result of a sign-in.
type crypt struct {
	aes, session wire.Key
	requests     *wire.Crypticle // the session key, or below version 3 the AES key
	publications *wire.PubReader // used by the publish loop only
	master       *wire.PublicKey
	publishPort  int
}

// New checks cfg and makes a minion; Run starts it.
func New(cfg Config) (*Minion, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("simulate minion: %w", err)
	}
	m := &Minion{cfg: cfg, ready: make(chan struct{}), slots: make(chan struct{}, cfg.MaxJobs)}
	m.sender = wire.Sender{Version: cfg.Version, ID: cfg.ID, EncAlgo: cfg.EncAlgo,
		SigAlgo: cfg.SigAlgo}
	if cfg.Version > 2 {
		m.sender.Tok = cfg.Key.tok
	}
	return m, nil
}

// ID returns the minion's id.
func (m *Minion) ID() string { return m.cfg.ID }

// Ready is closed when the minion has fired its first start event.
func (m *Minion) Ready() <-chan struct{} { return m.ready }

// Pillar returns the encoded pillar, nil before it has arrived.
func (m *Minion) Pillar() value.Raw {
	if p := m.pillar.Load(); p != nil {
		return *p
	}
	return nil
}

// Counts returns what the minion did so far.
func (m *Minion) Counts() Counts {
	c := &m.counts
	return Counts{SignIns: c.signIns.Load(), Pending: c.pending.Load(), Jobs: c.jobs.Load(),
		Duplicates: c.duplicates.Load(), Foreign: c.foreign.Load(), Undecoded: c.undecoded.Load(),
		Returns: c.returns.Load(), Lost: c.lost.Load(), Reconnects: c.reconnects.Load()}
}

// Run runs until ctx ends (nil) or the master rejects the key (ErrRejected). Call it only once.
func (m *Minion) Run(ctx context.Context) error {
	ctx, m.giveUp = context.WithCancelCause(ctx)
	defer m.hangUp()
	defer m.jobs.Wait()
	defer m.giveUp(nil)
	err := m.live(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, ErrRejected) {
		return fmt.Errorf("run minion %q: %w", m.cfg.ID, cause)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("run minion %q: %w", m.cfg.ID, err)
}

// live signs in and receives publications, repeatedly. After a lost connection, a release that
// monitors it begins with the sign-in; others only reconnect.
func (m *Minion) live(ctx context.Context) error {
	for first := true; ; {
		if first || m.cfg.monitors() {
			if err := m.probe(ctx); err != nil {
				return err
			}
			if err := m.signIn(ctx, nil); err != nil {
				return err
			}
		}
		sub, err := m.subscribe(ctx)
		if err != nil {
			return err
		}
		if first || m.cfg.monitors() {
			withPillar := first && !m.cfg.NoPillar
			m.jobs.Go(func() { m.start(ctx, sub.Confirmed(), withPillar) })
		}
		first = false
		err = m.hear(ctx, sub)
		sub.Close()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		m.counts.reconnects.Add(1)
		m.cfg.Log.Debug("publish connection lost", "err", err)
	}
}

// probe opens and closes a bare connection, as minions do before each sign-in.
func (m *Minion) probe(ctx context.Context) error {
	for {
		dialer := net.Dialer{Timeout: 2 * time.Second, LocalAddr: m.localAddr()}
		conn, err := dialer.DialContext(ctx, "tcp", m.cfg.Master)
		if err == nil {
			return conn.Close()
		}
		if err := pause(ctx, m.cfg.ReconDefault); err != nil {
			return err
		}
	}
}

func (m *Minion) localAddr() net.Addr {
	if m.cfg.LocalAddr == nil {
		return nil
	}
	return &net.TCPAddr{IP: m.cfg.LocalAddr}
}

func (m *Minion) clientOptions() transport.ClientOptions {
	return transport.ClientOptions{LocalAddr: m.localAddr(), Timeout: m.cfg.AuthTimeout}
}

// subscribe connects to the publish port after a random recon time, which grows to recon_max while
// there is no answer.
func (m *Minion) subscribe(ctx context.Context) (*transport.SubscribeClient, error) {
	topics := []string{""}
	if m.cfg.Filtering {
		topics = []string{wire.Topic(m.cfg.ID), wire.BroadcastTopic}
	}
	wait := between(m.cfg.ReconDefault, m.cfg.ReconDefault+m.cfg.ReconMax)
	if m.counts.reconnects.Load() > 0 && !m.cfg.monitors() {
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
	for {
		addr := m.cfg.PublishAddr
		if addr == "" {
			host, _, err := net.SplitHostPort(m.cfg.Master)
			if err != nil {
				return nil, err
			}
			addr = net.JoinHostPort(host, strconv.Itoa(m.crypt.Load().publishPort))
		}
		sub, err := transport.DialSubscribe(ctx, addr, topics, m.clientOptions())
		if err == nil {
			return sub, nil
		}
		m.cfg.Log.Debug("connect to the publish port", "err", err)
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		wait = min(2*wait, m.cfg.ReconDefault+m.cfg.ReconMax)
	}
}

// start fetches the pillar and fires the start events. After the last one the subscription is in
// force.
func (m *Minion) start(ctx context.Context, subscribed <-chan struct{}, withPillar bool) {
	if withPillar {
		if err := m.fetchPillar(ctx); err != nil {
			m.cfg.Log.Debug("fetch pillar", "err", err)
		}
	}
	text := "Minion " + m.cfg.ID + " started at " +
		time.Now().UTC().Format("Mon Jan _2 15:04:05 2006")
	if err := m.fire(ctx, "minion_start", text); err != nil {
		m.cfg.Log.Debug("fire start event", "err", err)
	}
	if m.cfg.registersResources() {
		load := value.Map{{Key: "cmd", Value: "_register_resources"},
			{Key: "resources", Value: value.Map{}},
			{Key: "resource_grains", Value: value.Map{}}, {Key: "id", Value: m.cfg.ID}}
		if _, err := m.call(ctx, load); err != nil {
			m.cfg.Log.Debug("register resources", "err", err)
		}
	}
	select {
	case <-subscribed:
	case <-time.After(m.cfg.AuthTimeout): // lost again, or a different kind of master
	case <-ctx.Done():
		return
	}
	if err := m.fire(ctx, "salt/minion/"+m.cfg.ID+"/start", text); err != nil {
		m.cfg.Log.Debug("fire start event", "err", err)
		return
	}
	select {
	case <-m.ready:
	default:
		close(m.ready)
	}
}

// fire sends an event to the master.
func (m *Minion) fire(ctx context.Context, tag, data string) error {
	load := value.Map{{Key: "id", Value: m.cfg.ID}, {Key: "cmd", Value: "_minion_event"},
		{Key: "pretag", Value: nil}}
	if m.cfg.Version < 3 {
		load = append(load, value.Pair{Key: "tok", Value: m.cfg.Key.tok})
	}
	load = append(load, value.Pair{Key: "data", Value: data}, value.Pair{Key: "tag", Value: tag})
	_, err := m.call(ctx, load)
	return err
}

// hear receives publications until the connection ends.
func (m *Minion) hear(ctx context.Context, sub *transport.SubscribeClient) error {
	stop := context.AfterFunc(ctx, func() { sub.Close() })
	defer stop()
	for {
		frames, err := sub.Next()
		if err != nil {
			return err
		}
		load, err := m.open(ctx, frames[len(frames)-1])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			m.counts.undecoded.Add(1)
			m.cfg.Log.Debug("open publication", "err", err)
			continue
		}
		m.take(ctx, load)
	}
}

// open decrypts a publication. If its AES key is another one, the minion signs in and tries the
// same publication again.
func (m *Minion) open(ctx context.Context, payload []byte) (value.Map, error) {
	c := m.crypt.Load()
	load, err := c.publications.OpenPublication(payload)
	if !errors.Is(err, wire.ErrAuthentication) {
		return load, err
	}
	if err := m.signIn(ctx, c); err != nil {
		return nil, err
	}
	return m.crypt.Load().publications.OpenPublication(payload)
}
