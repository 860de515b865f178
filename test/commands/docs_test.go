package commands

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestDocs runs the console blocks of the docs on a playground of three masters, and compares the
// output.
func TestDocs(t *testing.T) {
	t.Parallel()
	own := filepath.Dir(e2e.Ours(t).Salt)
	dir := e2e.Folder(t)
	tour := &e2e.Process{Name: "clustermaster dev", Output: filepath.Join(dir, "dev.log")}
	e2e.ShowOnFailure(t, tour.Output)
	tour.Start(t, filepath.Join(own, "clustermaster"), "dev", "--dir", filepath.Join(dir, "dev"),
		"--minions", "3")
	t.Cleanup(func() {
		tour.Signal(t, syscall.SIGTERM) // it ends its masters
		if _, err := tour.Wait(20 * time.Second); err != nil {
			t.Error(err)
		}
	})
	e2e.Eventually(t, 120*time.Second, "the end of the tour", func() error {
		if b, err := os.ReadFile(tour.Output); err != nil ||
			!strings.Contains(string(b), "Go on playing") {
			return fmt.Errorf("not there: %w", err)
		}
		return nil
	})
	env := append(os.Environ(), "PATH="+own+":"+os.Getenv("PATH"),
		"SALT_CONFIG_DIR="+filepath.Join(dir, "dev", "m1"))
	for _, name := range []string{"README.md", "docs/upgrade.md", "docs/commands.md",
		"docs/operations.md"} {
		b, err := os.ReadFile(filepath.Join(e2e.Root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		steps := shown(string(b))
		if len(steps) == 0 {
			t.Errorf("%s shows no commands", name)
		}
		for _, s := range steps {
			cmd := exec.Command("bash", "-c", s.command)
			cmd.Env = env
			out, err := cmd.Output()
			if got := trailing.ReplaceAllString(string(out), ""); err != nil || s.output != "" &&
				!s.matches(got) {
				t.Errorf("%s: $ %s\n%s--- shown as\n%s(error %v)", name, s.command, got,
					s.output, err)
			}
		}
	}
	tryPages(t, env)
}

// step is a command of a console block and the output that follows it. "" is not compared.
type step struct{ command, output string }

var block = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// shown lists the steps of all console blocks of a text.
func shown(text string) []step {
	var steps []step
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		for _, l := range strings.SplitAfter(m[1], "\n") {
			if command, ok := strings.CutPrefix(l, "$ "); ok {
				steps = append(steps, step{command: strings.TrimSuffix(command, "\n")})
			} else if len(steps) > 0 {
				steps[len(steps)-1].output += l
			}
		}
	}
	return steps
}

// matches compares an output with the one shown, in which ... stands for any text within a line.
func (s step) matches(got string) bool {
	form := strings.ReplaceAll(regexp.QuoteMeta(s.output), regexp.QuoteMeta("..."), ".*")
	return regexp.MustCompile(`\A` + form + `\z`).MatchString(got)
}
