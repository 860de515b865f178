// Package figure writes numbers for the pages and tables of measurements.
//
// Lives here: three digits, thousands separated by commas, numbers with their nouns. Does not:
// measure, make tables or pages.
package figure

import (
	"fmt"
	"math"
	"strconv"
)

// Number writes three digits, with thousands separated by commas.
func Number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0:
		return "-" + Number(-v)
	case v >= 99.95:
		return Thousands(int(math.Round(v)))
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// Thousands writes a number from 0 on with commas.
func Thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Plural writes a number with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Thousands(n) + " " + noun + "s"
}
