package fsm

import (
	"bytes"
	"maps"
	"time"
)

// Saved is the part of a state that a backup restores: what minions and operators would miss.
// Members, ring and the join key belong to the masters that run now.
type Saved struct {
	ClusterKey string              `msgpack:"cluster_key"` // PEM
	AES        string              `msgpack:"aes"`
	Session    []byte              `msgpack:"session"`
	Keys       []Key               `msgpack:"keys"`
	Denied     map[string][]Denied `msgpack:"denied"`
	Bars       []Bar               `msgpack:"bars"`
	// Older backups have neither Reactors nor Scheduled.
	Reactors  Reactors    `msgpack:"reactors"`
	Scheduled []Scheduled `msgpack:"scheduled,omitempty"`
	Tokens    []Token     `msgpack:"tokens,omitempty"`
}

// Saved returns the part of the state that a backup keeps, and the index that all of it is of.
func (s *State) Saved() (Saved, uint64) {
	out, index := s.saved()
	sortKeys(out.Keys)
	return out, index
}

func (s *State) saved() (out Saved, index uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out = Saved{
		ClusterKey: s.cluster.ClusterKey, AES: string(s.aes.active.Secret),
		Session: s.session.active.Secret,
		Keys:    s.copyKeys(), Denied: maps.Clone(s.denied), Reactors: s.reactors,
	}
	for _, name := range sortedNames(s.scheduled) {
		e := s.scheduled[name]
		e.Runs = nil // the runs ended with the old cluster
		out.Scheduled = append(out.Scheduled, e)
	}
	for _, id := range sortedNames(s.bars) {
		out.Bars = append(out.Bars, s.bars[id])
	}
	for _, t := range sortedTokens(s.tokens) {
		out.Tokens = append(out.Tokens, *t)
	}
	return out, s.applied
}

// Restore restores a backup: the cluster key, the secrets of minions' sessions, exactly the keys of
// the backup, each with its old index, so that minions need not sign in again, and the tokens that
// have not expired. It adds the backup's bars to the present ones, except against a present member.
// An entry of the schedule that this cluster knows stays as it is. The command holds all of that
// itself, or the preceding Parts parts hold the lists.
type Restore struct {
	Saved Saved     `msgpack:"saved"`
	At    time.Time `msgpack:"at"`
	Token string    `msgpack:"token,omitempty"` // of the parts
	Parts int       `msgpack:"parts,omitempty"`
}

// Op implements Command.
func (*Restore) Op() Op { return OpRestore }

func (c *Restore) apply(s *State, index uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if c.Saved.ClusterKey == "" || c.Saved.AES == "" || len(c.Saved.Session) == 0 {
		return Result{Refused: RefusedInvalid}
	}
	if c.Parts > 0 && !s.collecting(c.Token, c.Parts) {
		return Result{Refused: RefusedStale}
	}
	s.cluster.ClusterKey = c.Saved.ClusterKey
	s.aes.replace([]byte(c.Saved.AES), c.At)
	s.session.replace(c.Saved.Session, c.At)
	s.keys, s.denied, s.deniedN, s.unvetted = make(map[string]*Key,
		len(c.Saved.Keys)), make(map[string][]Denied), 0, 0
	s.offered = make(map[string]int)
	s.tokens = make(map[[32]byte]*Token)
	for i := range c.Parts {
		s.putBack(&s.parts[i], index)
	}
	s.putBack(c.Saved.part(), index)
	s.parts = nil
	s.pruneTokens(c.At)
	s.keysAt = index
	if !c.Saved.Reactors.empty() {
		s.reactors = c.Saved.Reactors
		s.reactors.Index = index
		s.reactors.tidy()
	}
	for _, e := range c.Saved.Scheduled {
		if _, known := s.scheduled[e.Name]; known || e.Name == "" ||
			len(s.scheduled) >= maxScheduled {
			continue
		}
		e.tidy()
		e.Runs = nil
		s.scheduled[e.Name] = e
	}
	return Result{Changed: true, change: Change{Restored: true, Secrets: true}}
}

// putBack adds lists of a backup.
func (s *State) putBack(p *RestorePart, index uint64) {
	for _, k := range p.Keys {
		if k.ID == "" || k.State != KeyAccepted && k.State != KeyPending && k.State != KeyRejected {
			continue
		}
		k.Since = k.Since.UTC()
		s.putKey(k, index)
	}
	for _, d := range p.Denied {
		if d.ID == "" || len(d.Keys) == 0 {
			continue
		}
		list := append([]Denied(nil), d.Keys...)
		for i := range list {
			list[i].At = list[i].At.UTC()
		}
		s.deniedN += len(list) - len(s.denied[d.ID])
		s.denied[d.ID] = list
	}
	for _, t := range p.Tokens {
		if t.valid() {
			t.Expire = t.Expire.UTC()
			s.tokens[t.Hash] = &t
		}
	}
	for _, b := range p.Bars {
		taken := false
		for _, m := range s.members {
			taken = taken || m.ID == b.ID || m.SPKI == b.SPKI
		}
		if _, have := s.bars[b.ID]; !have && !taken && b.ID != "" {
			b.At = b.At.UTC()
			s.bars[b.ID] = b
		}
	}
}

// replace activates a secret at once.
func (e *epochs) replace(secret []byte, at time.Time) {
	if bytes.Equal(secret, e.active.Secret) {
		return
	}
	number := max(e.active.Number, e.staged.Number) + 1
	e.staged = Epoch{Number: number, Secret: secret, At: at.UTC()}
	e.activate(number, at)
}

// Recover makes one member the whole cluster under a new uuid, so that members of the old cluster
// never meet it with a different history. The only voter proposes it after raft was recovered.
type Recover struct {
	Node string    `msgpack:"node"`
	UUID string    `msgpack:"uuid"`
	At   time.Time `msgpack:"at"`
}

// Op implements Command.
func (*Recover) Op() Op { return OpRecover }

func (c *Recover) apply(s *State, index uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if c.UUID == "" {
		return Result{Refused: RefusedInvalid}
	}
	if _, ok := s.members[c.Node]; !ok {
		return Result{Refused: RefusedNotMember}
	}
	if s.cluster.UUID == c.UUID {
		return Result{} // a repeat
	}
	s.cluster.UUID = c.UUID
	change := Change{Ring: true}
	for _, node := range sortedNames(s.members) {
		m := s.members[node]
		if node != c.Node {
			s.dropMember(m, index)
			change.Removed = append(change.Removed, *m)
			continue
		}
		keep := *m
		keep.Learner, keep.Draining = false, false
		s.members[node], s.bySPKI[m.SPKI] = &keep, &keep
		change.Added = []Member{keep}
	}
	s.version = index
	s.ring = Ring{Epoch: s.ring.Epoch + 1, Members: []string{c.Node}}
	return Result{Changed: true, change: change}
}
