package fsm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// Version is the version of the log entries and snapshots that this code writes.
const Version = 1

// Op numbers are written to the log: append only, never renumber, never reuse.
type Op uint8

// The commands of version 1.
const (
	OpFound           Op = 1
	OpPutMember       Op = 2
	OpRemoveMember    Op = 3
	OpAllowMember     Op = 4
	OpOfferKey        Op = 5
	OpChangeKeys      Op = 6
	OpImportKeys      Op = 7
	OpStageAES        Op = 8
	OpActivateAES     Op = 9
	OpStageSession    Op = 10
	OpActivateSession Op = 11
	OpSetRing         Op = 12
	OpSetJoinKey      Op = 13
	OpMarkMember      Op = 14
	OpRestore         Op = 15
	OpRecover         Op = 16
	OpOnce            Op = 17
	OpRestorePart     Op = 18
	OpPutToken        Op = 19
	OpDropToken       Op = 20

	opIgnorable Op = 0x80 // set: a master too old to know the op may skip it; unset: it must stop

	OpNoop Op = opIgnorable | 1
)

// ErrUnknown says that a log entry or snapshot was written by a newer master. The node must stop:
// skipping the entry would make its state differ from the others'.
var ErrUnknown = errors.New("written by a newer version of clustermaster; upgrade this master")

// ErrCorrupt says that a log entry or snapshot does not decode. The node must stop.
var ErrCorrupt = errors.New("does not decode")

// Command is one change of the state. Times in it are the proposer's clock in UTC; the state has none of its own.
type Command interface {
	// Op is the command's number in the log.
	Op() Op
	// apply changes s, which the caller has locked, and says what happened.
	apply(s *State, index uint64) Result
}

// Noop changes nothing. The leader writes one after the last change of a burst, so that every log on
// disk says that the change was committed.
type Noop struct{}

// Op implements Command.
func (Noop) Op() Op { return OpNoop }

func (Noop) apply(*State, uint64) Result { return Result{} }

// Encode writes c as a log entry: version, op, body.
func Encode(c Command) ([]byte, error) {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	if err := encodeHead(enc, Version, c.Op()); err != nil {
		return nil, fmt.Errorf("encode command %d: %w", c.Op(), err)
	}
	if err := enc.Encode(c); err != nil {
		return nil, fmt.Errorf("encode command %d: %w", c.Op(), err)
	}
	return buf.Bytes(), nil
}

func encodeHead(enc *msgpack.Encoder, version uint8, op Op) error {
	if err := enc.EncodeUint(uint64(version)); err != nil {
		return err
	}
	return enc.EncodeUint(uint64(op))
}

// Decode reads a log entry. An unknown op that may be skipped gives a Noop; another unknown op or
// version gives ErrUnknown, anything else that does not decode ErrCorrupt.
func Decode(entry []byte) (Command, error) { return decode(entry, false) }

// decode is Decode for an entry, or for the one within a Once, which holds no other Once.
func decode(entry []byte, inner bool) (Command, error) {
	r := bytes.NewReader(entry)
	dec := msgpack.NewDecoder(r)
	version, err := dec.DecodeUint8()
	if err != nil {
		return nil, fmt.Errorf("log entry: version %w: %w", ErrCorrupt, err)
	}
	if version == 0 || version > Version {
		return nil, fmt.Errorf("log entry of version %d: %w", version, ErrUnknown)
	}
	number, err := dec.DecodeUint8()
	if err != nil {
		return nil, fmt.Errorf("log entry: op %w: %w", ErrCorrupt, err)
	}
	c := newCommand(Op(number))
	if inner && Op(number) == OpOnce {
		return nil, fmt.Errorf("log entry with op %d within itself: %w", number, ErrCorrupt)
	}
	if c == nil {
		if Op(number)&opIgnorable != 0 {
			return Noop{}, nil
		}
		return nil, fmt.Errorf("log entry with op %d: %w", number, ErrUnknown)
	}
	if err := decodeInto(dec, c); err != nil {
		return nil, fmt.Errorf("log entry with op %d: body: %w", number, err)
	}
	if r.Len() != 0 {
		return nil, fmt.Errorf("log entry with op %d: %d bytes too many: %w", number, r.Len(), ErrCorrupt)
	}
	if once, ok := c.(*Once); ok {
		if err := once.unwrap(); err != nil {
			return nil, fmt.Errorf("log entry with op %d: %w", number, err)
		}
	}
	return c, nil
}

// decodeInto decodes one value. The library panics on some bad input (a nil for a time, msgpack 5.4.1),
// and bad bytes must never end the process.
func decodeInto(dec *msgpack.Decoder, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// newCommand returns an empty command of the given number, nil if there is none.
func newCommand(op Op) Command {
	switch op {
	case OpFound:
		return new(Found)
	case OpPutMember:
		return new(PutMember)
	case OpRemoveMember:
		return new(RemoveMember)
	case OpAllowMember:
		return new(AllowMember)
	case OpOfferKey:
		return new(OfferKey)
	case OpChangeKeys:
		return new(ChangeKeys)
	case OpImportKeys:
		return new(ImportKeys)
	case OpStageAES:
		return new(StageAES)
	case OpActivateAES:
		return new(ActivateAES)
	case OpStageSession:
		return new(StageSession)
	case OpActivateSession:
		return new(ActivateSession)
	case OpSetRing:
		return new(SetRing)
	case OpSetJoinKey:
		return new(SetJoinKey)
	case OpMarkMember:
		return new(MarkMember)
	case OpRestore:
		return new(Restore)
	case OpRecover:
		return new(Recover)
	case OpRestorePart:
		return new(RestorePart)
	case OpOnce:
		return new(Once)
	case OpPutToken:
		return new(PutToken)
	case OpDropToken:
		return new(DropToken)
	case OpSetRootsHead:
		return new(SetRootsHead)
	case OpSetUserKeys:
		return new(SetUserKeys)
	case OpChangeReactor:
		return new(ChangeReactor)
	case OpClaimRun:
		return new(ClaimRun)
	case OpClearRuns:
		return new(ClearRuns)
	case OpNoop:
		return new(Noop)
	}
	return nil
}

// Refusal says why a command changed nothing; empty when it was taken. The values travel between
// masters: append only.
type Refusal string

// The refusals.
const (
	RefusedFounded    Refusal = "founded"     // the cluster exists already
	RefusedNotFounded Refusal = "not-founded" // no cluster yet
	RefusedIDTaken    Refusal = "id-taken"    // another incarnation of the id is a member
	RefusedAddrTaken  Refusal = "addr-taken"  // another member has the address
	RefusedKeyTaken   Refusal = "key-taken"   // another member has the node key
	RefusedBarred     Refusal = "barred"      // the id or node key was removed; see cluster.allow
	RefusedNotMember  Refusal = "not-member"
	RefusedStale      Refusal = "stale" // made from an older state than the current one
	RefusedInvalid    Refusal = "invalid"
	RefusedFull       Refusal = "full" // as many as may be are there
)

// Result is what a command did, equal on every master.
type Result struct {
	Refused Refusal `msgpack:"refused,omitempty"`
	// Act is the outcome of OfferKey: accept, pend, reject, denied, full or error.
	Act string `msgpack:"act,omitempty"`
	// Keys lists the keys that changed: the new record, with From the state before. A deleted key has KeyUnknown.
	Keys []KeyChange `msgpack:"keys,omitempty"`
	// Epoch is the epoch that StageAES, StageSession or SetRing made, the number of SetRootsHead's head, or ClaimRun's turn.
	Epoch uint64 `msgpack:"epoch,omitempty"`
	// Changed says that the state differs from before.
	Changed bool `msgpack:"changed,omitempty"`

	change Change
	repeat bool // of a Once: nothing happened now
}

// Change describes an applied command to those who follow the state: key export, events, connections, ring.
type Change struct {
	Op      Op
	Keys    []KeyChange // keys that changed
	Added   []Member    // members added or updated
	Removed []Member    // members that are none any more
	Secrets bool        // AES, session, join or cluster key, or those of users changed
	Ring    bool        // the ring changed
	Roots   bool        // a head of the roots changed
	// Reactors says that what operators changed of the option reactor is another.
	Reactors bool
	// Restored says that the whole state was replaced by a snapshot: compare everything.
	Restored bool
}

// KeyChange is a key after a change and the state that it had before. For denied keys Key.State and
// From refer to the list of denied keys of the id.
type KeyChange struct {
	Key  Key      `msgpack:"key"`
	From KeyState `msgpack:"from"`
}
