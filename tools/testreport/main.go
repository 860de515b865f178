// Command testreport runs the parts of the test suite one after the other, whatever the results of
// earlier ones, and sums up what failed, and what was skipped or left out and why.
//
//	testreport [-allow FILE] [-again N -with SCRIPT] [-diary PAGE] [-filtered] NAME=COMMAND...
//
// A part is a shell command. NAME&=COMMAND runs beside the parts that follow it. Testreport turns
// the output of `go test -json` into one line per package and the output of failures; other lines
// pass unchanged. A line that begins with "left out: ", also in the log of a test, names what this
// machine lacks. Beside the output of tests, a line that begins with "failed: " is a failure of the
// part, and "coverage of the program: 61.0 %" is for the diary.
//
// With -again N, at most N failed tests run once more, alone, by SCRIPT PACKAGE PATTERN. A test
// that passes then is listed as unsteady and does not fail the run: the result shows what is
// broken, and the list what needs repair.
//
// With -diary PAGE each part that ran tests adds a dated row to that page's table of long runs.
//
// A part that calls go test and runs no test fails. With -filtered only some tests are wanted: then
// it is enough that one part runs any.
//
// The exit code is 1 if a test or a part failed. With CI=true it is 1 too if something was skipped
// or left out for a reason that is not a line of FILE.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

func main() {
	allow := flag.String("allow", "",
		"file with the reasons for which CI may skip, one per line; # begins a comment")
	most := flag.Int("again", 0, "failed tests that may run once more")
	script := flag.String("with", "", "what runs the tests matching a pattern of a package")
	diary := flag.String("diary", "", "page with the table of long runs")
	filtered := flag.Bool("filtered", false, "parts may run no test, if one does")
	flag.Parse()
	os.Exit(run(os.Stdout, *allow, os.Getenv("CI") == "true", *filtered, second{*most, *script},
		*diary, flag.Args()))
}

// second is the second attempt of failed tests.
type second struct {
	most   int
	script string
}

func run(out io.Writer, allow string, strict, filtered bool, again second, page string,
	parts []string) (code int) {
	var allowed []string
	if strict && allow != "" {
		text, err := os.ReadFile(allow)
		if err != nil {
			fmt.Fprintln(out, "testreport: reasons that CI allows are not read:", err)
			return 2
		}
		allowed = reasons(string(text))
	}
	for _, p := range parts {
		if name, command, _ := strings.Cut(p, "="); strings.TrimSuffix(name, "&") == "" || command == "" {
			fmt.Fprintf(out, "testreport: %q is not NAME=COMMAND\n", p)
			return 2
		}
	}
	out = &pieces{out: out}
	d := &diary{page: page}
	r := newReport(out)
	var (
		beside  []*report
		running sync.WaitGroup
	)
	for _, p := range parts {
		name, command, _ := strings.Cut(p, "=")
		name, apart := strings.CutSuffix(name, "&")
		if !apart {
			r.kept(d, name, command, filtered)
			continue
		}
		other := newReport(out)
		beside = append(beside, other)
		running.Go(func() { other.kept(d, name, command, filtered) })
	}
	running.Wait()
	for _, other := range beside {
		r.join(other)
	}
	if filtered && r.passed+r.skipped+len(r.failures) == 0 {
		r.running = "all parts"
		r.fail("no test ran")
	}
	if again.most > 0 && len(r.failures) > 0 {
		r.again(again.most, again.script)
	}
	if strict {
		r.refuseSkips(allowed)
	}
	return r.sum()
}

// pieces is a writer for several goroutines: what one call of Write gives stays together.
type pieces struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *pieces) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(b)
}

// kept runs one part to its end and gives it a row in the diary.
func (r *report) kept(d *diary, name, command string, filtered bool) {
	began, passed, skipped, failed := time.Now(), r.passed, r.skipped, len(r.failures)
	r.part(name, exec.Command("/bin/bash", "-c", command))
	passed, skipped, failed = r.passed-passed, r.skipped-skipped, len(r.failures)-failed
	if passed+skipped+failed == 0 {
		if r.asked && !filtered {
			r.fail("no test ran")
		}
		return
	}
	if err := d.note(name, began, passed, failed, skipped, r.covered); err != nil {
		r.fail("no row in the diary: %v", err)
	}
}

// reasons are the lines of a file without comments.
func reasons(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}
