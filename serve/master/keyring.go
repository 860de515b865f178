package master

import (
	"context"
	"sync"
	"sync/atomic"

	"clustermaster/cluster"
	"clustermaster/keystore"
	"clustermaster/value"
	"clustermaster/wire"
)

// maxRings bounds the minions whose derived keys are cached; beyond it the cache starts empty
// again.
const maxRings = 1 << 16

// keyring caches what is costly to derive from the keys: derived keys and their ciphers.
type keyring struct {
	keys    Keys
	cluster Cluster

	shared atomic.Pointer[sharedKeys]

	mu    sync.RWMutex // guards rings
	rings map[string]*ring
}

// sharedKeys are the ciphers of the AES epochs of one set of secrets.
type sharedKeys struct {
	of     *cluster.Secrets
	aes    []*wire.Crypticle
	once   sync.Once
	sigErr error
	sig    []byte // of the active AES key, made at first use
}

// ring holds what is derived for one minion under one accepted key.
type ring struct {
	key      *keystore.AcceptedKey
	of       *cluster.Secrets
	sessions []*wire.Crypticle // in the order of.Session
}

func newKeyring(keys Keys, cluster Cluster) *keyring {
	return &keyring{keys: keys, cluster: cluster, rings: make(map[string]*ring)}
}

// common returns the shared keys of the present secrets.
func (k *keyring) common() *sharedKeys {
	now := k.cluster.Secrets()
	s := k.shared.Load()
	if s != nil && s.of == now {
		return s
	}
	s = &sharedKeys{of: now}
	for _, e := range now.AES {
		s.aes = append(s.aes, wire.NewCrypticle(e.Key))
	}
	k.shared.Store(s)
	return s
}

// signature returns the proof, in every accepting sign-in, that the AES key is the master's. It
// takes one RSA operation per epoch.
func (s *sharedKeys) signature(key *wire.PrivateKey) ([]byte, error) {
	s.once.Do(func() { s.sig, s.sigErr = wire.KeySignature(key, s.of.AES[0].Key) })
	return s.sig, s.sigErr
}

// ring returns the keys of an id with an accepted key.
func (k *keyring) ring(id string) (*ring, bool) {
	key, ok := k.keys.Accepted(id)
	if !ok {
		return nil, false
	}
	secrets := k.cluster.Secrets()
	k.mu.RLock()
	r := k.rings[id]
	k.mu.RUnlock()
	if r != nil && r.of == secrets && r.key.Index == key.Index && r.key.PubSum == key.PubSum {
		return r, true
	}
	fresh := &ring{key: key, of: secrets}
	for _, e := range secrets.Session {
		fresh.sessions = append(fresh.sessions,
			wire.NewCrypticle(wire.DeriveSession(e.Secret, id, key.PubSum, key.Index)))
	}
	k.mu.Lock()
	if len(k.rings) >= maxRings {
		clear(k.rings)
	}
	k.rings[id] = fresh
	k.mu.Unlock()
	return fresh, true
}

// openSession opens a request of version 3 with any of the session keys in use; the cluster drops
// one when its grace has ended. It decrypts in place, as does openShared.
func (k *keyring) openSession(r *ring, sealed []byte) (packed []byte, c *wire.Crypticle, ok bool) {
	for _, c := range r.sessions {
		if packed, err := c.OpenInPlace(sealed); err == nil {
			return packed, c, true
		}
	}
	return nil, nil, false
}

// openShared opens a request of version 2 or below.
func (k *keyring) openShared(sealed []byte) (packed []byte, c *wire.Crypticle, ok bool) {
	for _, c := range k.common().aes {
		if packed, err := c.OpenInPlace(sealed); err == nil {
			return packed, c, true
		}
	}
	return nil, nil, false
}

// verify checks a token. A minion sends the same bytes until its key changes, so verify remembers
// them.
func (r *ring) verify(tok []byte) bool {
	return r.key.Pub != nil && r.key.Pub.VerifyToken(tok) == nil
}

// open does the checks of an aes request, in Salt's order with two exceptions: it looks up the
// accepted key before it decrypts anything, and reserves memory for the decoded request before it
// decodes.
func (m *Master) open(ctx context.Context, env wire.Envelope, sender Sender) (*call,
	*wire.Refusal) {
	c := &call{env: env}
	var packed []byte
	var keys *ring
	var ok bool
	if env.Version >= 3 {
		if refusal := m.newest.twice(ctx, func() *wire.Refusal {
			if keys, ok = m.keys.ring(env.ID); !ok {
				return wire.BadLoad("unknown_id")
			}
			if packed, c.crypt, ok = m.keys.openSession(keys, env.Sealed); !ok {
				return wire.BadLoad("session_key")
			}
			return nil
		}); refusal != nil {
			return nil, refusal
		}
	} else if packed, c.crypt, ok = m.keys.openShared(env.Sealed); !ok {
		return nil, wire.BadLoad("aes_key")
	}
	if sender != nil { // a caller with such a key got it as an accepted minion
		sender.Vouch()
	}
	if refusal := m.weigh(packed, sender); refusal != nil {
		return nil, refusal
	}
	req, refusal := wire.ParseRequest(packed)
	if refusal != nil {
		return nil, refusal
	}
	if refusal := req.Check(env, m.deps.Cluster.Now(), m.opts.RequestServerTTL); refusal != nil {
		return nil, refusal
	}
	c.Request = req
	if env.Version >= 3 {
		if !keys.verify(req.Tok) {
			return nil, wire.BadLoad("token")
		}
	} else if req.ID != "" {
		if refusal := m.newest.twice(ctx, func() *wire.Refusal {
			if keys, ok = m.keys.ring(req.ID); !ok {
				return wire.BadLoad("unknown_id")
			}
			if !(req.Tok == nil && m.needsNoToken(&req)) && !keys.verify(req.Tok) {
				return wire.BadLoad("token")
			}
			return nil
		}); refusal != nil {
			return nil, refusal
		}
	}
	if keys != nil {
		c.key = keys.key
	}
	return c, nil
}

// needsNoToken reports whether a request below version 3 is served without a token. There every
// minion can make a request that names another one, so only commands that are the same for all are,
// and requests in the name of minions that the option legacy_minions lists: their releases send
// none.
func (m *Master) needsNoToken(req *wire.Request) bool {
	return forAll(req.Cmd) || anyGlob(m.opts.LegacyMinions, req.ID)
}

// weigh reserves the memory that an opened request takes once it is decoded.
func (m *Master) weigh(packed []byte, sender Sender) *wire.Refusal {
	weight, err := value.Weigh(packed)
	switch {
	case err != nil:
		return nil // ParseRequest reports the error
	case m.opts.MaxDecoded > 0 && weight > m.opts.MaxDecoded:
		return wire.BadLoad("decoded_size")
	case sender != nil && !sender.Hold(weight):
		return wire.NoMemory()
	}
	return nil
}
