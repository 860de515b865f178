package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// endOfDiary is the line of a page before which a diary's rows stand.
const endOfDiary = "<!-- end of long runs -->\n"

// diary is a table of a Markdown page with a row for each part. Without a page it keeps nothing.
type diary struct {
	page string
	mu   sync.Mutex
}

// note adds a row: date, part, tests that passed, failed and were skipped, minutes, coverage of the
// program, commit.
func (d *diary) note(part string, began time.Time, passed, failed, skipped int,
	covered string) error {
	if d.page == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	text, err := os.ReadFile(d.page)
	if err != nil {
		return err
	}
	before, after, found := bytes.Cut(text, []byte(endOfDiary))
	if !found {
		return fmt.Errorf("%s has no line %q", d.page, strings.TrimSpace(endOfDiary))
	}
	row := fmt.Sprintf("| %s | %s | %d | %d | %d | %.0f | %s | %s |\n", began.UTC().Format(time.DateOnly),
		part, passed, failed, skipped, time.Since(began).Minutes(), cmp.Or(covered, "-"),
		commit())
	return os.WriteFile(d.page, bytes.Join([][]byte{before, []byte(row), []byte(endOfDiary), after}, nil),
		0o644)
}

// commit is the short id of the checked out commit, with a + if files differ from it.
func commit() string {
	id, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "-"
	}
	out := strings.TrimSpace(string(id))
	if exec.Command("git", "diff", "--quiet", "HEAD").Run() != nil {
		out += "+"
	}
	return out
}
