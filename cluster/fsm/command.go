package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"clustermaster/cluster/level"
)

// Op numbers are written to the log: append only, never renumber, never reuse. Each has its level
// in package level.
type Op uint8

// The commands.
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
	OpSetLevel        Op = 21

	OpNoop Op = 129
)

// ErrUnknown says that a newer release wrote a log entry or snapshot. The node must stop: if it
// skipped the unknown part, its state would differ from the others'. A *level.TooNewError comes
// with it.
var ErrUnknown = errors.New("unknown to this release")

// ErrCorrupt says that a log entry or snapshot does not decode. The node must stop.
var ErrCorrupt = errors.New("does not decode")

// Command is one change of the state. Times in it are the proposer's clock in UTC; the state has
// none of its own.
type Command interface {
	// Op returns the command's number in the log.
	Op() Op
	// apply changes s, which the caller has locked, and returns what happened.
	apply(s *State, index uint64) Result
}

// Noop changes nothing. The leader writes one after the last change of a burst, so that every log
// on disk shows that the change was committed.
type Noop struct {
	// Check makes it a checkpoint: after it the members compare their states.
	Check bool `msgpack:"check,omitempty"`
}

// Op implements Command.
func (Noop) Op() Op { return OpNoop }

func (Noop) apply(*State, uint64) Result { return Result{} }

// Encode writes c as a log entry: the level that it needs, op, body.
func Encode(c Command) ([]byte, error) {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	if err := encodeHead(enc, Needs(c), c.Op()); err != nil {
		return nil, fmt.Errorf("encode command %d: %w", c.Op(), err)
	}
	if err := enc.Encode(c); err != nil {
		return nil, fmt.Errorf("encode command %d: %w", c.Op(), err)
	}
	return buf.Bytes(), nil
}

func encodeHead(enc *msgpack.Encoder, needs int, op Op) error {
	if needs == 0 {
		return errors.New("not in the table of package level")
	}
	if err := enc.EncodeUint(uint64(needs)); err != nil {
		return err
	}
	return enc.EncodeUint(uint64(op))
}

// newDecoder decodes strictly: a field that the struct lacks is an error.
func newDecoder(r io.Reader) *msgpack.Decoder {
	dec := msgpack.NewDecoder(r)
	dec.DisallowUnknownFields(true)
	return dec
}

// Decode reads a log entry. It returns ErrUnknown for an op, field or level that this program does
// not know, and ErrCorrupt for anything else that does not decode.
func Decode(entry []byte) (Command, error) { return decode(entry, 0) }

// decode is Decode for a whole entry (within is 0) or for the entry inside a Once, which must not
// hold another Once, or inside an Audited, which must hold neither.
func decode(entry []byte, within Op) (Command, error) {
	r := bytes.NewReader(entry)
	dec := newDecoder(r)
	needs, err := dec.DecodeUint8()
	if err != nil {
		return nil, fmt.Errorf("log entry: level %w: %w", ErrCorrupt, err)
	}
	if needs == 0 {
		return nil, fmt.Errorf("log entry of level 0: %w", ErrCorrupt)
	}
	if int(needs) > level.Supported() {
		return nil, fmt.Errorf("log entry: %w", tooNew(int(needs), ""))
	}
	number, err := dec.DecodeUint8()
	if err != nil {
		return nil, fmt.Errorf("log entry: op %w: %w", ErrCorrupt, err)
	}
	c := newCommand(Op(number))
	if within != 0 && Op(number) == OpOnce || within == OpAudited && Op(number) == OpAudited {
		return nil, fmt.Errorf("log entry with op %d within itself: %w", number, ErrCorrupt)
	}
	if c == nil {
		return nil, fmt.Errorf("log entry with op %d: %w", number, tooNew(0, ""))
	}
	if err := decodeInto(dec, c); err != nil {
		return nil, fmt.Errorf("log entry with op %d: body: %w", number, err)
	}
	if r.Len() != 0 {
		return nil, fmt.Errorf("log entry with op %d: %d bytes too many: %w", number, r.Len(),
			ErrCorrupt)
	}
	switch c := c.(type) {
	case *Once:
		if err := c.unwrap(); err != nil {
			return nil, fmt.Errorf("log entry with op %d: %w", number, err)
		}
	case *Audited:
		if err := c.unwrap(); err != nil {
			return nil, fmt.Errorf("log entry with op %d: %w", number, err)
		}
	case *SetLevel:
		if c.Level > level.Supported() {
			return nil, fmt.Errorf("log entry with op %d: %w", number, tooNew(c.Level, c.Release))
		}
	}
	if Needs(c) > int(needs) {
		return nil, fmt.Errorf("log entry with op %d: of level %d, said to be of level %d: %w",
			number, Needs(c), needs, ErrCorrupt)
	}
	return c, nil
}

// tooNew returns the error for something above the level that this program supports; 0 and "" mean
// that level and release are unknown.
func tooNew(n int, release string) error {
	return fmt.Errorf("%w: %w", ErrUnknown, &level.TooNewError{Level: n, Release: release})
}

// decodeInto decodes one value. The library panics on some bad input (a nil for a time, msgpack
// 5.4.1), and bad bytes must never end the process.
func decodeInto(dec *msgpack.Decoder, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	err = dec.Decode(v)
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(),
		"msgpack: unknown field "): // the library has no typed error for it
		return fmt.Errorf("%w: %w", err, tooNew(0, ""))
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// newCommand returns an empty command with the given number; nil for an unknown number.
func newCommand(op Op) Command {
	if c := laterCommand(op); c != nil {
		return c
	}
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
	case OpAudited:
		return new(Audited)
	case OpPutToken:
		return new(PutToken)
	case OpDropToken:
		return new(DropToken)
	case OpAdoptCluster:
		return new(AdoptCluster)
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
	case OpSetGitRefs:
		return new(SetGitRefs)
	case OpChangeGit:
		return new(ChangeGit)
	case OpSetLevel:
		return new(SetLevel)
	case OpNoop:
		return new(Noop)
	}
	return nil
}

// Refusal says why a command changed nothing; "" if it was accepted. The values travel between
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
	RefusedStale      Refusal = "stale" // made from an older state than the present one
	RefusedInvalid    Refusal = "invalid"
	RefusedFull       Refusal = "full" // a bound is reached
)

// Result is what a command did. It is equal on every master.
type Result struct {
	Refused Refusal `msgpack:"refused,omitempty"`
	// Act is the outcome of OfferKey: accept, pend, reject, denied, full or error.
	Act string `msgpack:"act,omitempty"`
	// Keys lists the keys that changed: the new record, with From the state before. A deleted key
	// has KeyUnknown.
	Keys []KeyChange `msgpack:"keys,omitempty"`
	// Epoch is the epoch that StageAES, StageSession or SetRing made, or the number of
	// SetRootsHead's head, or ClaimRun's turn.
	Epoch uint64 `msgpack:"epoch,omitempty"`
	// Changed says that the command changed the state.
	Changed bool `msgpack:"changed,omitempty"`

	change Change
	repeat bool // of a Once: the command had its effect before
}

// EncodeResult encodes r for a proposer on another member.
func EncodeResult(r Result) ([]byte, error) { return msgpack.Marshal(&r) }

// DecodeResult reads what EncodeResult wrote. It returns the same errors as Decode.
func DecodeResult(b []byte) (r Result, err error) {
	err = decodeInto(newDecoder(bytes.NewReader(b)), &r)
	return r, err
}

// Change describes an applied command to the state's followers: key export, events, connections,
// ring.
type Change struct {
	Op      Op
	Keys    []KeyChange // keys that changed
	Added   []Member    // members added or updated
	Removed []Member    // members removed
	Secrets bool        // AES, session, join, cluster or users' keys changed
	Ring    bool        // the ring changed
	Roots   bool        // a head of the roots changed
	Git     bool        // what the masters serve of git remotes changed
	Level   bool        // the cluster's level rose
	// Reactors says that operators' changes of the option reactor changed.
	Reactors bool
	// Restored says that a snapshot replaced the whole state: compare everything.
	Restored bool
}

// KeyChange is a key after a change and the state that it had before. For denied keys Key.State and
// From refer to the list of denied keys of the id.
type KeyChange struct {
	Key  Key      `msgpack:"key"`
	From KeyState `msgpack:"from"`
}
