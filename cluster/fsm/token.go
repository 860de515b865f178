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

// Token is the record of a token of external_auth. The state does not hold the token itself, so a
// reader of a master's disk or of a backup can't use it.
type Token struct {
	Hash  [32]byte `msgpack:"hash"`  // SHA-256 of the token's text
	Owner string   `msgpack:"owner"` // back end and user, for the cap per owner
	// the rest of Salt's token map; the state doesn't read it
	Data   []byte    `msgpack:"data"`
	Expire time.Time `msgpack:"expire"` // the token is invalid from then on
}

func (t Token) valid() bool {
	return t.Hash != [32]byte{} && t.Owner != "" && len(t.Owner) <= maxTokenOwner &&
		len(t.Data) <= maxTokenData && !t.Expire.IsZero()
}

// PutToken adds a token. It first drops expired tokens. It is refused as full if Max tokens remain,
// or MaxPerOwner of the same owner.
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

// DropToken deletes a token. Changed reports whether it existed.
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

// pruneTokens drops the tokens that have expired by the time in a command.
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

// Tokens returns the number of tokens, including those that have expired since the last command
// about tokens.
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
