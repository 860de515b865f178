//go:build future

package fsm

import "github.com/vmihailenco/msgpack/v5"

// A program built with the tag "future" has one more command, one more field and one more record,
// of a level that today's program does not support.

// OpFuture is the op of Future.
const OpFuture Op = 0x7f

const recordFuture record = 0xff

type laterState struct{ notes []string } // never changed in place

// Future adds a note to the state.
type Future struct {
	Note string `msgpack:"note"`
}

// Op implements Command.
func (*Future) Op() Op { return OpFuture }

func (c *Future) apply(s *State, _ uint64) Result {
	s.later.notes = append(s.later.notes[:len(s.later.notes):len(s.later.notes)], c.Note)
	return Result{Changed: true}
}

// Notes lists the notes.
func (s *State) Notes() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.later.notes
}

// AllowMemberWhy is AllowMember with one more field.
type AllowMemberWhy struct {
	ID  string `msgpack:"id"`
	Why string `msgpack:"why,omitempty"`
}

// Op implements Command.
func (*AllowMemberWhy) Op() Op { return OpAllowMember }

func (c *AllowMemberWhy) apply(s *State, index uint64) Result {
	return (&AllowMember{ID: c.ID}).apply(s, index)
}

func laterCommand(op Op) Command {
	switch op {
	case OpFuture:
		return new(Future)
	case OpAllowMember:
		return new(AllowMemberWhy)
	}
	return nil
}

func (sn *Snapshot) putLater(put func(record, any)) {
	for _, n := range sn.later.notes {
		put(recordFuture, n)
	}
}

func (s *State) readLaterRecord(dec *msgpack.Decoder, kind record) error {
	if kind != recordFuture {
		return tooNew(0, "")
	}
	note := ""
	err := decodeInto(dec, &note)
	s.later.notes = append(s.later.notes, note)
	return err
}
