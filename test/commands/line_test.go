package commands

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
)

// A scene is one line of the checklist: command lines that run one after the other on both sides.
type scene struct {
	name  string
	lines []line
	// alone marks scenes that change keys or minions, or look at all of them.
	alone bool
	// masterless marks scenes that Salt answers without a master.
	masterless bool
	// together runs all lines at the same time, for lines that wait.
	together bool
	// before prepares both sides; do does what lines can't.
	before, do func(t *testing.T, p *pair)
	// more is what Salt's answers depend on, besides settings.
	more func() string
}

// A line is one command line, and how to compare its output. In arguments DIR is the folder of the
// side's master; $NAME is a text saved by an earlier line or by recent.
type line struct {
	program string
	call
	masks []mask
	order *regexp.Regexp // begins each block; the blocks come in any order
	file  string         // a file with output to be compared too
	save  string         // saves the first job id in the output under this name
	// in the output once the subject of the question has begun: the line is asked again until then
	told    string
	differs *difference
}

func salt(args ...string) line { return line{program: "salt", call: call{args: args}} }
func key(args ...string) line  { return line{program: "salt-key", call: call{args: args}} }
func cp(args ...string) line   { return line{program: "salt-cp", call: call{args: args}} }

// run is a line of salt-run. Salt takes a second for the master's grains, which no runner here
// reads.
func run(args ...string) line {
	return line{program: "salt-run", call: call{args: append([]string{"--skip-grains"}, args...)}}
}
func (l line) within(env ...string) line { l.env = append(slices.Clip(l.env), env...); return l }
func (l line) in(text string) line       { l.stdin = text; return l }
func (l line) saves(name string) line    { l.save = name; return l }
func (l line) writes(path string) line   { l.file = path; return l }
func (l line) until(told string) line    { l.told = told; return l }
func (l line) blocks(begin string) line  { l.order = regexp.MustCompile(begin); return l }
func (l line) anyOrder() line            { return l.blocks(`^(\x1b\[[0-9;]*m)?['{ ]*"?(web-|ghost)`) }
func (l line) mask(form, to string) line {
	l.masks = append(slices.Clip(l.masks), mask{regexp.MustCompile(form), to})
	return l
}

// A difference is a line for which ours differs on purpose.
type difference struct {
	title string // of the entry in docs/differences.md
	check func(theirs, ours result) error
}

// unlike names the title under which docs/differences.md explains the difference. check tests what
// ours does.
func (l line) unlike(title string, check func(theirs, ours result) error) line {
	l.differs = &difference{title, check}
	return l
}

// prints checks that ours prints exactly these texts, masked, on standard output and error.
func prints(stdout, stderr string, code int) func(theirs, ours result) error {
	return func(_, ours result) error {
		if ours.stdout != stdout || ours.stderr != stderr || ours.code != code {
			return fmt.Errorf("want exit %d\nstdout:\n%s\nstderr:\n%s", code, stdout, stderr)
		}
		return nil
	}
}

// begins checks how ours begins on standard output and error.
func begins(stdout, stderr string, code int) func(theirs, ours result) error {
	return func(_, ours result) error {
		if !strings.HasPrefix(ours.stdout, stdout) || !strings.HasPrefix(ours.stderr, stderr) ||
			ours.code != code {
			return fmt.Errorf("want exit %d, stdout that begins\n%s\nand stderr that begins\n%s",
				code, stdout, stderr)
		}
		return nil
	}
}

// A mask hides what can't be equal.
type mask struct {
	form *regexp.Regexp
	to   string
}

// jobID is a job id, also as unique_jid makes them.
var jobID = regexp.MustCompile(`\b20[0-9]{18}(_[0-9]+)?\b`)

var masks = []mask{
	{jobID, "JID"},
	{regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+\.[0-9]{6}(\+00:00)?`), "STAMP"},
	{regexp.MustCompile(`[0-9]{4}, [A-Z][a-z]{2} [0-9]{2} [0-9:]+\.[0-9]{6}`), "START"},
	{regexp.MustCompile(`\b[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}`), "TIME"},
	{regexp.MustCompile(` +[0-9]+\.[0-9]+ m?s\b`), " SPAN"},
	{regexp.MustCompile(`("ts": )[0-9]+`), "${1}SECONDS"},
	{regexp.MustCompile(`(?m)^unclosed .*\n`), ""}, // Python's own complaints about sockets
	{regexp.MustCompile(`Traceback \(most recent call last\):\n(?:[ \t].*\n)*`), "TRACEBACK\n"},
	// in JSON
	{regexp.MustCompile(`Traceback \(most recent call last\):(?:\\n (?:[^\\\n]|\\[^n])*)+\\n`),
		"TRACEBACK "},
	{regexp.MustCompile(`(?m)^\S+/python3\.\d+/\S+:\d+: \w+Warning: .*\n(?: .*\n)?`), ""},
}

// hide masks a text of a side.
func (l line) hide(s *side, text string) string {
	text = s.unnamed(text)
	for _, m := range append(slices.Clip(masks), l.masks...) {
		text = m.form.ReplaceAllString(text, m.to)
	}
	return text
}

var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// sorted puts blocks into one order. A block includes the lines that follow, if they are indented
// or close a bracket.
func (l line) sorted(text string) string {
	if l.order == nil {
		return text
	}
	var out, blocks []string
	flush := func() {
		slices.Sort(blocks)
		out, blocks = append(out, blocks...), nil
	}
	for _, s := range strings.SplitAfter(text, "\n") {
		switch {
		case l.order.MatchString(s):
			blocks = append(blocks, s)
		case len(blocks) > 0 && strings.IndexAny(s, " \t}]") == 0:
			blocks[len(blocks)-1] += s
		default:
			flush()
			out = append(out, s)
		}
	}
	flush()
	return strings.Join(out, "")
}

// on runs the line on one side and masks the result.
func (l line) on(t testing.TB, s *side) result {
	t.Helper()
	r := s.call(t, l.program, l.call)
	for end := time.Now().Add(commandLimit); !strings.Contains(r.stdout, l.told) &&
		time.Now().Before(end); {
		r = s.call(t, l.program, l.call)
	}
	if l.save != "" {
		jid := jobID.FindString(r.stdout + r.stderr)
		if jid == "" {
			t.Errorf("%s: no job id in\n%v", s.kind, r)
		}
		s.keep(l.save, jid)
	}
	if l.file != "" {
		b, err := os.ReadFile(s.fill(l.file))
		if err != nil {
			t.Error(err)
		}
		if !utf8.Valid(b) {
			b = fmt.Appendf(nil, "%d bytes, SHA-256 %x\n", len(b), sha256.Sum256(b))
		}
		r.stdout += "in the file:\n" + string(b)
	}
	r.stdout = trailing.ReplaceAllString(l.sorted(l.hide(s, r.stdout)), "")
	r.stderr = trailing.ReplaceAllString(l.hide(s, r.stderr), "")
	return r
}

// String is the line with everything that its answer depends on.
func (l line) String() string {
	text := fmt.Sprintf("%s %q", l.program, l.args)
	if l.stdin != "" {
		text += fmt.Sprintf(" in %q", l.stdin)
	}
	if len(l.env) > 0 {
		text += fmt.Sprintf(" env %q", l.env)
	}
	if l.call.unread {
		text += " unread"
	}
	masked := ""
	for _, m := range l.masks {
		masked += fmt.Sprintf(" mask %q %q", m.form, m.to)
	}
	if l.order != nil {
		masked += fmt.Sprintf(" blocks %q", l.order)
	}
	if masked != "" {
		text += fmt.Sprintf(" masked %.4x", sha256.Sum256([]byte(masked)))
	}
	if l.file != "" {
		text += " writes " + l.file
	}
	return text
}

// ask has the existing sides answer a line, side by side. If there is no Salt side, it takes Salt's
// answer from the kept ones.
func (p *pair) ask(t *testing.T, turn int, l line, on func(s *side) result) (theirs, ours result) {
	t.Helper()
	var salts func() said
	if p.theirs != nil {
		salts = func() said { return on(p.theirs).said() }
	}
	var wg sync.WaitGroup
	wg.Go(func() { ours = on(p.ours) })
	theirs = p.answers.Salt(t, turn, l.String(), salts).result()
	wg.Wait()
	return theirs, ours
}

// compare runs the line on both sides.
func (p *pair) compare(t *testing.T, l line) {
	t.Helper()
	p.compareAt(t, p.answers.Turn(), l)
}

func (p *pair) compareAt(t *testing.T, turn int, l line) {
	t.Helper()
	theirs, ours := p.ask(t, turn, l, func(s *side) result { return l.on(t, s) })
	same := theirs.equal(ours)
	switch {
	case l.differs == nil && !same:
		t.Errorf("%s %q\n--- Salt: %v\n--- ours: %v", l.program, l.args, theirs, ours)
	case l.differs != nil && same:
		t.Errorf("%s %q is said to differ (%s) and doesn't: %v", l.program, l.args,
			l.differs.title, ours)
	case l.differs != nil:
		if err := l.differs.check(theirs, ours); err != nil {
			t.Errorf("%s %q: %v\n--- Salt: %v\n--- ours: %v", l.program, l.args, err, theirs, ours)
		}
	}
}

// play runs a scene.
func (p *pair) play(t *testing.T, c scene) {
	t.Helper()
	scene := *p
	p = &scene
	bound := settings()
	if c.more != nil {
		bound += c.more()
	}
	p.answers = answers.Open[said](t, answersOf(c.name), reference, bound, *update)
	if c.before != nil {
		c.before(t, p)
	}
	var wg sync.WaitGroup
	for _, l := range c.lines {
		if !c.together {
			p.compare(t, l)
			continue
		}
		turn := p.answers.Turn()
		wg.Go(func() { p.compareAt(t, turn, l) })
	}
	wg.Wait()
	if c.do != nil {
		c.do(t, p)
	}
}

// notes are the texts saved by a side's lines, by name.
type notes struct {
	mu   sync.Mutex // guards text
	text map[string]string
}

func (n *notes) keep(name, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text == nil {
		n.text = map[string]string{}
	}
	n.text[name] = text
}

// filled is a call whose every text is filled.
func (s *side) filled(c call) call {
	all := func(texts []string) (out []string) {
		for _, text := range texts {
			out = append(out, s.fill(text))
		}
		return out
	}
	return call{args: all(c.args), stdin: s.fill(c.stdin), env: all(c.env), unread: c.unread}
}

// fill puts the saved texts and the side's folder into an argument.
func (s *side) fill(arg string) string {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	for name, text := range s.notes.text {
		arg = strings.ReplaceAll(arg, "$"+name, text)
	}
	return strings.ReplaceAll(arg, "DIR", s.Dir)
}

// recent saves job ids that both masters still keep: $JUST and six digits is an id of two hours
// ago; $BEFORE and $AFTER are times around it.
func (s *side) recent() {
	at := time.Now().Add(-2 * time.Hour)
	const clock = "2006, Jan 02 15:04"
	s.keep("JUST", at.Format("20060102150405"))
	s.keep("BEFORE", at.Add(-5*time.Minute).Format(clock))
	s.keep("AFTER", at.Add(5*time.Minute).Format(clock))
}

func (s *side) keep(name, text string) { s.notes.keep(name, text) }

// TestDifferencesAreWritten reads docs/differences.md: each line that differs on purpose has its
// title in a section Commands.
func TestDifferencesAreWritten(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(e2e.Root(t), "docs", "differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for _, part := range strings.Split(string(b), "\n### Commands\n")[1:] {
		part, _, _ = strings.Cut(part, "\n#")
		section += part
	}
	if section == "" {
		t.Fatal("docs/differences.md has no section Commands")
	}
	for _, c := range slices.Concat(scenes(), sshScenes()) {
		for _, l := range c.lines {
			if l.differs != nil && !strings.Contains(section, "**"+l.differs.title+"**") {
				t.Errorf("%s: docs/differences.md lacks **%s**", c.name, l.differs.title)
			}
		}
	}
}

// TestDifferencesAreGrouped reads docs/differences.md: what may break something comes first.
func TestDifferencesAreGrouped(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(e2e.Root(t), "docs", "differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for l := range strings.Lines(string(b)) {
		if title, ok := strings.CutPrefix(l, "## "); ok {
			got = append(got, strings.TrimSpace(title))
		}
	}
	want := []string{"May break something you use", "Safer",
		"Cosmetic, or works where it fails in Salt"}
	if !slices.Equal(got, want) {
		t.Errorf("docs/differences.md has the parts %q, want %q", got, want)
	}
}
