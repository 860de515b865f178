package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clustermaster/test/e2e"
)

// ours are the commands whose lines in pages are checked.
var ours = []string{"clustermaster", "salt", "salt-key", "salt-run", "salt-cp", "salt-master"}

var (
	codeSpan     = regexp.MustCompile("`([^`]+)`")
	betweenCalls = regexp.MustCompile(`\s*(?:&&|\|\||[|;#(]|\s>\s)\s*`)
	functionName = regexp.MustCompile(`^[a-z_]+\.[a-z_]+$`)
	argumentName = regexp.MustCompile(`^[a-z_]+$`)
)

// commandLines are the command lines of a page: those in code spans and in code blocks that begin
// with one of ours, continued lines joined.
func commandLines(page string) []string {
	text := strings.ReplaceAll(page, "\\\n", " ")
	var found []string
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		pieces := codeSpan.FindAllStringSubmatch(line, -1)
		if fenced || strings.HasPrefix(line, "    ") {
			pieces = [][]string{{"", strings.TrimPrefix(strings.TrimSpace(line), "$ ")}}
		}
		for _, p := range pieces {
			for _, command := range betweenCalls.Split(p[1], -1) {
				command = strings.TrimPrefix(command, "sudo ")
				name, _, more := strings.Cut(command, " ")
				if more && slices.Contains(ours, name) {
					found = append(found, command)
				}
			}
		}
	}
	return found
}

// words are the words of a command line, without quotes.
func words(line string) []string {
	var out []string
	for _, w := range regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(line, -1) {
		out = append(out, strings.Trim(w, `'"[]`))
	}
	return out
}

// TestCommandsInPages compares each command line of the pages with what the commands know: their
// subcommands and options, the runner functions and the names of their arguments.
func TestCommandsInPages(t *testing.T) {
	t.Parallel()
	bin := filepath.Dir(e2e.Ours(t).Salt)
	texts := make(map[string]string)
	help := func(words ...string) string {
		key := strings.Join(words, " ")
		if _, asked := texts[key]; !asked {
			out, _ := exec.Command(filepath.Join(bin, words[0]), append(words[1:], "--help")...).CombinedOutput()
			texts[key] = string(out)
		}
		return texts[key]
	}
	b, err := os.ReadFile(filepath.Join(e2e.Root(t), "docs", "runner-functions.md"))
	if err != nil {
		t.Fatal(err)
	}
	functions := make(map[string]string) // to the line with its arguments
	for _, m := range regexp.MustCompile("(?m)^### (\\S+)\n\n```text\n(.*)$").FindAllStringSubmatch(string(b), -1) {
		functions[m[1]] = m[2] + " "
	}
	if len(functions) < 100 {
		t.Fatalf("%d runner functions", len(functions))
	}
	pages, err := filepath.Glob(filepath.Join(e2e.Root(t), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	// Not in the list of functions: a site's own, one that shows an error, one of Salt's in Python,
	// and names that a function takes beside its own.
	others := regexp.MustCompile(`^(mysite\.|nosuch\.|ssh\.cmd$)`)
	takesMore := []string{"fileserver.update", "http.query", "pillar.show_pillar", "salt.cmd",
		"test.arg", "test.raw_arg"}
	checked := 0
	for _, page := range append(pages, filepath.Join(e2e.Root(t), "README.md")) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(b)) {
			checked++
			args := words(line)
			known := []string{args[0]}
			if args[0] == "clustermaster" && len(args) > 1 {
				if !strings.Contains(help(args[0]), "\n  "+args[1]+" ") {
					t.Errorf("%s: %s: no such command", filepath.Base(page), line)
					continue
				}
				known, args = append(known, args[1]), args[1:]
			}
			text, function := help(known...), ""
			for _, arg := range args[1:] {
				name, _, isNamed := strings.Cut(arg, "=")
				switch {
				case strings.HasPrefix(arg, "-") && len(name) > 1:
					option := regexp.MustCompile(`(?m)(^|[\s,])` + regexp.QuoteMeta(name) + `\b`)
					if !option.MatchString(text) {
						t.Errorf("%s: %s: no option %s", filepath.Base(page), line, name)
					}
				case known[0] != "salt-run":
				case function == "" && functionName.MatchString(arg):
					function = arg
					if functions[function] == "" && !others.MatchString(function) {
						t.Errorf("%s: %s: no runner function %s", filepath.Base(page), line, function)
					}
				case isNamed && functions[function] != "" && argumentName.MatchString(name) &&
					!slices.Contains(takesMore, function):
					takes := functions[function]
					if !strings.Contains(takes, " "+name+"=") && !strings.Contains(takes, " "+name+" ") {
						t.Errorf("%s: %s: %s has no argument %s; it is %s", filepath.Base(page), line, function,
							name, takes)
					}
				}
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d command lines were found", checked)
	}
}

// TestEveryCommandHasHelp asks each command of clustermaster for its help.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	program := filepath.Join(filepath.Dir(e2e.Ours(t).Salt), "clustermaster")
	list, err := exec.Command(program, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^  ([a-z-]+)  +[a-z]`).FindAllStringSubmatch(string(list), -1)
	if len(commands) < 12 {
		t.Fatalf("%d commands in\n%s", len(commands), list)
	}
	for _, m := range commands {
		if m[1] == "version" {
			continue
		}
		var stdout, stderr strings.Builder
		c := exec.Command(program, m[1], "--help")
		c.Stdout, c.Stderr = &stdout, &stderr
		if err := c.Run(); err != nil || stderr.Len() > 0 || !strings.HasPrefix(stdout.String(), "Usage: ") {
			t.Errorf("%s --help: %v\n%s\nstandard error: %s", m[1], err, &stdout, &stderr)
		}
		switch m[1] {
		case "status", "members", "watch", "config", "doctor":
			if !strings.Contains(stdout.String(), "64 the") {
				t.Errorf("%s --help does not name all exit codes:\n%s", m[1], &stdout)
			}
		}
	}
}

// TestManualsNeedAFolder: the line says what to do.
func TestManualsNeedAFolder(t *testing.T) {
	t.Parallel()
	program := filepath.Join(filepath.Dir(e2e.Ours(t).Salt), "clustermaster")
	dir := filepath.Join(t.TempDir(), "man")
	out, err := exec.Command(program, "manuals", dir).CombinedOutput()
	if want := "clustermaster: " + dir + " is no folder; make it with mkdir -p\n"; err == nil || string(out) != want {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
}
