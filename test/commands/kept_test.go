package commands

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
)

// Salt's answers to the lines are kept in testdata/answers, a file per scene, masked as for the
// comparison. `make salt-answers` asks Salt again.
var update = flag.Bool("update", false, "ask Salt anew, and keep its answers")

// live reports whether Salt is asked in this run. Its answers must then equal the kept ones.
func live() bool { return *update || answers.Long() }

// answersOf is the file of a scene's answers.
func answersOf(scene string) string { return filepath.Join("testdata", "answers", scene+".json") }

// TestSaltStillSays asks Salt in each run for the lines that it answers without a master.
func TestSaltStillSays(t *testing.T) {
	t.Parallel()
	salts := newSide(t, "salt", startLibrary(t, reference), e2e.Theirs(t, reference))
	for _, c := range scenes() {
		if !c.masterless {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			answers := answers.Open[said](t, answersOf(c.name), reference, settings(), false)
			for _, l := range c.lines {
				answers.Salt(t, answers.Turn(), l.String(),
					func() said { return l.on(t, salts).said() })
			}
		})
	}
}

// settings are everything besides the lines that Salt's answers depend on.
var settings = sync.OnceValue(func() string {
	var b strings.Builder
	fmt.Fprintln(&b, reference, options, salts, rootOptions, accessOptions, externalOptions, users,
		minionOptions+"--")
	for _, files := range []map[string]string{rootFiles, runFiles, applied} {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(&b, "%s %q\n", name, files[name])
		}
	}
	return b.String()
})

// unnamed hides the names of this run's places and of its user.
func (s *side) unnamed(text string) string {
	text = strings.NewReplacer(s.Dir, "DIR", s.Addr, "ADDR",
		filepath.Dir(filepath.Dir(s.program.Salt)), "PROGRAMS").Replace(text)
	if u, err := user.Current(); err == nil && u.Username != "root" {
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(u.Username)+`\b`).ReplaceAllString(text,
			"root")
	}
	return text
}

// brief is a text, or the digest of a long one. Only the digest is kept of pages of documentation,
// because they are Salt's.
func brief(text string) string {
	if len(text) <= 10000 {
		return text
	}
	return fmt.Sprintf("%d bytes, SHA-256 %x", len(text), sha256.Sum256([]byte(text)))
}

// said is a result as a file holds it: texts as lists of lines.
type said struct {
	Stdout []string `json:"stdout,omitempty"`
	Stderr []string `json:"stderr,omitempty"`
	Code   int      `json:"code"`
}

func (r result) said() said {
	return said{slices.Collect(strings.Lines(brief(r.stdout))),
		slices.Collect(strings.Lines(brief(r.stderr))), r.code}
}

func (s said) result() result {
	return result{stdout: strings.Join(s.Stdout, ""), stderr: strings.Join(s.Stderr, ""),
		code: s.Code}
}
