package value

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Fields splits a text as Python's str.split does: unlike strings.Fields it treats the separators
// U+001C to U+001F as blanks too.
func Fields(s string) []string {
	return strings.FieldsFunc(s, IsSpace)
}

// IsSpace reports whether Python's str.isspace holds for r.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// Lower is Python's str.lower: unlike strings.ToLower it turns U+0130 into two characters, and a
// sigma at the end of a word into the final one.
func Lower(s string) string {
	if !strings.ContainsAny(s, "\u0130\u03a3") {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}
