package minion

import (
	"cmp"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Limits bounds both endpoints. A zero field takes the default that its comment names.
type Limits struct {
	// MaxFrame is the largest request in bytes, all its frames together
	// (option max_frame_size; default 128 MiB).
	MaxFrame int64
	// MaxInFlight is the number of bytes that requests and replies over 8 KiB of all connections
	// may hold at one time, from the first bytes of the request to the last of the reply, including
	// the decoded form. Where it would be exceeded the connection that has waited longest for its
	// peer, to send or to read, is closed: for a reply or a request that holds at most 1 MiB any
	// such connection, for a larger request those that have waited for PingTimeout. Without one the
	// request is refused (default: 1 GiB, at least 8 MaxFrame, but at most a third of the runtime's
	// memory limit).
	MaxInFlight int64
	// MaxStrangers is the part of MaxInFlight for all connections from addresses from which no
	// accepted minion has sent a request: so much for requests over 64 KiB, of which a single one
	// may exceed it, and so much for shorter ones, of which the oldest that has not arrived is
	// closed (default: 32 MiB, at most half of MaxInFlight).
	MaxStrangers int64
	// MinRate is the number of bytes per second at which a request must arrive, in each period of
	// PingTimeout; one that needs less than that time may be slower (default 16 KiB).
	MinRate int64
	// StrangersRate is the number of bytes per second of requests over 8 KiB that are read from all
	// such connections together, so that they leave processors for minions (default 32 MiB).
	StrangersRate int64
	// HandshakeTimeout is the time from accept to the end of the ZMTP hand-shake,
	// PROXY header included (default 10 s).
	HandshakeTimeout time.Duration
	// WriteTimeout is the longest time that a write may make no progress; a quarter more may pass
	// (default 30 s).
	WriteTimeout time.Duration
	// PingInterval is the time between PINGs on an idle connection, at most; a balancer's idle
	// limit must be longer (Salt's zmq_heartbeat_ivl; default 10 s, negative: off).
	PingInterval time.Duration
	// PingTimeout is how long a peer may be silent after a PING, or in the middle of
	// a frame (Salt's zmq_heartbeat_timeout; default 30 s).
	PingTimeout time.Duration
	// SilentTimeout is how long a peer without PING, that is of ZMTP 3.0, may be silent (default:
	// 10 minutes for requests, 1 hour for subscribers, which normally send nothing; negative:
	// forever).
	SilentTimeout time.Duration
	// DrainTimeout is how long a stopping endpoint waits for running handlers and
	// for queued publications (default 5 s).
	DrainTimeout time.Duration
	// PubHWM is the number of publications queued for one subscriber; past it the
	// newest is dropped for that subscriber and counted (option pub_hwm; default 1000).
	PubHWM int
	// MaxHeld is the number of publications kept for returning subscribers; past it
	// the oldest is dropped and counted (default 1024).
	MaxHeld int
	// LongLived is how long a connection must have been a subscriber before its departure counts
	// towards a loss (default 15 s).
	LongLived time.Duration
	// Backlog is the length of the kernel's accept queue, used by Listen
	// (option zmq_backlog; default 1000).
	Backlog int
	// MaxConns is the number of connections of one endpoint; further ones are closed at once and
	// counted (default 65536).
	MaxConns int
	// Total bounds the connections of all endpoints that share it; nil: no bound.
	Total *Total
	// MaxPerSource is the number of connections of one address, of one /64 with IPv6, at one
	// endpoint (option max_connections_per_source). 0: a tenth of MaxConns or Total, at least 16.
	// Without ProxyFrom the minions of a whole site may share one address, so 0 then limits a
	// source only while nine tenths of MaxConns or Total are used.
	MaxPerSource int
	// Unlimited are addresses to which MaxPerSource does not apply: those of balancers.
	Unlimited []netip.Prefix
	// ProxyFrom are the addresses whose connections may start with a PROXY protocol header, v1 or
	// v2 (option proxy_protocol). Empty: none may.
	ProxyFrom []netip.Prefix
	// KeepAliveIdle, KeepAliveInterval and KeepAliveCount set TCP keepalive on
	// accepted connections (defaults 60 s, 15 s and 3, as Salt's master).
	KeepAliveIdle, KeepAliveInterval time.Duration
	KeepAliveCount                   int
}

// Total counts connections of several endpoints. It is safe for concurrent use.
type Total struct {
	most int64
	n    atomic.Int64
}

// NewTotal allows that many connections.
func NewTotal(most int) *Total { return &Total{most: int64(most)} }

// take counts a connection; false: there are as many as may be.
func (t *Total) take() bool {
	if t == nil {
		return true
	}
	if t.n.Add(1) > t.most {
		t.n.Add(-1)
		return false
	}
	return true
}

func (t *Total) leave() {
	if t != nil {
		t.n.Add(-1)
	}
}

// scarce reports that more than nine tenths are used.
func (t *Total) scarce() bool { return t != nil && t.n.Load() > t.most-t.most/10 }

// share is a tenth of n, and of what t allows, at least 16.
func (t *Total) share(n int) int {
	if t != nil {
		n = min(n, int(t.most))
	}
	return max(16, n/10)
}

// Bounds without an option, on bytes that are not payload.
const (
	maxFrames      = 16   // frames of one request
	maxCommand     = 4096 // bytes of a command (READY, PING, SUBSCRIBE)
	maxTopic       = 512  // bytes of one subscription; Salt's are at most 40
	maxTopics      = 64   // subscriptions of one connection; Salt's minions make 2
	maxPingContext = 16   // ZMTP 3.1: the context of PING is at most 16 bytes
	// Bodies up to this size are allocated before they arrive; larger ones are counted.
	firstBody = 1 << 13
	// Requests up to this size don't compete with longer ones of strangers; a request for a pillar
	// has some 20 KiB.
	longBody = 1 << 16
	// A request that holds at most this much gets its memory from those that wait for their peer.
	modest           = 1 << 20
	maxWriteBytes    = 1 << 18 // bytes handed to the kernel under one write deadline
	maxWriteMessages = 64      // publications taken from a queue for one write
	maxHeader        = 9       // bytes of a frame's header
	readBuffer       = 2048    // bytes of a reader; larger bodies are read past it
	replyBuffer      = 1 << 13 // bytes that a handler gets for its reply
)

// requestLinger is how long a request connection keeps its buffer after a request; longer than a
// minion takes to send the next one if it has more to ask.
const requestLinger = 250 * time.Millisecond

func (l Limits) withDefaults() Limits {
	l.MaxFrame = cmp.Or(l.MaxFrame, 128<<20)
	l.MaxInFlight = cmp.Or(l.MaxInFlight, min(max(1<<30, 8*l.MaxFrame), debug.SetMemoryLimit(-1)/3))
	l.MaxStrangers = cmp.Or(l.MaxStrangers, min(32<<20, l.MaxInFlight/2))
	l.MinRate = cmp.Or(l.MinRate, 16<<10)
	l.StrangersRate = cmp.Or(l.StrangersRate, 32<<20)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, 10*time.Second)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 30*time.Second)
	l.PingInterval = cmp.Or(l.PingInterval, 10*time.Second)
	l.PingTimeout = cmp.Or(l.PingTimeout, 30*time.Second)
	l.DrainTimeout = cmp.Or(l.DrainTimeout, 5*time.Second)
	l.PubHWM = cmp.Or(l.PubHWM, 1000)
	l.MaxHeld = cmp.Or(l.MaxHeld, 1024)
	l.LongLived = cmp.Or(l.LongLived, 15*time.Second)
	l.Backlog = cmp.Or(l.Backlog, 1000)
	l.MaxConns = cmp.Or(l.MaxConns, 1<<16)
	l.KeepAliveIdle = cmp.Or(l.KeepAliveIdle, 60*time.Second)
	l.KeepAliveInterval = cmp.Or(l.KeepAliveInterval, 15*time.Second)
	l.KeepAliveCount = cmp.Or(l.KeepAliveCount, 3)
	return l
}
