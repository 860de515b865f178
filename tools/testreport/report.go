package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// mostOutput bounds the kept output of one test: its end, and the beginning of a crash.
const mostOutput = 256 << 10

// event is one line of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

// report sums up all parts. Only one goroutine may use it.
type report struct {
	out             io.Writer
	passed, skipped int
	failures        []failure
	unsteady        []failure           // failed beside others, but passed alone
	why             map[string][]string // reason to what was skipped or left out
	running         string              // the part
	covered         string              // the part's line about coverage, the share only
	asked           bool                // go test spoke of a package of the part
	packages        map[string]*pkg     // of the part, that have not ended
}

// failure is the failed tests of a package, or something else that text describes.
type failure struct {
	part, pkg, test string
	text            string
	sure            bool // another run could not show the opposite: a race, or tests after a crash that did not run
}

func (f failure) String() string {
	if f.test == "" {
		return f.part + ": " + f.text
	}
	return f.part + ": " + f.pkg + " " + f.test
}

type pkg struct {
	tests   map[string]*test
	names   []string // in order of their start
	output  tail     // of no test
	passed  int
	skips   int
	failed  []string
	unended []string
	races   tail // reports of the race detector, in whichever test
	racing  bool // within such a report
}

// race keeps a line of a report of the race detector, also if the test with that output passes.
func (p *pkg) race(line string) {
	p.racing = p.racing || strings.Contains(line, "WARNING: DATA RACE")
	if !p.racing {
		return
	}
	p.races.add(line)
	p.racing = !strings.HasPrefix(strings.TrimSpace(line), "======")
}

type test struct {
	output tail
	parent bool // has subtests, which count instead
	failed bool
	ended  bool
}

// tail keeps the end of what is written to it, and what came before a crash with its first stacks:
// the first line of a crash says what happened.
type tail struct {
	b       []byte
	crashed bool
	at      int // where the crash begins in b
}

func (t *tail) add(line string) {
	const cut = "... cut\n"
	if !t.crashed && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
		t.crashed, t.at = true, len(t.b)
	}
	switch {
	case !t.crashed:
		t.b = append(t.b, line...)
		if len(t.b) > 2*mostOutput {
			t.b = append([]byte(cut), t.b[len(t.b)-mostOutput:]...)
		}
	case len(t.b) <= 3*mostOutput:
		t.b = append(t.b, line...)
		if len(t.b) > 3*mostOutput {
			t.b = append(t.b, cut...)
		}
	}
}

// crash returns the part that begins with the crash, nil if there was none.
func (t *tail) crash() []byte {
	if !t.crashed {
		return nil
	}
	return t.b[t.at:]
}

func newReport(out io.Writer) *report {
	return &report{out: out, why: map[string][]string{}}
}

// part runs one command to its end.
func (r *report) part(name string, cmd *exec.Cmd) {
	before := len(r.failures)
	r.running, r.packages, r.covered, r.asked = name, map[string]*pkg{}, "", false
	cmd.Stderr, cmd.Stdin = os.Stderr, nil
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.fail("not started: %v", err)
		return
	}
	lines := bufio.NewReader(stdout)
	for err == nil {
		var line []byte
		line, err = lines.ReadBytes('\n')
		r.line(line)
	}
	err = cmd.Wait()
	for _, name := range slices.Sorted(maps.Keys(r.packages)) {
		r.packages[name].output.add("the test program did not end\n")
		r.endFailed(name, "")
	}
	if err != nil && len(r.failures) == before {
		r.fail("%v, and no test failed", err)
	}
}

func (r *report) fail(format string, args ...any) {
	r.failures = append(r.failures, failure{part: r.running, text: fmt.Sprintf(format, args...)})
}

// leftOut matches a line about something left out, also as testing.T.Log writes it.
var leftOut = regexp.MustCompile(`^\s*(?:\S+\.go:\d+: )?left out: (.+)`)

// What a script says of its part in a line of its own.
const (
	failedLine  = "failed: "
	coveredLine = "coverage of the program: "
)

func (r *report) line(line []byte) {
	var e event
	if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &e) != nil || e.Action == "" {
		r.out.Write(line)
		r.note(string(line), r.running)
		text := strings.TrimSpace(string(line))
		if why, ok := strings.CutPrefix(text, failedLine); ok {
			r.fail("%s", why)
		}
		if share, ok := strings.CutPrefix(text, coveredLine); ok {
			r.covered = share
		}
		return
	}
	switch {
	case e.Action == "build-output":
		io.WriteString(r.out, e.Output)
	case e.Package == "": // build-fail: the package reports it too
	case e.Test == "":
		r.packageEvent(e)
	default:
		r.testEvent(e)
	}
}

func (r *report) note(line, where string) {
	if m := leftOut.FindStringSubmatch(line); m != nil {
		r.why[m[1]] = append(r.why[m[1]], where)
	}
}

func (r *report) open(name string) *pkg {
	r.asked = true
	p, ok := r.packages[name]
	if !ok {
		p = &pkg{tests: map[string]*test{}}
		r.packages[name] = p
	}
	return p
}

func (r *report) packageEvent(e event) {
	p := r.open(e.Package)
	switch e.Action {
	case "output":
		p.output.add(e.Output)
		p.race(e.Output)
		r.note(e.Output, e.Package)
	case "skip": // the package has no tests
		delete(r.packages, e.Package)
	case "pass":
		delete(r.packages, e.Package)
		said := fmt.Sprintf("ok  \t%s\t%.1fs\t%d passed", e.Package, e.Elapsed, p.passed)
		if p.skips > 0 {
			said += fmt.Sprintf(", %d skipped", p.skips)
		}
		io.WriteString(r.out, said+"\n")
		r.passed += p.passed
	case "fail":
		r.endFailed(e.Package, e.FailedBuild)
	}
}

func (r *report) testEvent(e event) {
	p := r.open(e.Package)
	t, ok := p.tests[e.Test]
	if !ok {
		t = &test{}
		p.tests[e.Test] = t
		p.names = append(p.names, e.Test)
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 && p.tests[e.Test[:i]] != nil {
			p.tests[e.Test[:i]].parent = true
		}
	}
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			t.output.add(e.Output)
		}
		p.race(e.Output)
		r.note(e.Output, e.Package+" "+e.Test)
		return
	case "pass":
		if !t.parent {
			p.passed++
		}
	case "skip":
		p.skips++
		r.skipped++
		reason := skipReason(string(t.output.b))
		r.why[reason] = append(r.why[reason], e.Package+" "+e.Test)
	case "fail":
		t.failed, t.ended = true, true
		if !t.parent || !slices.ContainsFunc(p.failed,
			func(f string) bool { return strings.HasPrefix(f, e.Test+"/") }) {
			p.failed = append(p.failed, e.Test)
		}
		return
	default:
		return
	}
	t.ended = true
	t.output.b = t.output.crash()
}

// skipReason returns the test's output before the line that reports the skip.
func skipReason(output string) string {
	said, _, _ := strings.Cut(output, "--- SKIP")
	said = strings.TrimSpace(said)
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = strings.TrimSpace(said[i:])
	}
	if _, text, ok := strings.Cut(said, ".go:"); ok {
		if _, text, ok = strings.Cut(text, ": "); ok {
			return text
		}
	}
	return "no reason given"
}

// endFailed prints the output of a failed package and its failed tests.
func (r *report) endFailed(name, build string) {
	p := r.open(name)
	delete(r.packages, name)
	r.passed += p.passed
	var said bytes.Buffer // in one piece, though others write too
	sure := len(p.races.b) > 0 || p.output.crashed
	for _, n := range p.names {
		t := p.tests[n]
		sure = sure || t.output.crashed
		switch {
		case !t.ended && !t.parent:
			fmt.Fprintf(&said, "--- FAIL: %s (did not end)\n%s", n, t.output.b)
			p.unended = append(p.unended, n+" (did not end)")
		default: // of a test that passed only a crash, which Go adds to the test that spoke last
			said.Write(t.output.b)
		}
	}
	for line := range bytes.Lines(p.output.b) {
		if !bytes.HasPrefix(line, []byte("FAIL")) {
			said.Write(line)
		}
	}
	said.Write(p.races.b)
	fmt.Fprintf(&said, "FAIL\t%s\t%d passed, %d failed\n", name, p.passed,
		len(p.failed)+len(p.unended))
	r.out.Write(said.Bytes())
	for _, f := range p.failed {
		r.failures = append(r.failures, failure{part: r.running, pkg: name, test: f, sure: sure})
	}
	for _, f := range p.unended {
		r.fail("%s %s", name, f)
	}
	switch {
	case build != "":
		r.fail("%s does not build", name)
	case len(p.failed) == 0 && len(p.unended) == 0:
		r.fail("%s failed outside of its tests", name)
	}
}

// join adds what another report counted.
func (r *report) join(other *report) {
	r.passed += other.passed
	r.skipped += other.skipped
	r.failures = append(r.failures, other.failures...)
	for reason, what := range other.why {
		r.why[reason] = append(r.why[reason], what...)
	}
}

// refuseSkips makes each reason that is not among the allowed ones a failure.
func (r *report) refuseSkips(allowed []string) {
	r.running = "CI"
	for _, reason := range slices.Sorted(maps.Keys(r.why)) {
		if !slices.Contains(allowed, reason) {
			r.fail("skipped or left out: %s", reason)
		}
	}
}

// again runs failed tests once more, each with its subtests alone. It does so only if there are at
// most most of them, none in a package that raced or crashed, and no other failure. Tests that pass
// then are unsteady.
func (r *report) again(most int, script string) {
	type whole struct{ pkg, test string }
	tests := map[whole][]failure{}
	for _, f := range r.failures {
		if f.test == "" || f.sure {
			return
		}
		top, _, _ := strings.Cut(f.test, "/")
		tests[whole{f.pkg, top}] = append(tests[whole{f.pkg, top}], f)
	}
	if len(tests) > most {
		return
	}
	r.failures = nil
	for w, first := range tests {
		fmt.Fprintf(r.out, "\n%s %s failed; it runs again, alone\n", w.pkg, w.test)
		before, passed := len(r.failures), r.passed
		r.part("alone", exec.Command(script, w.pkg, "^"+w.test+"$"))
		if len(r.failures) == before && r.passed > passed {
			r.unsteady = append(r.unsteady, first...)
			continue
		}
		r.failures = append(r.failures, first...)
	}
}

// sum prints the end of the report and returns the exit code.
func (r *report) sum() int {
	if len(r.why) > 0 {
		fmt.Fprintln(r.out, "\nskipped or left out:")
	}
	for _, reason := range slices.Sorted(maps.Keys(r.why)) {
		fmt.Fprintln(r.out, "  "+reason)
		const most = 5
		what := slices.Compact(slices.Sorted(slices.Values(r.why[reason])))
		for _, w := range what[:min(most, len(what))] {
			fmt.Fprintln(r.out, "      "+w)
		}
		if len(what) > most {
			fmt.Fprintf(r.out, "      and %d more\n", len(what)-most)
		}
	}
	if len(r.failures) > 0 {
		fmt.Fprintln(r.out, "\nfailed:")
	}
	for _, f := range r.failures {
		fmt.Fprintln(r.out, "  "+f.String())
	}
	if len(r.unsteady) > 0 {
		fmt.Fprintln(r.out, "\nunsteady, to be mended (failed above, passed alone):")
	}
	for _, f := range r.unsteady {
		fmt.Fprintln(r.out, "  "+f.String())
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped", r.passed, len(r.failures), r.skipped)
	if len(r.unsteady) > 0 {
		fmt.Fprintf(r.out, ", %d unsteady", len(r.unsteady))
	}
	fmt.Fprintln(r.out)
	if len(r.failures) > 0 {
		return 1
	}
	return 0
}
