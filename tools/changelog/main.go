// Command changelog makes CHANGELOG.md of one file per change.
//
// Each change has a file in docs/changes/next, for instance docs/changes/next/extension-modules.md:
//
//	fixed: extension_modules lies below root_dir, as with Salt.
//
// The word before the colon is one of kinds. With a version as its argument the command moves the
// files of docs/changes/next to docs/changes/VERSION; then it writes CHANGELOG.md of all versions.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// kinds are the words that may begin a fragment, in the order of the page.
var kinds = []struct{ word, title string }{
	{"breaking", "What you must change"},
	{"security", "Security"},
	{"added", "Added"},
	{"changed", "Changed"},
	{"fixed", "Fixed"},
	{"removed", "Removed"},
}

const (
	next     = "next"
	maxText  = 1000 // bytes of a fragment
	maxWidth = 100  // columns
)

func main() {
	if err := run(filepath.Join("docs", "changes"), "CHANGELOG.md", os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "changelog:", err)
		os.Exit(1)
	}
}

func run(dir, page string, args []string) error {
	if len(args) > 1 {
		return errors.New("more than one argument; give the version of the release, or nothing")
	}
	if len(args) == 1 {
		if err := release(dir, args[0]); err != nil {
			return err
		}
	}
	text, err := changelog(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// release moves the fragments of the next version to a folder of that name.
func release(dir, version string) error {
	if _, err := numbers(version); err != nil {
		return err
	}
	from, to := filepath.Join(dir, next), filepath.Join(dir, version)
	if _, err := fragments(from); err != nil {
		return err
	}
	if _, err := os.Stat(to); err == nil {
		return fmt.Errorf("%s exists: version %s was released; take a higher one", to, version)
	}
	names, err := filepath.Glob(filepath.Join(from, "*.md"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no fragments: nothing to release", from)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Rename(name, filepath.Join(to, filepath.Base(name))); err != nil {
			return err
		}
	}
	return nil
}

// changelog is the page of all released versions, the newest first.
func changelog(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var versions []string
	for _, e := range entries {
		if !e.IsDir() || e.Name() == next {
			continue
		}
		if _, err := numbers(e.Name()); err != nil {
			return "", err
		}
		versions = append(versions, e.Name())
	}
	slices.SortFunc(versions, func(a, b string) int {
		x, _ := numbers(a)
		y, _ := numbers(b)
		return slices.Compare(y, x)
	})
	var b strings.Builder
	b.WriteString("# Changes\n\nMade of `docs/changes/` by `make changelog`. What the next release brings: `docs/changes/next`.\n")
	for _, v := range versions {
		all, err := fragments(filepath.Join(dir, v))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n## %s\n", v)
		for _, k := range kinds {
			first := true
			for _, f := range all {
				if f.kind != k.word {
					continue
				}
				if first {
					fmt.Fprintf(&b, "\n### %s\n\n", k.title)
					first = false
				}
				b.WriteString("- " + strings.ReplaceAll(f.text, "\n", "\n  ") + "\n")
			}
		}
	}
	return b.String(), nil
}

// fragment is one change.
type fragment struct{ kind, text string }

// fragments reads a folder, by name.
func fragments(dir string) ([]fragment, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	out := make([]fragment, 0, len(names))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parse(string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, f)
	}
	return out, nil
}

func parse(text string) (fragment, error) {
	kind, rest, ok := strings.Cut(text, ": ")
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = k.word
	}
	rest = strings.TrimSpace(rest)
	switch {
	case !ok || !slices.Contains(words, kind):
		return fragment{}, fmt.Errorf("begins with none of %s; write \"fixed: What is true now.\"",
			strings.Join(words, ", "))
	case rest == "" || !strings.HasSuffix(rest, "."):
		return fragment{}, errors.New("is not a sentence; end it with a full stop")
	case strings.Contains(rest, "\n\n"):
		return fragment{}, errors.New("has an empty line; write one paragraph, or one file per change")
	case len(rest) > maxText:
		return fragment{}, fmt.Errorf("has %d bytes, at most %d; details belong in docs/", len(rest),
			maxText)
	}
	for line := range strings.SplitSeq(rest, "\n") {
		if len([]rune(line)) > maxWidth-len("  ") {
			return fragment{}, fmt.Errorf("has a line of more than %d columns; wrap it",
				maxWidth-len("  "))
		}
	}
	return fragment{kind, rest}, nil
}

// numbers reads a version as 0.2.0.
func numbers(version string) ([]int, error) {
	parts := strings.Split(version, ".")
	out := make([]int, len(parts))
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || len(parts) != 3 {
			return nil, fmt.Errorf("%q is not a version; write one as 0.2.0", version)
		}
		out[i] = n
	}
	return out, nil
}
