package fsm

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Bounds of one token's record.
const (
	maxTokenData  = 16 << 10 // bytes
	maxTokenOwner = 1 << 10  // bytes
)

// Token is what a token of external_auth stands for. The token itself is nowhere in the state: who
// reads a master's disk or a backup can't use it.
type Token struct {
	Hash  [32]byte `msgpack:"hash"`  // SHA-256 of the token's text
	Owner string   `msgpack:"owner"` // back end and user, for the cap of each
	// what Salt's token map has beside the token; the state doesn't look into it
	Data   []byte    `msgpack:"data"`
	Expire time.Time `msgpack:"expire"` // from then on it is good for nothing
}

func (t Token) valid() bool {
	return t.Hash != [32]byte{} && t.Owner != "" && len(t.Owner) <= maxTokenOwner &&
		len(t.Data) <= maxTokenData && !t.Expire.IsZero()
}

// PutToken adds a token. It is refused as full when Max tokens that have not expired are there, or
// MaxPerOwner of one owner; expired ones make room first.
type PutToken struct {
	Token       Token     `msgpack:"token"`
	Max         int       `msgpack:"max"`
	MaxPerOwner int       `msgpack:"max_per_owner"`
	At          time.Time `msgpack:"at"`
}

// Op implements Command.
func (*PutToken) Op() Op { return OpPutToken }

func (c *PutToken) apply(s *State, _ uint64) Result {
	switch {
	case s.cluster.UUID == "":
		return Result{Refused: RefusedNotFounded}
	case !c.Token.valid() || !c.Token.Expire.After(c.At):
		return Result{Refused: RefusedInvalid}
	}
	pruned := s.pruneTokens(c.At)
	if _, repeat := s.tokens[c.Token.Hash]; !repeat {
		owned := 0
		for _, t := range s.tokens {
			if t.Owner == c.Token.Owner {
				owned++
			}
		}
		if len(s.tokens) >= c.Max || s.limited() && len(s.tokens) >= s.most("State.tokens") ||
			owned >= c.MaxPerOwner {
			return Result{Refused: RefusedFull, Changed: pruned}
		}
	}
	t := c.Token
	t.Expire = t.Expire.UTC()
	s.tokens[t.Hash] = &t
	return Result{Changed: true}
}

// DropToken takes a token away. Changed tells that there was one.
type DropToken struct {
	Hash [32]byte  `msgpack:"hash"`
	At   time.Time `msgpack:"at"`
}

// Op implements Command.
func (*DropToken) Op() Op { return OpDropToken }

func (c *DropToken) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	s.pruneTokens(c.At)
	_, had := s.tokens[c.Hash]
	delete(s.tokens, c.Hash)
	return Result{Changed: had}
}

// pruneTokens drops what has expired by the time that a command carries.
func (s *State) pruneTokens(at time.Time) bool {
	before := len(s.tokens)
	maps.DeleteFunc(s.tokens, func(_ [32]byte, t *Token) bool { return !t.Expire.After(at) })
	return len(s.tokens) < before
}

// Token returns the record of a token by the hash of its text, expired or not.
func (s *State) Token(hash [32]byte) (Token, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.tokens[hash]
	if !ok {
		return Token{}, false
	}
	return *t, true
}

// Tokens counts the tokens, with those that have expired since the last command about tokens.
func (s *State) Tokens() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.tokens)
}

// sortedTokens lists tokens by hash.
func sortedTokens(tokens map[[32]byte]*Token) []*Token {
	return slices.SortedFunc(maps.Values(tokens),
		func(a, b *Token) int { return strings.Compare(string(a.Hash[:]), string(b.Hash[:])) })
}
