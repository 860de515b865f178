package clustermaster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	textColumns = 100 // of pages and comments
	codeColumns = 120
	longText    = 40 // characters of a literal that stays in one piece
)

var (
	rulePattern = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	longLiteral = regexp.MustCompile("[\"`]")
	unwrappable = regexp.MustCompile(`^( *\||#|    |.*\]\(|.*https?://)`)
	directive   = regexp.MustCompile(`^//(go:|nolint|line )|https?://`)

	commandLine = regexp.MustCompile(`^(\$ )?(clustermaster|salt(-[a-z]+)?|systemctl|apt|apt-get|dnf|` +
		`dpkg|make|exec|ssh|scp) `)
	quotedText = regexp.MustCompile(`\\.|'[^']*'|"(\\.|[^"\\])*"|\s# .*`)
)

// TestStyle finds the phrases that docs/style.md rules out, and lines that are too long. A tab
// counts four columns.
func TestStyle(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/style.md")
	if err != nil {
		t.Fatal(err)
	}
	var phrases []string
	for _, m := range rulePattern.FindAllStringSubmatch(string(page), -1) {
		phrases = append(phrases, strings.ReplaceAll(m[1], `\|`, "|"))
	}
	if len(phrases) < 10 {
		t.Fatalf("docs/style.md lists %d phrases", len(phrases))
	}
	ruledOut := regexp.MustCompile(strings.Join(phrases, "|"))
	for _, name := range sources(t) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if strings.HasPrefix(text, "// Code generated") {
			continue
		}
		fenced := false
		for i, line := range strings.Split(text, "\n") {
			if m := ruledOut.FindString(line); m != "" && name != "docs/style.md" &&
				!strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s:%d: %q; docs/style.md has a plainer word", name, i+1, m)
			}
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			switch {
			case strings.HasSuffix(name, ".md"):
				if strings.HasPrefix(strings.TrimSpace(line), "```") {
					fenced = !fenced
				}
				if !fenced && columns > textColumns && !unwrappable.MatchString(line) {
					t.Errorf("%s:%d: %d columns, at most %d", name, i+1, columns, textColumns)
				}
			case !strings.HasSuffix(name, ".go"):
			case strings.HasPrefix(strings.TrimSpace(line), "//"):
				if columns > textColumns && !directive.MatchString(strings.TrimSpace(line)) {
					t.Errorf("%s:%d: %d columns, at most %d", name, i+1, columns, textColumns)
				}
			case columns > codeColumns && !strings.HasSuffix(name, "_test.go") && !hasLongText(line):
				t.Errorf("%s:%d: %d columns, at most %d", name, i+1, columns, codeColumns)
			}
		}
	}
}

// hasLongText reports whether a line of code holds a literal that is better not broken, or a part
// of a raw one.
func hasLongText(line string) bool {
	for _, piece := range longLiteral.Split(line, -1) {
		if utf8.RuneCountInString(piece) >= longText && strings.ContainsAny(line, "\"`") {
			return true
		}
	}
	return strings.Contains(line, "`")
}

// sources are the pages and programs of the tree, without test data.
func sources(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "*.go", "*.md",
		"*.sh").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if !strings.Contains(filepath.ToSlash(name), "testdata/") {
			names = append(names, name)
		}
	}
	return names
}

var (
	shownPath = regexp.MustCompile("`([a-z0-9_]+/[A-Za-z0-9_./-]*[A-Za-z0-9_])`")
	fileName  = regexp.MustCompile(`\.(go|sh|py|md|tsv|json|yml)$`)
)

// TestPathsInPages finds paths that were right before something moved: those that are there only
// below another folder, and files below a folder of the tree that has no such file.
func TestPathsInPages(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	names := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	there, below := map[string]bool{}, map[string]string{}
	for _, name := range names {
		for path := name; path != "."; path = filepath.Dir(path) {
			if there[path] {
				break
			}
			there[path] = true
			for rest := path; ; {
				_, tail, ok := strings.Cut(rest, "/")
				if !ok {
					break
				}
				rest = tail
				below[rest] = path
			}
		}
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".md") || strings.HasPrefix(name, "docs/changes/") ||
			strings.Contains(name, "testdata/") || name == "CHANGELOG.md" {
			continue
		}
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shownPath.FindAllStringSubmatch(string(page), -1) {
			path := m[1]
			first, _, _ := strings.Cut(path, "/")
			switch is, moved := below[path]; {
			case there[path], there[filepath.Join(filepath.Dir(name), path)], first == "testdata",
				first == "salt" && strings.HasSuffix(path, ".py"): // Salt's own
			case moved:
				t.Errorf("%s names `%s`, which is `%s`", name, path, is)
			case there[first] && fileName.MatchString(path):
				t.Errorf("%s names `%s`, which is not there", name, path)
			}
		}
	}
}

// TestQuotesInPages finds command lines that break within quotes: a reader who copies one gives the
// shell two commands. They may break at a \ outside of quotes.
func TestQuotesInPages(t *testing.T) {
	t.Parallel()
	found := 0
	for _, name := range sources(t) {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fenced := false
		for line := range strings.Lines(strings.ReplaceAll(string(page), "\\\n", " ")) {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			code, indented := strings.CutPrefix(line, "    ")
			if (!indented && !fenced) || !commandLine.MatchString(code) {
				continue
			}
			found++
			if strings.ContainsAny(quotedText.ReplaceAllString(code, ""), `'"`) {
				t.Errorf("%s: %q has an open quote; break it at \\ outside of quotes", name, code)
			}
		}
	}
	if found < 100 {
		t.Errorf("the pages show %d commands", found)
	}
}
