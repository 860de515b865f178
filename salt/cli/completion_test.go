package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func completion(t *testing.T, shell string) string {
	t.Helper()
	var out strings.Builder
	if code := Completion([]string{shell}, Env{Stdout: &out, Stderr: &out}, Program{
		Name: "clustermaster", Usage: "COMMAND", Words: []string{"dev", "init"},
		Options: []Option{{Names: "-h --help", Help: "Help."}},
	}); code != ExitOK {
		t.Fatalf("%s: exit %d\n%s", shell, code, out.String())
	}
	return out.String()
}

// TestBashCompletes runs the script in a real bash.
func TestBashCompletes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "completion")
	if err := os.WriteFile(file, []byte(completion(t, "bash")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ words, want string }{
		{"salt --prev", "--preview-target"},
		{"salt --out js", "json"},
		{"salt --out = js", "json"},
		{"salt -l warn", "warning"},
		{"salt-key -l acc", "accepted"},
		{"salt-key --accept-", "--accept-all"},
		{"salt-run --async", "--async"},
		{"clustermaster in", "init"},
		{"clustermaster --h", "--help"},
		{"salt-cp --chun", "--chunked"},
		{"salt --state-output ter", "terse terse_id"},
	} {
		fields := strings.Fields(tt.words)
		script := `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); $(complete -p "$1" | sed 's/.*-F \([^ ]*\) .*/\1/'); echo "${COMPREPLY[@]}"`
		out, err := exec.Command("bash",
			append([]string{"-c", script, file}, fields...)...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
			t.Errorf("%s is completed to %q, want %q (error %v)", tt.words, got, tt.want, err)
		}
	}
}

// TestCompletionHasEveryOption: zsh and fish know each long option of each command.
func TestCompletionHasEveryOption(t *testing.T) {
	t.Parallel()
	zsh, fish := completion(t, "zsh"), completion(t, "fish")
	for _, p := range completed(nil) {
		_, part, _ := strings.Cut(zsh, "\n"+p.prog+")\n")
		part, _, _ = strings.Cut(part, ";;")
		for _, o := range p.options {
			for _, name := range strings.Fields(o.names) {
				if !strings.Contains(part, "'"+name+"[") && !strings.Contains(part, "'"+name+"=[") {
					t.Errorf("zsh: %s lacks %s", p.prog, name)
				}
				long, ok := strings.CutPrefix(name, "--")
				if ok && !strings.Contains(fish, "complete -c "+p.prog+" ") || ok &&
					!strings.Contains(fish, " -l "+long+" ") {
					t.Errorf("fish: %s lacks %s", p.prog, name)
				}
			}
		}
	}
	var errs strings.Builder
	if code := Completion([]string{"csh"}, Env{Stderr: &errs}); code != ExitUsage ||
		!strings.Contains(errs.String(), "clustermaster completion zsh > ") {
		t.Errorf("csh: exit %d\n%s", code, errs.String())
	}
}
