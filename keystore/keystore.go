package keystore

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/cluster/fsm"
	"clustermaster/wire"
)

// Node is what a key store needs from the cluster; *cluster.Node implements it.
type Node interface {
	State() *fsm.State
	// Propose applies a command and returns when it is applied here. Without a quorum it fails
	// soon.
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, uint64, error)
	// Settle waits, until ctx ends, for the result of a command whose Propose ended with err, and
	// the index by which it was applied. It returns err unless that left open whether the command
	// takes effect, and it did.
	Settle(ctx context.Context, err error) (fsm.Result, uint64, error)
	// ReadIndex returns when the state here includes everything acknowledged before the call.
	ReadIndex(ctx context.Context) error
	// ConfirmEverywhere returns the members that did not confirm in time that they applied index.
	ConfirmEverywhere(ctx context.Context, index uint64) (unconfirmed []string)
}

// State is the state of a key. The zero value means an id that was never seen.
type State uint8

// The states of a key.
const (
	Unknown  = State(fsm.KeyUnknown)
	Accepted = State(fsm.KeyAccepted)
	Pending  = State(fsm.KeyPending)
	Rejected = State(fsm.KeyRejected)
	Denied   = State(fsm.KeyDenied)
)

// States lists all states in the order in which Salt lists them.
var States = []State{Accepted, Denied, Pending, Rejected}

// String returns Salt's name of the state, which is also the name of its folder in the pki
// directory.
func (s State) String() string {
	switch s {
	case Accepted:
		return "minions"
	case Pending:
		return "minions_pre"
	case Rejected:
		return "minions_rejected"
	case Denied:
		return "minions_denied"
	}
	return "unknown"
}

// ParseState is the reverse of State.String.
func ParseState(name string) (State, bool) {
	for _, s := range States {
		if s.String() == name {
			return s, true
		}
	}
	return Unknown, false
}

// Key is one key of a minion.
type Key struct {
	ID    string
	State State
	Pub   string    // PEM text, cleaned; if it is no key, what the minion sent
	Since time.Time // time of the last change of State
	Index uint64    // Raft index at which it got this state
	From  State     // in results of Change: the previous state
}

// AcceptedKey is an accepted key, parsed once. It is shared: read only.
type AcceptedKey struct {
	ID     string
	Pub    *wire.PublicKey // nil if the accepted text is no key
	PubSum [32]byte        // SHA-256 of the text
	Index  uint64          // Raft index of the acceptance

	text string
}

// Store holds the keys of the cluster. Safe for concurrent use.
type Store struct {
	node Node
	log  *slog.Logger
	m    *metrics

	mu     sync.RWMutex // guards all below; never held across I/O
	parsed map[string]*AcceptedKey
	ids    []string // accepted, sorted; never changed in place
	idsAt  uint64   // KeysVersion of ids
	idsSet bool
}

// New makes a store on a node. A nil log discards messages; a nil reg registers no metrics.
func New(node Node, log *slog.Logger, reg prometheus.Registerer) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	return &Store{node: node, log: log.With("component", "keystore"), m: m,
		parsed: make(map[string]*AcceptedKey)}, nil
}

// Key returns the accepted, pending or rejected key of an id.
func (s *Store) Key(id string) (Key, bool) {
	k, ok := s.node.State().Key(id)
	return fromFSM(k), ok
}

func fromFSM(k fsm.Key) Key {
	return Key{ID: k.ID, State: State(k.State), Pub: k.Pub, Since: k.Since, Index: k.Index}
}

// DeniedKeys returns the keys that were offered for an id with another key, oldest first.
func (s *Store) DeniedKeys(id string) []Key {
	var out []Key
	for _, d := range s.node.State().Denied(id) {
		out = append(out, Key{ID: id, State: Denied, Pub: d.Pub, Since: d.At})
	}
	return out
}

// Accepted returns the accepted key of an id from memory. It allocates only to parse a key for the
// first time.
func (s *Store) Accepted(id string) (*AcceptedKey, bool) {
	k, ok := s.node.State().Key(id)
	if !ok || k.State != fsm.KeyAccepted {
		s.forget(id)
		return nil, false
	}
	s.mu.RLock()
	a := s.parsed[id]
	s.mu.RUnlock()
	if a != nil && a.Index == k.Index && a.text == k.Pub {
		return a, true
	}
	a = &AcceptedKey{ID: id, Index: k.Index, PubSum: sha256.Sum256([]byte(k.Pub)), text: k.Pub}
	if pub, err := wire.ParsePublicKey(k.Pub); err == nil {
		a.Pub = pub
	}
	s.mu.Lock()
	s.parsed[id] = a // bounded by the accepted keys: forget removes the others
	s.mu.Unlock()
	return a, true
}

func (s *Store) forget(id string) {
	s.mu.RLock()
	_, have := s.parsed[id]
	s.mu.RUnlock()
	if have {
		s.mu.Lock()
		delete(s.parsed, id)
		s.mu.Unlock()
	}
}

// AcceptedIDs lists the ids with an accepted key, sorted. The slice is shared: read only.
func (s *Store) AcceptedIDs() []string {
	version := s.node.State().KeysVersion()
	s.mu.RLock()
	ids, at, set := s.ids, s.idsAt, s.idsSet
	s.mu.RUnlock()
	if set && at == version {
		return ids
	}
	keys, at := s.node.State().Keys()
	ids = make([]string, 0, len(keys))
	accepted := make(map[string]bool, len(keys))
	for _, k := range keys {
		if k.State == fsm.KeyAccepted {
			ids = append(ids, k.ID)
			accepted[k.ID] = true
		}
	}
	s.mu.Lock()
	s.ids, s.idsAt, s.idsSet = ids, at, true
	for id := range s.parsed {
		if !accepted[id] {
			delete(s.parsed, id)
		}
	}
	s.mu.Unlock()
	return ids
}

// List returns the ids by state, sorted; it has an entry for every state.
func (s *Store) List() map[State][]string {
	out := map[State][]string{Accepted: {}, Pending: {}, Rejected: {}, Denied: {}}
	keys, _ := s.node.State().Keys()
	for _, k := range keys {
		out[State(k.State)] = append(out[State(k.State)], k.ID)
	}
	out[Denied] = append(out[Denied], s.node.State().DeniedIDs()...)
	return out
}

// Fresh returns when List and Key show every change that any master acknowledged before the call.
// Operators' reads start with it.
func (s *Store) Fresh(ctx context.Context) error { return s.node.ReadIndex(ctx) }

// Text returns the PEM text of an id's key in a state; of several denied keys the last one offered.
func (s *Store) Text(id string, in State) (string, bool) {
	if in == Denied {
		d := s.node.State().Denied(id)
		if len(d) == 0 {
			return "", false
		}
		return d[len(d)-1].Pub, true
	}
	k, ok := s.node.State().Key(id)
	return k.Pub, ok && State(k.State) == in
}
