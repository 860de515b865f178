// Package memory says how much of this process's memory one thing may take.
//
// Lives here: the bound of an answer that is put together in memory.
//
// Does not: measure or set the memory of the process (package serve/daemon sets the limit), bound
// what is under way altogether (package transport/minion).
package memory

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"clustermaster/value"
)

// MostOfAnswer is how many bytes, as they are stored, one answer may have: a sixteenth of what this
// process may use. Decoded, packed and sent it needs several times as much; see Size.
func MostOfAnswer() int64 { return debug.SetMemoryLimit(-1) / 16 }

// Answer counts the bytes of an answer that is put together. The zero value is an empty one. It is
// safe for concurrent use.
type Answer struct{ bytes atomic.Int64 }

// Hold counts n more bytes, as stored. Its error, an *AnswerError, says that the answer is too
// large; it names neither the question nor a remedy.
func (a *Answer) Hold(n int64) error {
	for most := MostOfAnswer(); ; {
		held := a.bytes.Load()
		if held > most-n {
			return &AnswerError{most}
		}
		if a.bytes.CompareAndSwap(held, held+n) {
			return nil
		}
	}
}

// Keep counts packed, a part of the answer that is decoded; see Size.
func (a *Answer) Keep(packed []byte) error { return a.Hold(Size(packed)) }

// Release takes back n bytes that were counted.
func (a *Answer) Release(n int64) { a.bytes.Add(-n) }

// Size is what an answer counts for packed once that is decoded: its bytes, or a quarter of what it
// takes then, if that is more. What minions usually send takes up to four times its bytes. Empty
// arrays take forty times theirs, and a minion may send nothing else.
func Size(packed []byte) int64 {
	weight, _ := value.Weigh(packed) // what does not decode takes nothing then
	return max(int64(len(packed)), weight/4)
}

// AnswerError refuses an answer with more than Most bytes.
type AnswerError struct{ Most int64 }

func (e *AnswerError) Error() string {
	return fmt.Sprintf("more than %d MB, too much for the memory of this master; ask for less, or ask a master that has more", e.Most>>20)
}
