package yaml11

import (
	"fmt"
	"math/big"
)

// Error is a problem of a document at a place in it.
type Error struct {
	Line, Column int // from 1; 0 where the parser can't say
	Problem      string
	TooLarge     bool // it stands for more than Load makes of a document of its length
}

func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.Problem
	case e.Column == 0:
		return fmt.Sprintf("line %d: %s", e.Line, e.Problem)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// integer stores n in the smallest of int64, uint64 and *big.Int.
func integer(n *big.Int) any {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.IsUint64():
		return n.Uint64()
	}
	return n
}
