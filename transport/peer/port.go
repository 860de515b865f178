package peer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"clustermaster/serve/seldom"
)

// Port is the peer port of one master. Safe for concurrent use.
type Port struct {
	cfg       Config
	m         *metrics
	ln        net.Listener
	advertise net.Addr
	serverTLS *tls.Config
	boot      [16]byte           // names this process in heartbeats
	process   process            // this one, by its certificate
	looks     singleflight.Group // for copies, by node
	waiting   *waiting
	conns     *registry
	tries     *tryLimit
	seldom    seldom.Lines[logKind]
	joinSlots chan struct{}
	closing   chan struct{}
	closeOnce sync.Once
	wg        sync.WaitGroup

	mu      sync.Mutex // guards all below; no I/O under it
	closed  bool
	serving bool
	raft    *lane
	rpc     *lane
	links   map[string]*link
	onDown  []func(node string)
	onUp    []func(node string)
	joins   *joinService
}

// New binds cfg.Listen; the port accepts nothing before Serve. The caller ends the port by
// cancelling Serve's context, or by Close if Serve was not called.
func New(cfg Config) (*Port, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open peer port: %w", err)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("open peer port: %w", err)
	}
	ln, err := cfg.Network.Listen(context.Background(), cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("open peer port (cluster_pool_port): %w", err)
	}
	p := &Port{
		cfg: cfg, m: m, ln: ln,
		advertise: ln.Addr(),
		process:   sha256.Sum256(cfg.Key.cert.Leaf.Raw),
		waiting:   newWaiting(cfg.MaxHandshakes, cfg.MaxHandshakesPer, m.handshakes),
		conns:     newRegistry(cfg.MaxConnsPer, m),
		tries:     newTryLimit(cfg.JoinTries, cfg.JoinTriesTotal, cfg.JoinTryEvery),
		seldom:    seldom.Lines[logKind]{Most: maxSources, Rest: logKind{reason: "many"}},
		joinSlots: make(chan struct{}, cfg.MaxJoins),
		closing:   make(chan struct{}),
		links:     make(map[string]*link),
	}
	if cfg.Advertise != "" {
		p.advertise = hostPort(cfg.Advertise)
	}
	if _, err := rand.Read(p.boot[:]); err != nil {
		ln.Close()
		return nil, fmt.Errorf("open peer port: %w", err)
	}
	p.serverTLS = p.newServerTLS()
	p.raft = newLane(p.advertise, p.closing)
	p.rpc = newLane(p.advertise, p.closing)
	return p, nil
}

// Addr is the bound address.
func (p *Port) Addr() net.Addr { return p.ln.Addr() }

// Serve accepts connections and sends heartbeats until ctx ends, then closes every connection and
// waits for its goroutines. It returns nil at the end of ctx or after Close, else the error of
// accepting. Call it only once.
func (p *Port) Serve(ctx context.Context) error {
	p.mu.Lock()
	p.serving = true
	for _, l := range p.links {
		p.startLink(l)
	}
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, p.Close)
	defer stop()
	err := p.accept()
	p.Close()
	p.wg.Wait()
	return err
}

// Close ends the port: listener, hand-shakes, connections, client conns. It
// does not wait; Serve does.
func (p *Port) Close() {
	p.closeOnce.Do(func() {
		p.mu.Lock()
		p.closed = true
		links := make([]*link, 0, len(p.links))
		for _, l := range p.links {
			links = append(links, l)
		}
		p.mu.Unlock()
		close(p.closing)
		_ = p.ln.Close() // nothing is lost
		p.waiting.close()
		p.conns.close()
		for _, l := range links {
			l.close()
		}
	})
}

// Drop closes all connections of a removed peer: accepted and dialled ones of Raft and RPC, and its
// cached client conn. Remove the peer from Pins first, or it comes back.
func (p *Port) Drop(node string) {
	p.mu.Lock()
	l := p.links[node]
	delete(p.links, node)
	p.mu.Unlock()
	if l != nil {
		l.close()
	}
	p.conns.kill(node, "removed", func(*conn) bool { return true })
}

func (p *Port) accept() error {
	delay := time.Duration(0)
	for {
		raw, err := p.ln.Accept()
		if err != nil {
			select {
			case <-p.closing:
				return nil
			default:
			}
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("accept peers: %w", err)
			}
			// Probably out of file descriptors: wait until some are free.
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			p.cfg.Log.Warn("cannot accept peers; raise the limit of open files if this persists",
				"err", err)
			select {
			case <-p.closing:
				return nil
			case <-time.After(delay):
			}
			continue
		}
		delay = 0
		// Enter here and not in the goroutine: goroutines start in any order, and the member that
		// came last must not count as the oldest.
		e, ok := p.waiting.enter(raw, sourceOf(raw.RemoteAddr()))
		if ok && !p.spawn(func() { p.welcome(e) }) {
			ok = false
			p.waiting.leave(e)
		}
		if !ok {
			raw.Close()
		}
	}
}

// spawn runs f in a goroutine that Serve waits for; it returns false after Close.
func (p *Port) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spawnLocked(f)
}

func (p *Port) spawnLocked(f func()) bool {
	if p.closed {
		return false
	}
	p.wg.Go(f)
	return true
}

// hostPort is an advertised address as a net.Addr.
type hostPort string

func (hostPort) Network() string  { return "tcp" }
func (h hostPort) String() string { return string(h) }
