// Command mutate makes faults in a copy of the project, one at a time, and expects a test to find
// each. The faults are in mutations.txt.
//
//	go run ./tools/mutate [-only EXPRESSION] [-page docs/testing.md]
//
// A fault that no test finds, that does not fit the code any more, or that does not compile is an
// error. So is a test that fails without a fault. The page's table keeps its rows of faults that
// were not tried.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:embed mutations.txt
var table string

// mutation is one fault.
type mutation struct {
	group, name, file string
	from, to          string
	test              []string // arguments of go test
}

// result is the result of one mutation.
type result struct {
	mutation
	found string // test that found it; "" if none did
	took  time.Duration
	err   error // of the harness
}

func main() {
	only := flag.String("only", "", "only faults whose name or file this `expression` matches")
	page := flag.String("page", "", "write what was found into the table of this `file`, between its marks")
	flag.Parse()
	if err := run(*only, *page); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(only, page string) error {
	which, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	all, err := parse(table)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := checkOut(dir); err != nil {
		return err
	}
	var results []result
	var failed []error
	sound := make(map[string]bool) // tests that have passed without a fault
	for _, m := range all {
		if !which.MatchString(m.name) && !which.MatchString(m.file) {
			continue
		}
		r := try(dir, m, sound)
		results = append(results, r)
		switch {
		case r.err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", m.name, r.err))
			fmt.Printf("ERROR  %-70s %v\n", m.name, r.err)
		case r.found == "":
			failed = append(failed, fmt.Errorf("%s (%s): no test of go test %s finds it", m.name,
				m.file, strings.Join(m.test, " ")))
			fmt.Printf("ALIVE  %-70s %s\n", m.name, strings.Join(m.test, " "))
		default:
			fmt.Printf("found  %-70s %s %v\n", m.name, r.found, r.took.Round(100*time.Millisecond))
		}
	}
	if len(results) == 0 {
		return fmt.Errorf("%q matches the name or file of no fault in mutations.txt", only)
	}
	fmt.Printf("%d of %d faults were found\n", len(results)-len(failed), len(results))
	if page != "" {
		failed = append(failed, write(page, all, results, time.Now()))
	}
	return errors.Join(failed...)
}

// parse reads the table.
func parse(text string) ([]mutation, error) {
	var out []mutation
	var group string
	var m mutation
	var from, to []string
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "## "):
			group = line[3:]
		case strings.HasPrefix(line, "# "):
			m.name = line[2:]
		case strings.HasPrefix(line, "in "):
			m.file = line[3:]
		case strings.HasPrefix(line, "- "):
			from = append(from, line[2:])
		case strings.HasPrefix(line, "+ "):
			to = append(to, line[2:])
		case strings.HasPrefix(line, "go test "):
			m.group, m.test = group, strings.Fields(line[8:])
			m.from, m.to = strings.Join(from, "\n"), strings.Join(to, "\n")
			if m.name == "" || m.file == "" || m.from == "" {
				return nil, fmt.Errorf("mutations.txt:%d: a fault needs a name, a file and lines", i+1)
			}
			out = append(out, m)
			m, from, to = mutation{}, nil, nil
		case line != "":
			return nil, fmt.Errorf("mutations.txt:%d: %q is not part of a fault", i+1, line)
		}
	}
	return out, nil
}

// checkOut copies the project's present files, except those that git ignores.
func checkOut(dir string) error {
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("list the project's files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(name)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(name)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil {
				return err
			}
			continue
		}
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(to, b, info.Mode().Perm())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// try makes one fault, runs the test and undoes the fault.
func try(dir string, m mutation, sound map[string]bool) result {
	r := result{mutation: m}
	path := filepath.Join(dir, m.file)
	was, err := os.ReadFile(path)
	if err != nil {
		r.err = err
		return r
	}
	if n := strings.Count(string(was), m.from); n != 1 {
		r.err = fmt.Errorf("its lines are in %s %d times, not once", m.file, n)
		return r
	}
	if test := strings.Join(m.test, " "); !sound[test] {
		if out, err := goTest(dir, m.test); err != nil {
			r.err = fmt.Errorf("go test %s fails without a fault: %s", test, last(out))
			return r
		}
		sound[test] = true
	}
	with := strings.Replace(string(was), m.from, m.to, 1)
	if err := os.WriteFile(path, []byte(with), 0o600); err != nil {
		r.err = err
		return r
	}
	defer func() {
		if err := os.WriteFile(path, was, 0o600); err != nil {
			r.err = errors.Join(r.err, err)
		}
	}()
	if out, err := command(dir, "build", "./"+filepath.Dir(m.file)); err != nil {
		r.err = fmt.Errorf("it does not compile: %s", last(out))
		return r
	}
	began := time.Now()
	out, err := goTest(dir, m.test)
	r.took = time.Since(began)
	if err == nil {
		return r
	}
	r.found, r.err = judge(out)
	return r
}

// judge returns the test that a failed go test blames. Without one it hangs or did not run.
func judge(out []byte) (found string, err error) {
	switch found = finder(out); {
	case strings.HasPrefix(found, timedOut):
		return "", errors.New("the test hangs; it needs a limit of its own, so that it says what it misses")
	case found == "":
		return "", fmt.Errorf("go test failed, but no test did: %s", last(out))
	}
	return found, nil
}

func goTest(dir string, args []string) ([]byte, error) {
	return command(dir, append([]string{"test", "-count=1", "-failfast", "-timeout", "10m"},
		args...)...)
}

func command(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd.CombinedOutput()
}

var (
	failing  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	panicked = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*)$`)
)

// timedOut begins go test's panic for a test that hangs. It prints no test as failed.
const timedOut = "panic: test timed out after "

// finder returns the failed test, the innermost of nested ones, else the panic that ended them.
func finder(out []byte) string {
	all := failing.FindAllSubmatch(out, -1)
	found := ""
	for _, m := range all {
		if name := string(m[1]); found == "" || strings.HasPrefix(name, found+"/") {
			found = name
		}
	}
	if found == "" {
		if m := panicked.FindSubmatch(out); m != nil {
			found = string(m[1])
		}
	}
	return found
}

func last(out []byte) string {
	out = bytes.TrimSpace(out)
	return string(out[max(0, len(out)-600):])
}

const (
	begins = "<!-- mutations -->"
	ends   = "<!-- end of mutations -->"
)

// write puts the results of a day into a page's table, which keeps its other rows of known faults.
func write(page string, all []mutation, results []result, day time.Time) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begins)
	was, after, ok2 := strings.Cut(rest, ends)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no marks %s and %s", page, begins, ends)
	}
	row := func(m mutation) string { return fmt.Sprintf("| %s | %s |", m.name, m.file) }
	rows := make(map[string]string)
	for line := range strings.Lines(was) {
		if f := strings.SplitAfterN(line, "|", 4); len(f) == 4 {
			rows[strings.Join(f[:3], "")] = f[3]
		}
	}
	for _, r := range results {
		found := r.found
		switch {
		case r.err != nil || found == "":
			found = "no test"
		case !strings.HasPrefix(found, "Test") && !strings.HasPrefix(found, "Fuzz"):
			found = "a panic in the tests"
		}
		rows[row(r.mutation)] = fmt.Sprintf(" %s | %s |\n", found, day.Format(time.DateOnly))
	}
	var b strings.Builder
	group := ""
	for _, m := range all {
		if m.group != group {
			group = m.group
			fmt.Fprintf(&b, "\n### %s\n\n| fault | in | found by | on |\n|---|---|---|---|\n", group)
		}
		found, tried := rows[row(m)]
		if !tried {
			found = " not tried yet | |\n"
		}
		b.WriteString(row(m) + found)
	}
	return os.WriteFile(page, []byte(before+begins+"\n"+b.String()+"\n"+ends+after), 0o644)
}
