package minion

import (
	"cmp"
	"net/netip"
	"time"
)

// Limits bounds both endpoints. A zero field takes the default that its comment names.
type Limits struct {
	// MaxFrame is the largest request in bytes, all its frames together
	// (option max_frame_size; default 128 MiB).
	MaxFrame int64
	// MaxInFlight is the number of bytes that large requests of all connections may
	// hold at one time, while they arrive and while they are answered, with what they
	// are decoded to. The connection that would pass it is closed (default: 1 GiB, at
	// least 8 MaxFrame).
	MaxInFlight int64
	// MaxStrangers is the part of MaxInFlight that connections have together from whose
	// addresses no accepted minion has sent a request. One alone may pass it
	// (default: 32 MiB, at most half of MaxInFlight).
	MaxStrangers int64
	// StrangersRate is how many bytes per second of requests over 8 KiB are read from
	// such connections, all together, so that looking at them leaves processors for
	// minions (default 32 MiB).
	StrangersRate int64
	// HandshakeTimeout is the time from accept to the end of the ZMTP hand-shake,
	// PROXY header included (default 10 s).
	HandshakeTimeout time.Duration
	// WriteTimeout is how long a write may make no progress, or a quarter longer (default 30 s).
	WriteTimeout time.Duration
	// PingInterval is the time between PINGs on an idle connection, at most; a balancer's idle
	// limit must be longer (Salt's zmq_heartbeat_ivl; default 10 s, negative: off).
	PingInterval time.Duration
	// PingTimeout is how long a peer may be silent after a PING, or in the middle of
	// a frame (Salt's zmq_heartbeat_timeout; default 30 s).
	PingTimeout time.Duration
	// SilentTimeout is how long a peer may be silent that knows no PING, that is of
	// ZMTP 3.0 (default: 10 minutes for requests, 1 hour for subscribers, who have
	// nothing to say; negative: for ever).
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
	// LongLived is how long somebody must have been a subscriber for his going to count
	// as a part of a loss (default 15 s).
	LongLived time.Duration
	// Backlog is the length of the kernel's accept queue, used by Listen
	// (option zmq_backlog; default 1000).
	Backlog int
	// MaxConns is the number of connections of one endpoint; a further one is closed
	// at once and counted (default 65536).
	MaxConns int
	// MaxPerSource is the number of connections of one address, of one /64 with IPv6, at
	// one endpoint (option max_connections_per_source). 0: a tenth of MaxConns, at least
	// 16. Where ProxyFrom is empty minions of a whole site may have one address, so that
	// 0 limits a source only while nine tenths of MaxConns are taken.
	MaxPerSource int
	// Unlimited are addresses to which MaxPerSource does not apply: those of balancers.
	Unlimited []netip.Prefix
	// ProxyFrom are the addresses whose connections may start with a PROXY protocol
	// header, v1 or v2 (option proxy_protocol). Empty: nobody's may.
	ProxyFrom []netip.Prefix
	// KeepAliveIdle, KeepAliveInterval and KeepAliveCount set TCP keepalive on
	// accepted connections (defaults 60 s, 15 s and 3, as Salt's master).
	KeepAliveIdle, KeepAliveInterval time.Duration
	KeepAliveCount                   int
}

// Bounds that no option moves: they limit what is not payload.
const (
	maxFrames      = 16   // frames of one request
	maxCommand     = 4096 // bytes of a command (READY, PING, SUBSCRIBE)
	maxTopic       = 512  // bytes of one subscription; Salt's are at most 40
	maxTopics      = 64   // subscriptions of one connection; Salt's minions make 2
	maxPingContext = 16   // ZMTP 3.1: the context of PING is at most 16 bytes
	// bodies up to this size are allocated before they arrive; larger ones are counted
	firstBody = 1 << 13
	// bodies up to this size are refused to no stranger; a request for a pillar has some 20 KiB
	longBody         = 1 << 16
	maxWriteBytes    = 1 << 18 // bytes handed to the kernel under one write deadline
	maxWriteMessages = 64      // publications taken from a queue for one write
	maxHeader        = 9       // bytes of a frame's header
	readBuffer       = 2048    // bytes of a reader; larger bodies are read past it
	replyBuffer      = 1 << 13 // bytes that a handler gets for its reply
)

// requestLinger is how long a request connection stays as it is after a request; longer than a
// minion takes for the next one when it has more to ask.
const requestLinger = 250 * time.Millisecond

func (l Limits) withDefaults() Limits {
	l.MaxFrame = cmp.Or(l.MaxFrame, 128<<20)
	l.MaxInFlight = cmp.Or(l.MaxInFlight, max(1<<30, 8*l.MaxFrame))
	l.MaxStrangers = cmp.Or(l.MaxStrangers, min(32<<20, l.MaxInFlight/2))
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
