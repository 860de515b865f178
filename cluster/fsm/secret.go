package fsm

import (
	"bytes"
	"time"
)

// maxOld is how many epochs before the active one are kept: enough for rotations that follow each
// other faster than the old key's time of grace.
const maxOld = 3

// Epoch is one generation of a secret.
type Epoch struct {
	Number  uint64    `msgpack:"number"`
	Secret  []byte    `msgpack:"secret"`
	At      time.Time `msgpack:"at"`      // when it was staged (or founded)
	Retired time.Time `msgpack:"retired"` // when it was replaced; zero while active or staged
}

// Epochs is the history of a secret. Staged only opens, as others may seal with it already. Active
// seals.
type Epochs struct {
	Staged Epoch // Number 0: none
	Active Epoch
	Old    []Epoch // newest first
}

type epochs struct {
	staged Epoch
	active Epoch
	old    []Epoch // never changed in place: snapshots share it
}

func (e *epochs) stage(secret []byte, at time.Time) Result {
	if e.active.Number == 0 {
		return Result{Refused: RefusedNotFounded}
	}
	if len(secret) == 0 || bytes.Equal(secret, e.active.Secret) {
		return Result{Refused: RefusedInvalid}
	}
	// A second stage before activation replaces the first, whose proposer died or gave up. The
	// number increases, because some member may have confirmed the first.
	number := max(e.active.Number, e.staged.Number) + 1
	e.staged = Epoch{Number: number, Secret: secret, At: at.UTC()}
	return Result{Changed: true, Epoch: number, change: Change{Secrets: true}}
}

func (e *epochs) activate(number uint64, at time.Time) Result {
	if number == 0 || e.staged.Number != number {
		if number != 0 && e.active.Number == number {
			return Result{Epoch: number} // a repeat
		}
		return Result{Refused: RefusedStale}
	}
	retired := e.active
	retired.Retired = at.UTC()
	old := append([]Epoch{retired}, e.old...)
	e.old = old[:min(len(old), maxOld)]
	e.active, e.staged = e.staged, Epoch{}
	return Result{Changed: true, Epoch: number, change: Change{Secrets: true}}
}

// AES returns the epochs of the key that seals publications.
func (s *State) AES() Epochs {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Epochs{s.aes.staged, s.aes.active, s.aes.old}
}

// Session returns the epochs of the secret that minions' session keys are derived from.
func (s *State) Session() Epochs {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Epochs{s.session.staged, s.session.active, s.session.old}
}

// StageAES announces the next AES key to all members before any of them seals with it.
type StageAES struct {
	Key string    `msgpack:"key"` // 76 characters, see wire.Key
	At  time.Time `msgpack:"at"`
}

// Op implements Command.
func (*StageAES) Op() Op { return OpStageAES }

func (c *StageAES) apply(s *State, _ uint64) Result { return s.aes.stage([]byte(c.Key), c.At) }

// ActivateAES makes the staged key the sealing one.
type ActivateAES struct {
	Epoch uint64    `msgpack:"epoch"`
	At    time.Time `msgpack:"at"`
}

// Op implements Command.
func (*ActivateAES) Op() Op { return OpActivateAES }

func (c *ActivateAES) apply(s *State, _ uint64) Result { return s.aes.activate(c.Epoch, c.At) }

// StageSession announces the next session secret to all members before any of them hands out keys
// derived from it.
type StageSession struct {
	Secret []byte    `msgpack:"secret"` // 32 random bytes
	At     time.Time `msgpack:"at"`
}

// Op implements Command.
func (*StageSession) Op() Op { return OpStageSession }

func (c *StageSession) apply(s *State, _ uint64) Result { return s.session.stage(c.Secret, c.At) }

// ActivateSession makes the staged session secret the one from which _auth derives keys.
type ActivateSession struct {
	Epoch uint64    `msgpack:"epoch"`
	At    time.Time `msgpack:"at"`
}

// Op implements Command.
func (*ActivateSession) Op() Op { return OpActivateSession }

func (c *ActivateSession) apply(s *State, _ uint64) Result {
	return s.session.activate(c.Epoch,
		c.At)
}
