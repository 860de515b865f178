package fsm

import (
	"fmt"
	"slices"
)

// Bounds of the results that are kept for repeats: their number, and the number of keys in all of
// them.
const (
	keptResults = 256
	keptKeys    = 20_000
)

// Once is a command that takes effect once however often it is in the log: a proposer that lost the
// answer proposes it again and gets the first result. This holds for the newest commands only; many
// more are kept than can be under way at any time.
type Once struct {
	Token string `msgpack:"token"` // random, 16 bytes
	Entry []byte `msgpack:"entry"` // the command, as Encode wrote it

	command Command
}

// tokenSize is the length of Once.Token in bytes.
const tokenSize = 16

// NewOnce wraps a command. Token is random and the same for each repeat.
func NewOnce(token string, c Command) (*Once, error) {
	entry, err := Encode(c)
	if err != nil {
		return nil, err
	}
	return &Once{Token: token, Entry: entry, command: c}, nil
}

// Op implements Command.
func (*Once) Op() Op { return OpOnce }

// unwrap reads the inner command.
func (c *Once) unwrap() (err error) {
	if len(c.Token) != tokenSize {
		return fmt.Errorf("token of %d bytes: %w", len(c.Token), ErrCorrupt)
	}
	if c.command, err = decode(c.Entry, OpOnce); err != nil {
		return fmt.Errorf("inner: %w", err)
	}
	return nil
}

func (c *Once) apply(s *State, index uint64) Result {
	for _, d := range s.done {
		if d.Token == c.Token {
			r := d.Result
			r.repeat = true
			return r
		}
	}
	r := s.fold(c.command, index)
	kept := r
	kept.change = Change{}
	s.done = append(s.done, doneOnce{c.Token, kept})
	keys, from := 0, len(s.done)
	for from > 0 && len(s.done)-from < keptResults {
		if keys += len(s.done[from-1].Result.Keys); keys > keptKeys && from < len(s.done) {
			break
		}
		from--
	}
	s.done = slices.Clone(s.done[from:]) // snapshots share the old one
	return r
}

// Done returns the result of the Once with a token if it is among the newest ones applied.
func (s *State) Done(token string) (Result, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, d := range s.done {
		if d.Token == token {
			return d.Result, true
		}
	}
	return Result{}, false
}

// doneOnce is the stored result of a Once.
type doneOnce struct {
	Token  string `msgpack:"token"`
	Result Result `msgpack:"result"`
}
