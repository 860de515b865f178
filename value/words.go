package value

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Fields splits a text as Python's str.split does: the separators U+001C to U+001F are blanks too,
// unlike those of strings.Fields.
func Fields(s string) []string {
	return strings.FieldsFunc(s, IsSpace)
}

// IsSpace reports whether Python's str.isspace holds for r.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// Lower is Python's str.lower: U+0130 becomes two characters, and a sigma at the end of a word the
// final one, unlike with strings.ToLower.
func Lower(s string) string {
	if !strings.ContainsAny(s, "\u0130\u03a3") {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}
