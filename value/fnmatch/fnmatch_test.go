package fnmatch

import (
	"math/rand/v2"
	"testing"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true},
		{"*", "web/a", true},
		{"", "", true},
		{"", "a", false},
		{"web*", "web-a", true},
		{"web*", "Web-a", false},
		{"*a", "web-a", true},
		{"*a*b*c", "xaybzc", true},
		{"*a*b*c", "xaybzcd", false},
		{"w?b", "wéb", true},
		{"w?b", "wb", false},
		{"web[0-9]", "web7", true},
		{"web[!0-9]", "web7", false},
		{"web[^0-9]", "web7", true}, // "^" is an ordinary member
		{"[]]", "]", true},
		{"[!]]", "]", false},
		{"[b-a]", "b", false}, // an empty range matches nothing,
		{"[!b-a]", "b", true}, // its negation everything
		{"[xb-ay]", "y", true},
		{"[0- !]", "0", true}, // without the empty range it is "[!]"
		{"[a-c-e]", "-", true},
		{"[a-c-e]", "d", false},
		{"[--0]", "/", true},
		{"[a-]", "-", true},
		{"[!-a]", "-", false},
		{"[", "[", true},
		{"[abc", "[abc", true},
		{"[abc", "a", false},
		{"a.b", "axb", false},
		{"salt/job/*/ret/*", "salt/job/1/ret/web/x", true},
		{"a**b", "ab", true},
		{"a*", "a", true},
	}
	for _, tt := range tests {
		if got := Match(tt.pattern, tt.name); got != tt.want {
			t.Errorf("Match(%q, %q) = %v, want %v", tt.pattern, tt.name, got, tt.want)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("*a[!b-]?", "xxa\xff")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		Match(pattern, name)
		if !Magic(name) && !Match(name, name) {
			t.Errorf("%q does not match itself", name)
		}
	})
}

// The quick way through a class and the whole one say the same.
func TestPlainClasses(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(1, 2))
	const characters = "a-c!0-9]é"
	quick := 0
	for range 100_000 {
		class := ""
		for range 1 + chance.IntN(6) {
			at := []rune(characters)
			class += string(at[chance.IntN(len(at))])
		}
		for _, r := range "abc0-!é" {
			found, ok := inPlainClass(class, r)
			if !ok {
				continue
			}
			quick++
			if want := inAnyClass(class, r); found != want {
				t.Fatalf("[%s] and %q: %v, want %v", class, r, found, want)
			}
		}
	}
	if quick < 1000 {
		t.Errorf("%d quick answers", quick)
	}
}

func BenchmarkClass(b *testing.B) {
	for b.Loop() {
		if !Match("web[0-9][0-9].example", "web17.example") {
			b.Fatal("no match")
		}
	}
}
