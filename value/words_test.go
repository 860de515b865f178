package value

import (
	"slices"
	"testing"
)

// TestFields and TestLower hold what CPython 3.10 to 3.14 answer.
func TestFields(t *testing.T) {
	t.Parallel()
	for s, want := range map[string][]string{
		"": {}, " \t": {}, "a b": {"a", "b"}, "a\x1cor\x1db\x1e\x1fc": {"a", "or", "b", "c"},
		"a\u0085b\u00a0c\u2003d\u3000e": {"a", "b", "c", "d", "e"},
		"a\u200bb\u180ec\ufeffd":        {"a\u200bb\u180ec\ufeffd"}, "a\x1bb\x00c": {"a\x1bb\x00c"},
	} {
		if got := Fields(s); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func TestLower(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"": "", "Web": "web", "ÄÖ": "äö", "İx": "i\u0307x", "I": "i", "ΟΔΟΣ": "οδος", "Σ": "σ",
		"ΑΣΑ": "ασα", "ΑΣ.": "ας.", "ΑΣ.Α": "ασ.α", "ΑΣ Β": "ας β", "ẞ": "ß", "K": "k",
	} {
		if got := Lower(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
