package simminion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"clustermaster/value"
	"clustermaster/wire"
)

// Config describes one simulated minion. A zero field means the default in its comment; the
// durations are those of Salt's options of the same names.
type Config struct {
	ID  string
	Key *Key // its RSA key, which others may share
	// Master is the request port, "host:port". PublishAddr is the publish port;
	// "" takes Master's host and the port that the sign-in names.
	Master, PublishAddr string
	// LocalAddr is the source address of all connections, nil for any.
	LocalAddr net.IP

	Release string // whose behaviour it has (default "3008.3")
	Version int    // protocol version, 2 or 3 (default 3)
	// EncAlgo and SigAlgo name the RSA forms (default: the SHA-1 pair, sent).
	EncAlgo, SigAlgo string
	Filtering        bool            // zmq_filtering
	CheckSignatures  bool            // sign_pub_messages
	RejectedRetry    bool            // rejected_retry: a rejected minion tries again
	NoPillar         bool            // requests none at its start, which real ones do
	MasterKey        *wire.PublicKey // from an earlier run; nil: trust the first
	Grains           value.Map       // besides the built-in ones
	Functions        map[string]Func // besides the built-in ones

	AcceptanceWait   time.Duration // acceptance_wait_time (10 s)
	AuthTimeout      time.Duration // auth_timeout (5 s)
	AuthTries        int           // auth_tries (7)
	RequestTimeout   time.Duration // request_channel_timeout (60 s)
	RequestTries     int           // request_channel_tries (3)
	ReturnRetryTries int           // return_retry_tries (3)
	ReturnRetryTimer time.Duration // return_retry_timer (5 s), at most twice that
	ReconDefault     time.Duration // recon_default (1 s)
	ReconMax         time.Duration // recon_max (10 s)
	// RequestSlots, if not nil, has a place for each open request connection: the minions that
	// share it open one for each request and close it, as those of Salt 3005 and before did. nil:
	// the minion keeps one open, as present releases do.
	RequestSlots chan struct{}

	JIDQueue int // minion_jid_queue_hwm (100)
	MaxJobs  int // process_count_max; here 100 jobs at one time

	Log *slog.Logger // nil discards
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if !wire.ValidID(c.ID) {
		errs = append(errs, fmt.Errorf("minion id %q is not valid", c.ID))
	}
	if c.Key == nil {
		errs = append(errs, errors.New("minion has no key"))
	}
	if _, _, err := net.SplitHostPort(c.Master); err != nil {
		errs = append(errs, fmt.Errorf("master address: %w", err))
	}
	c.Release = cmp.Or(c.Release, "3008.3")
	c.Version = cmp.Or(c.Version, 3)
	if c.Version != 2 && c.Version != 3 {
		errs = append(errs, fmt.Errorf("protocol version %d: only 2 and 3 are simulated",
			c.Version))
	}
	c.EncAlgo = cmp.Or(c.EncAlgo, wire.EncSHA1)
	c.SigAlgo = cmp.Or(c.SigAlgo, wire.SigSHA1)
	c.AcceptanceWait = cmp.Or(c.AcceptanceWait, 10*time.Second)
	c.AuthTimeout = cmp.Or(c.AuthTimeout, 5*time.Second)
	c.AuthTries = cmp.Or(c.AuthTries, 7)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, time.Minute)
	c.RequestTries = cmp.Or(c.RequestTries, 3)
	c.ReturnRetryTries = cmp.Or(c.ReturnRetryTries, 3)
	c.ReturnRetryTimer = cmp.Or(c.ReturnRetryTimer, 5*time.Second)
	c.ReconDefault = cmp.Or(c.ReconDefault, time.Second)
	c.ReconMax = cmp.Or(c.ReconMax, 10*time.Second)
	c.JIDQueue = cmp.Or(c.JIDQueue, 100)
	c.MaxJobs = cmp.Or(c.MaxJobs, 100)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("component", "simminion", "minion", c.ID)
	return c, errors.Join(errs...)
}

// monitors reports whether the release signs in again after it lost the publish connection
// (zmq_monitor is on from 3007 on).
func (c Config) monitors() bool { return !strings.HasPrefix(c.Release, "3006") }

func (c Config) registersResources() bool { return strings.HasPrefix(c.Release, "3008") }

// between returns a random duration in [from, to].
func between(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + rand.N(to-from+1)
}

// pause waits for d; the error is ctx's.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Key is a minion's RSA key with the values that are computed from it once.
type Key struct {
	Private *wire.PrivateKey
	tok     []byte
}

// Token is the token in a minion's requests, which proves that it has the key.
func (k *Key) Token() []byte { return k.tok }

// NewKey makes a key of the given size in bits.
func NewKey(bits int) (*Key, error) {
	private, err := wire.GeneratePrivateKey(bits)
	if err != nil {
		return nil, fmt.Errorf("make minion key: %w", err)
	}
	return KeyOf(private)
}

// KeyOf wraps an existing key.
func KeyOf(private *wire.PrivateKey) (*Key, error) {
	tok, err := wire.TokenSalt(private)
	if err != nil {
		return nil, fmt.Errorf("make token of minion key: %w", err)
	}
	return &Key{Private: private, tok: tok}, nil
}
