package yaml11

import (
	"fmt"
	"math/big"
)

// Error is an error at a position in a document.
type Error struct {
	Line, Column int // from 1; 0 where the parser gives none
	Problem      string
	TooLarge     bool // it expands to more than Load allows for a document of its length
	TooDeep      bool // it is nested too deep, perhaps by an alias inside its own anchor
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
