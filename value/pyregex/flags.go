package pyregex

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/dlclark/regexp2"
)

// Flags are those of Python's module re, as numbers. Others change nothing.
type Flags int64

// The flags.
const (
	IgnoreCase Flags = 2
	Locale     Flags = 4
	Multiline  Flags = 8
	DotAll     Flags = 16
	Unicode    Flags = 32
	Verbose    Flags = 64
	ASCII      Flags = 256
)

// maxBacktracked bounds the texts that backtracking is tried on, in letters.
const maxBacktracked = 8 << 20

// SearchText compiles an expression for re.search on text. The search fails if backtracking takes
// too long, or has taken more than three seconds over all texts. Only one goroutine may use it.
func SearchText(expr string, flags Flags) (search func(string) (bool, error), err error) {
	if flags&(ASCII|Locale) != 0 {
		return nil, errors.New("the flags ASCII and LOCALE are not built in for text")
	}
	return finder(expr, flags)
}

// SearchBytes is SearchText for an expression of bytes on bytes. Each byte is one letter; those
// from 0x80 belong to no class, but match themselves.
func SearchBytes(expr []byte, flags Flags) (search func([]byte) (bool, error), err error) {
	if flags&Unicode != 0 {
		return nil, errors.New("cannot use UNICODE flag with a bytes pattern")
	}
	if flags&Locale != 0 {
		return nil, errors.New("the flag LOCALE is not built in")
	}
	if numbered.Match(expr) {
		return nil, errors.New("bytes by number are not built in for expressions of bytes")
	}
	find, err := finder(lift(expr), flags)
	if err != nil {
		return nil, err
	}
	// A "$" that is not the end of a line also matches before the last line end, which Go's regexp
	// does not support.
	exact := linear(string(expr)) && flags&Verbose == 0 &&
		(flags&Multiline != 0 || bytes.IndexByte(expr, '$') < 0)
	if !exact {
		return func(b []byte) (bool, error) { return find(lift(b)) }, nil
	}
	re, err := regexp.Compile(inline(flags) + "(?:" + string(expr) + ")")
	if err != nil {
		return nil, fmt.Errorf("compile %q: %w", expr, err)
	}
	return func(b []byte) (bool, error) {
		if bytes.IndexByte(b, '\v') >= 0 { // white space only in Python
			return find(lift(b))
		}
		return re.MatchString(lift(b)), nil
	}, nil
}

// numbered finds escapes such as \xe9 and \351, which mean bytes.
var numbered = regexp.MustCompile(`\\(x[89a-fA-F]|[1-3][0-7][0-7])`)

// lift turns each byte into a letter; those from 0x80 into private-use letters, which belong to no
// class.
func lift(b []byte) string {
	var s strings.Builder
	s.Grow(len(b))
	for _, x := range b {
		if x < 0x80 {
			s.WriteByte(x)
		} else {
			s.WriteRune(0xe000 + rune(x))
		}
	}
	return s.String()
}

// inline writes flags in the syntax of Go's regexp.
func inline(flags Flags) string {
	out := ""
	for _, f := range []struct {
		flag   Flags
		letter string
	}{{IgnoreCase, "i"}, {Multiline, "m"}, {DotAll, "s"}} {
		if flags&f.flag != 0 {
			out += f.letter
		}
	}
	if out == "" {
		return ""
	}
	return "(?" + out + ")"
}

// finder searches with regexp2, and returns an error when it gives up.
func finder(expr string, flags Flags) (func(string) (bool, error), error) {
	if len(expr) > maxLength {
		return nil, fmt.Errorf("an expression of more than %d bytes", maxLength)
	}
	var options regexp2.RegexOptions
	for flag, option := range map[Flags]regexp2.RegexOptions{
		IgnoreCase: regexp2.IgnoreCase, Multiline: regexp2.Multiline, DotAll: regexp2.Singleline,
		Verbose: regexp2.IgnorePatternWhitespace,
	} {
		if flags&flag != 0 {
			options |= option
		}
	}
	try, err := patient(NewBudget(regexBudget), dialect(expr), options)
	if err != nil {
		return nil, fmt.Errorf("compile %q: %w", expr, err)
	}
	return func(s string) (bool, error) {
		if len(s) > maxBacktracked {
			return false, fmt.Errorf("searching for %q in more than %d bytes is not built in", expr,
				maxBacktracked)
		}
		found, err := try(s)
		if errors.Is(err, errSpent) {
			return false, fmt.Errorf("searching for %q takes longer than %s", expr, regexBudget)
		}
		if err != nil {
			return false, fmt.Errorf("search for %q: %w", expr, err)
		}
		return found, nil
	}, nil
}
