package target

import "math/bits"

// set is a set of minions by their numbers, one bit each. Bits past its end count as unset.
type set []uint64

func (s set) has(i int) bool { return i>>6 < len(s) && s[i>>6]&(1<<(i&63)) != 0 }

// add puts a number in and returns the set, as append does.
func (s set) add(i int) set {
	for i>>6 >= len(s) {
		s = append(s, 0)
	}
	s[i>>6] |= 1 << (i & 63)
	return s
}

// firsts is the set of the first n numbers.
func firsts(n int) set {
	s := make(set, (n+63)/64)
	for i := range s {
		s[i] = ^uint64(0)
	}
	if n&63 != 0 {
		s[len(s)-1] = 1<<(n&63) - 1
	}
	return s
}

// each calls fn with the numbers in s, ascending.
func (s set) each(fn func(i int)) {
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			fn(w<<6 + bits.TrailingZeros64(word))
		}
	}
}

func (s set) len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

func and(a, b set) set {
	out := make(set, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] & b[i]
	}
	return out
}

func or(a, b set) set {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := append(make(set, 0, len(a)), a...)
	for i := range b {
		out[i] |= b[i]
	}
	return out
}

func without(a, b set) set {
	out := append(make(set, 0, len(a)), a...)
	for i := range min(len(a), len(b)) {
		out[i] &^= b[i]
	}
	return out
}
