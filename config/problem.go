package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one option that must be changed before a start. Its text says how.
type Problem struct {
	File   string // "" if the option is in no file
	Line   int    // from 1; 0 when unknown
	Option string // "" for the file as a whole
	Text   string
}

func (p *Problem) Error() string { return place(p.File, p.Line, p.Option) + p.Text }

// Warning is a note on the configuration that doesn't prevent a start.
type Warning struct {
	File   string
	Line   int
	Option string
	Text   string
	Severe bool // Salt logs it as an error: part of the configuration has no effect
}

// Broken is an error of the Severe warnings, one a line; nil without any. Load goes on without such
// files, as Salt does. A caller that must not lose their options looks here.
func Broken(warnings []Warning) error {
	var list []error
	for _, w := range warnings {
		if w.Severe {
			list = append(list, &Problem{File: w.File, Line: w.Line, Option: w.Option, Text: w.Text})
		}
	}
	return errors.Join(list...)
}

func (w Warning) String() string { return place(w.File, w.Line, w.Option) + w.Text }

func place(file string, line int, option string) string {
	var b strings.Builder
	if file != "" {
		b.WriteString(file)
		if line > 0 {
			fmt.Fprintf(&b, ":%d", line)
		}
		b.WriteString(": ")
	}
	if option != "" {
		b.WriteString(option + ": ")
	}
	return b.String()
}

// FileError is a configuration file that can't be read at all. Salt prints its
// text and ends with exit code 1.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string {
	return fmt.Sprintf("Error parsing configuration file: %s - %v", e.Path, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// Problems returns the single problems in err, for a caller that prints them one by one.
func Problems(err error) []*Problem {
	var list []*Problem
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			list = append(list, Problems(e)...)
		}
		return list
	}
	var p *Problem
	if errors.As(err, &p) {
		list = append(list, p)
	}
	return list
}

// meant asks whether a misspelt name is a known one; "" if none is similar.
func meant(name string, known []string) string {
	if near := closest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// closest returns the name that differs least from a misspelt one, or "" if none is similar.
func closest(name string, known []string) string {
	best, at := "", 3
	for _, k := range known {
		if d := distance(name, k); d < at || d == at && best != "" && k < best {
			best, at = k, d
		}
	}
	return best
}

// distance is the number of single-character edits (Levenshtein).
func distance(a, b string) int {
	if d := len(a) - len(b); d > 3 || d < -3 {
		return 99
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], slices.Min([]int{row[j] + 1, row[j-1] + 1, diagonal + cost})
		}
	}
	return row[len(b)]
}
