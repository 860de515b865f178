//go:build !future

package fsm

import "github.com/vmihailenco/msgpack/v5"

// What the next level may add stands in future.go; here it is nothing.
type laterState struct{}

func laterCommand(Op) Command { return nil }

func (*Snapshot) putLater(func(record, any)) {}

func (*State) readLaterRecord(*msgpack.Decoder, record) error { return tooNew(0, "") }
