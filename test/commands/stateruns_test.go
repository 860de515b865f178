package commands

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runFiles are the orchestrations of the lines below.
var runFiles = map[string]string{
	"runs/good.sls": `
one:
  test.nop
two:
  test.succeed_with_changes:
    - name: second
    - require:
      - test: one
three:
  test.nop:
    - onchanges:
      - test: two
four:
  test.show_notification:
    - text: "{{ pillar.get('word', 'no word') }}, {{ saltenv }}, {{ sls }}"
`,
	"runs/bad.sls": `
include:
  - runs.good
fails:
  test.fail_with_changes
after:
  test.nop:
    - require:
      - test: fails
rescue:
  test.succeed_with_changes:
    - onfail:
      - test: fails
warned:
  test.configurable_test_state:
    - warnings: careful
    - comment: |
        first line
        second line
`,
	"runs/hard.sls":    "one:\n  test.fail_without_changes:\n    - failhard: true\ntwo:\n  test.nop\n",
	"runs/loop.sls":    "a:\n  test.nop:\n    - require: [{test: b}]\nb:\n  test.nop:\n    - require: [{test: a}]\n",
	"runs/wrong.sls":   "a:\n  test.nop: x\n5:\n  test.nop\n",
	"runs/yaml.sls":    "a:\n  test.nop:\n   - b\n  - c\n",
	"runs/jinja.sls":   "a:\n  test.nop:\n    - name: {{ nothing.there }}\n",
	"runs/empty.sls":   "# nothing\n",
	"runs/keyword.sls": "a:\n  test.configurable_test_state:\n    - foo: bar\nb:\n  test.nop\n",
	"runs/minions.sls": `
good:
  salt.state:
    - tgt: web-a
    - sls: runs.bad
bad:
  salt.function:
    - name: test.ping
    - tgt: web-a
    - require:
      - salt: good
fine:
  salt.state:
    - tgt: web-b
    - sls: runs.good
`,
}

func writeRuns(t testing.TB, dir string) {
	t.Helper()
	for name, text := range runFiles {
		path := filepath.Join(dir, "srv", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// states masks the times of states in documents.
func (l line) states() line {
	return l.mask(`(["']?duration["']?:\s+)[0-9.]+`,
		"${1}SPAN").mask(`(["']?start_time["']?:\s+)\S*TIME\S*`,
		"${1}TIME").mask(`(?m)(Total run time: ).*`, "${1}SPAN")
}

var logLine = regexp.MustCompile(`(?m)^(# )?\[(ERROR   |CRITICAL)\] `)

// logged is a line of a failing orchestration: Salt's salt-run, which runs it, logs the failure on
// its terminal.
func (l line) logged() line {
	return l.states().mask(`(?s)(?:# )?\[(?:ERROR   |CRITICAL)\] .*\n`,
		"[ERROR   ] LOGGED\n").unlike("Log lines of orchestrations",
		func(theirs, ours result) error {
			if !logLine.MatchString(theirs.stderr) || ours.stderr != "" ||
				ours.stdout != theirs.stdout || ours.code != theirs.code {
				return errors.New("want Salt's output and exit code, and nothing on standard error")
			}
			return nil
		})
}

// stopped is the end of an orchestration with a keyword that a function does not take.
func stopped(text string) func(theirs, ours result) error {
	return func(theirs, ours result) error {
		if !strings.HasPrefix(theirs.stdout, "\nPassed invalid arguments: "+text) ||
			theirs.code != 0 || ours.code != 1 ||
			ours.stdout != "Exception occurred in runner state.orchestrate: "+text+"\n" {
			return errors.New("want an exception with Salt's text")
		}
		return nil
	}
}

func stateRunScenes() []scene {
	var lines []line
	for _, mods := range []string{"runs.good", "runs.loop", "runs.wrong", "runs.empty",
		"runs.nosuch", "runs.good,runs.hard"} {
		lines = append(lines, run("state.orchestrate", mods), run("state.orch", mods, "--out=json"))
	}
	for _, mods := range []string{"runs.bad", "runs.hard", "runs.jinja", "runs.yaml"} {
		lines = append(lines, run("state.orchestrate", mods).logged())
	}
	for _, args := range [][]string{
		{"--out=json"}, {"--out=yaml"}, {"--out=highstate"}, {"--out=nested"}, {"--out=raw"},
		{"--state-output=terse"}, {"--state-output=changes"}, {"--state-output=mixed"},
		{"--state-verbose=False"}, {"--force-color"}, {"--quiet"}, {"exclude=runs.good"},
	} {
		lines = append(lines, run(append([]string{"state.sls", "runs.bad"}, args...)...).logged())
	}
	// Salt's comes with the events, before or after the return
	shown := `^(event|suffix|master1):`
	lines = append(
		lines, run("state.orchestrate", "runs.bad", "test=True"),
		run("state.orchestrate", "runs.good", "test=True", "--out=json"),
		run("state.orchestrate", "runs.good", "pillar={word: told}"),
		run("state.orchestrate", "runs.good", "exclude=[{id: two}]"),
		run("state.orchestrate", "only", "saltenv=nosuch"),
		run("state.orchestrate", "runs.good", "pillarenv=dev"),
		run("state.orchestrate_show_sls", "runs.bad"),
		run("state.orch_show_sls", "runs.bad", "--out=json"),
		run("state.orchestrate_show_sls", "runs.wrong"),
		run("state.orchestrate_single", "fun=test.succeed_with_changes", "name=x").blocks(shown),
		run("state.orchestrate_single", "test.nosuch", "x").blocks(shown).logged(),
		run("state.orchestrate_single", "nothing", "x").blocks(shown),
		run("state.orchestrate_high", "{one: {test: [nop]}}").blocks(shown),
		run("state.pause", "20260101000000000000"),
		run("state.pause", "20260101000000000001", "one", "5"),
		run("state.resume", "20260101000000000000"),
		run("state.rm_pause", "20260101000000000001", "one"),
		run("state.soft_kill", "20260101000000000002"),
		run("state.soft_kill", "20260101000000000003", "one"),
		run("state.orchestrate", "runs.keyword").unlike("Keywords that a state does not take",
			stopped("'foo' is an invalid keyword argument for 'test.configurable_test_state'")),
		run("state.orchestrate", "runs.good", "pillar=5").unlike("Texts of the runner functions",
			ownText("\nPassed invalid arguments: Pillar data must be formatted as a dictionary\n\nUsage:\n\n")),
		run("state.orchestrate").unlike("Texts of the runner functions",
			ownText("\nPassed invalid arguments: orchestrate() missing 1 required positional argument: 'mods'\n\nUsage:\n\n")),
	)
	for i, l := range lines {
		lines[i] = l.states()
	}
	return []scene{
		{name: "46_orchestrate", lines: lines},
		{name: "32_orchestrate_minions", alone: true, lines: []line{
			run("state.orchestrate", "runs.minions").logged(),
			run("state.orchestrate", "runs.minions", "--state-output=terse").logged(),
			run("state.orchestrate", "runs.minions", "--force-color").logged(),
		}},
	}
}
