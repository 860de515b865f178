//go:build !future

package fsm

import "github.com/vmihailenco/msgpack/v5"

// laterState holds what the next level may add, see future.go; here it is empty.
type laterState struct{}

func laterCommand(Op) Command { return nil }

func (*Snapshot) putLater(func(record, any)) {}

func (*State) readLaterRecord(*msgpack.Decoder, record) error { return tooNew(0, "") }
