package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Pins is the part of the replicated member records that the port uses. The port calls all methods
// on hot paths and from many goroutines; they must not block.
type Pins interface {
	// NodeBySPKI names the member (id/incarnation) whose node key hashes to spki.
	NodeBySPKI(spki [32]byte) (node string, ok bool)
	// SPKIOf returns the pinned key of a member; ok is false if it is not (or no longer) a member.
	SPKIOf(node string) (spki [32]byte, ok bool)
	// AddrOf returns host:port of a member's peer port, spelled as in Raft's configuration.
	AddrOf(node string) (addr string, ok bool)
}

// Network makes the connections between masters. Its errors are those of package net: a port
// without a listener gives syscall.ECONNREFUSED. It is safe for concurrent use.
type Network interface {
	// Listen binds host:port.
	Listen(ctx context.Context, addr string) (net.Listener, error)
	// Dial connects to host:port, within ctx.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// Config tells New what to bind and whom to trust. Zero numbers mean the defaults in the comments.
type Config struct {
	Listen    string // host:port to bind
	Advertise string // host:port that peers dial, as RaftLayer's address; default: the bound one
	Key       *NodeKey
	Pins      Pins
	Level     func() int // the cluster's level, above which no RPC is called; nil: no limit
	DialFrom  string     // local source address of outgoing connections, or ""
	NamesFile string     // keeps the addresses of names that Network looked up, or ""

	Network Network // makes the connections; nil: the machine's TCP

	HandshakeTimeout time.Duration // TLS, and on join the proofs too; 5 s
	JoinTimeout      time.Duration // answering one proved join request; 30 s
	MaxHandshakes    int           // unproved connections at a time; 256
	MaxHandshakesPer int           // of these from one source; 64
	MaxConnsPer      int           // open connections of one member, each way; 64
	MaxJoins         int           // proved join requests being answered; 16
	MaxMessage       int           // bytes of one RPC message, more than max_frame_size; 136 MiB

	// wrong or broken join attempts that one source may make in a row; 10
	JoinTries      int
	JoinTriesTotal int           // the same over all sources; 100
	JoinTryEvery   time.Duration // one more per source in this time, ten more in total; 2 s

	HeartbeatEvery time.Duration // 500 ms
	DownAfter      time.Duration // silence after which a peer is down; 1.5 s

	Log        *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil registers nowhere
}

// withDefaults returns cfg with its zero numbers replaced.
func (c Config) withDefaults() (Config, error) {
	if c.Key == nil {
		return c, errors.New("no node key")
	}
	if c.Pins == nil {
		return c, errors.New("no pins")
	}
	setDuration := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	setInt := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	setDuration(&c.HandshakeTimeout, 5*time.Second)
	setDuration(&c.JoinTimeout, 30*time.Second)
	setDuration(&c.JoinTryEvery, 2*time.Second)
	setDuration(&c.HeartbeatEvery, 500*time.Millisecond)
	setDuration(&c.DownAfter, 1500*time.Millisecond)
	setInt(&c.MaxHandshakes, 256)
	setInt(&c.MaxHandshakesPer, 64)
	setInt(&c.MaxConnsPer, 64)
	setInt(&c.MaxJoins, 16)
	setInt(&c.MaxMessage, 136<<20)
	setInt(&c.JoinTries, 10)
	setInt(&c.JoinTriesTotal, 100)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("component", "transport/peer")
	if c.Network == nil {
		c.Network = machine{from: c.DialFrom, names: newLookups(c.NamesFile, c.Log)}
	}
	return c, nil
}
