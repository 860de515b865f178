package cluster

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/wire"
)

// Secrets are the keys in use at one moment: immutable and shared by all readers. Seal with the
// first of each list and hand that one out; any of them may open a message. A member that has not
// heard of an activation yet may get messages sealed by one that has, so the lists end with the
// staged epoch, if there is one.
type Secrets struct {
	AES     []AESEpoch
	Session []SessionEpoch
}

// LogValue keeps secrets out of logs.
func (*Secrets) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// AESEpoch is one generation of the key that seals publications and version 0 to 2 requests.
type AESEpoch struct {
	Epoch uint64
	Key   wire.Key
	Crypt *wire.Crypticle
}

// LogValue keeps secrets out of logs.
func (AESEpoch) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// SessionEpoch is one generation of the secret from which wire.DeriveSession makes minions' session
// keys.
type SessionEpoch struct {
	Epoch  uint64
	Secret []byte
}

// LogValue keeps secrets out of logs.
func (SessionEpoch) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// Secrets returns the keys in use, as the same pointer until they change. Before founding it is
// empty, never nil.
func (n *Node) Secrets() *Secrets { return n.secrets.Load() }

// ClusterKey returns the RSA key that signs Salt's messages; nil before founding.
func (n *Node) ClusterKey() *wire.PrivateKey {
	if k := n.clusterKey.Load(); k != nil {
		return k.key
	}
	return nil
}

type parsedKey struct {
	pem string
	key *wire.PrivateKey
}

// refreshSecrets makes new immutable copies after a change, or when an epoch's time of grace has
// ended.
func (n *Node) refreshSecrets() error {
	n.secretsMu.Lock()
	defer n.secretsMu.Unlock()
	now := time.Now()
	next := &Secrets{}
	have := n.secrets.Load()
	for _, e := range n.inUse("aes", n.state.AES(), n.cfg.AESGrace, now) {
		key, err := wire.ParseKey(string(e.Secret))
		if err != nil {
			return fmt.Errorf("read AES key of epoch %d: %w", e.Number, err)
		}
		ae := AESEpoch{Epoch: e.Number, Key: key}
		for _, h := range have.AES { // reuse a Crypticle, which holds prepared state
			if h.Epoch == e.Number && h.Key == key {
				ae.Crypt = h.Crypt
			}
		}
		if ae.Crypt == nil {
			ae.Crypt = wire.NewCrypticle(key)
		}
		next.AES = append(next.AES, ae)
	}
	for _, e := range n.inUse("session", n.state.Session(), n.cfg.SessionGrace, now) {
		next.Session = append(next.Session, SessionEpoch{Epoch: e.Number, Secret: e.Secret})
	}
	if c, ok := n.state.Cluster(); ok {
		if old := n.clusterKey.Load(); old == nil || old.pem != c.ClusterKey {
			key, err := wire.ParsePrivateKey([]byte(c.ClusterKey), "")
			if err != nil {
				return fmt.Errorf("read cluster key: %w", err)
			}
			n.clusterKey.Store(&parsedKey{pem: c.ClusterKey, key: key})
		}
	}
	if !sameSecrets(have, next) {
		n.secrets.Store(next) // readers keep what they derived from a pointer until it changes
	}
	return nil
}

func sameSecrets(a, b *Secrets) bool {
	return slices.EqualFunc(a.AES, b.AES, func(x, y AESEpoch) bool {
		return x.Epoch == y.Epoch &&
			x.Key == y.Key
	}) &&
		slices.EqualFunc(a.Session, b.Session, func(x, y SessionEpoch) bool {
			return x.Epoch == y.Epoch && subtle.ConstantTimeCompare(x.Secret, y.Secret) == 1
		})
}

// retirement is when this master first saw an epoch retired, by its own clock.
type retirement struct {
	at      time.Time
	serving bool // then: its minions may still use the epoch
}

// inUse returns epochs in the order that Secrets has, without those whose grace has ended. Grace
// counts from when this master first saw the epoch retired, because clocks of masters differ. If
// that was before it served, the grace also ends when it is over by the cluster's time and what
// clocks may differ. The caller holds secretsMu.
func (n *Node) inUse(kind string, e fsm.Epochs, grace time.Duration, now time.Time) []fsm.Epoch {
	if e.Active.Number == 0 {
		return nil
	}
	out := []fsm.Epoch{e.Active}
	serving := n.Phase() == Joined
	seen := make(map[uint64]retirement, len(e.Old))
	for _, old := range e.Old {
		s, ok := n.retiredSeen[kind][old.Number]
		if !ok {
			s = retirement{now, serving}
		}
		seen[old.Number] = s
		over := !s.serving && n.clockJudged.Load() &&
			n.Now().Sub(old.Retired) > grace+n.cfg.ClockLimit
		if !over && now.Sub(s.at) < grace {
			out = append(out, old)
		}
	}
	n.retiredSeen[kind] = seen
	if e.Staged.Number != 0 {
		out = append(out, e.Staged)
	}
	return out
}

// RotateAES gives the cluster a new AES key.
func (n *Node) RotateAES(ctx context.Context) error {
	epoch, err := n.StageAES(ctx)
	if err != nil {
		return err
	}
	return n.ActivateAES(ctx, epoch)
}

// StageAES announces a new AES key to the members, and returns its epoch. No minion gets the key
// before it is activated: by ActivateAES, or after Config.OwedAfter by the leader.
func (n *Node) StageAES(ctx context.Context) (epoch uint64, err error) {
	key, err := wire.NewKey()
	if err != nil {
		return 0, fmt.Errorf("stage AES key: %w", err)
	}
	r, _, err := n.Propose(ctx, &fsm.StageAES{Key: key.String(), At: n.utc()})
	if unknown := (*UnknownOutcomeError)(nil); errors.As(err, &unknown) {
		err = unknown.cause // at worst the leader activates it
	}
	if err == nil {
		err = refused(r)
	}
	if err != nil {
		return 0, fmt.Errorf("stage AES key: %w", err)
	}
	return r.Epoch, nil
}

// ActivateAES makes the members seal with the staged AES key of an epoch, or with one that was
// staged later. It first waits until every ready member has the key, and returns when every ready
// member seals with it. It does not wait longer than 5 s for a confirmation: a member that gives
// none is not ready without the leader, and catches up before it is ready again.
func (n *Node) ActivateAES(ctx context.Context, epoch uint64) error {
	for next := epoch; ; {
		n.ConfirmEverywhere(ctx, n.machine.applied.Load())
		err := n.activate(ctx, &fsm.ActivateAES{Epoch: next, At: n.utc()})
		aes := n.state.AES()
		refusal := (*RefusedError)(nil)
		stale := errors.As(err, &refusal) && refusal.Reason == fsm.RefusedStale
		switch {
		case err == nil:
			n.log.Info("AES key rotated", "epoch", aes.Active.Number)
			return nil
		case stale && aes.Active.Number > next:
			next = aes.Active.Number // its activation confirms it
		case stale && aes.Staged.Number > next:
			next = aes.Staged.Number
		default:
			return fmt.Errorf("rotate AES key: %w", err)
		}
	}
}

// RotateSession gives the cluster a new session secret, in the same way as RotateAES. Minions'
// session keys of the old secret open requests for Config.SessionGrace.
func (n *Node) RotateSession(ctx context.Context) error {
	if err := n.rotateSession(ctx); err != nil {
		return fmt.Errorf("rotate session secret: %w", err)
	}
	n.log.Info("session secret rotated", "epoch", n.state.Session().Active.Number)
	return nil
}

func (n *Node) rotateSession(ctx context.Context) error {
	secret, err := randomSecret()
	if err != nil {
		return err
	}
	r, index, err := n.Propose(ctx, &fsm.StageSession{Secret: secret, At: n.utc()})
	if err == nil {
		err = refused(r)
	}
	if err != nil {
		return err
	}
	n.ConfirmEverywhere(ctx, index)
	return n.activate(ctx, &fsm.ActivateSession{Epoch: r.Epoch, At: n.utc()})
}

func (n *Node) activate(ctx context.Context, c fsm.Command) error {
	r, index, err := n.Propose(ctx, c)
	if err != nil {
		return err
	}
	if err := refused(r); err != nil {
		return err
	}
	n.ConfirmEverywhere(ctx, index)
	return n.refreshSecrets()
}

func randomSecret() ([]byte, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make secret: %w", err)
	}
	return secret, nil
}
