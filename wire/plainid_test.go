package wire

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlainID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"web1": true, "web-1.example.org": true, "a@b:c_d": true, "0": true, ".hidden": true,
		"": false, "-x": false, "a b": false, "a;b": false, "a*": false, "a\nb": false, "ä": false,
		"a%s": false, "a$b": false, "a'b": false, "a/b": false, "a\\b": false, "a\x7f": false,
	} {
		if got := PlainID(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
		quoted, err := QuotedID(id)
		if want && (quoted != id || err != nil) || !want && quoted == id {
			t.Errorf("%q is quoted as %q, %v", id, quoted, err)
		}
	}
}

// unusual are ids that shells would read: what each would do is leave a file "pwned".
var unusual = []string{
	"$(touch pwned)", "`touch pwned`", ";touch pwned;", "|touch pwned", "&touch pwned&",
	"';touch pwned;'", `";touch pwned;"`, "'$(touch pwned)'", `"$(touch pwned)"`,
	">pwned", "a b", "*", "?", "[a-z]*", "~", "~root", "$HOME", "${IFS}x", "!!", "a'b", `a"b`, "#x",
	"a #x", "ä", "%s", "%s;touch pwned", "(touch pwned)", "{a,b}", "=x", "a=b c",
}

// TestCommandFor gives command lines with unusual ids to a real shell: the program that the
// operator named gets the id as it is, and nothing else runs.
func TestCommandFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	told := filepath.Join(dir, "told")
	if err := os.WriteFile(told,
		[]byte("#!/bin/sh\nfor a in \"$@\"; do printf '<%s>' \"$a\"; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		if _, err := os.Stat(shell); err != nil {
			continue
		}
		for _, id := range unusual {
			for _, line := range []struct{ command, want string }{
				{told + " %s", "<ID>"}, {told + " '%s'", "<ID>"}, {told + ` "%s"`, "<ID>"},
				{told + " --id=%s x", "<--id=ID><x>"},
				{told + ` "--id=%s" '%s.yml'`, "<--id=ID><ID.yml>"},
				{told + ` a"%s"b'%s'c%s`, "<aIDbIDcID>"}, {told + " %s | cat; true", "<ID>"},
				{told + ` it\'s %s`, "<it's><ID>"}, {told + ` 'a b' "c d" %s`, "<a b><c d><ID>"},
			} {
				made, err := CommandFor(line.command, id)
				if err != nil {
					t.Errorf("%s for %q: %v", line.command, id, err)
					continue
				}
				cmd := exec.Command(shell, "-c", made)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				if want := strings.ReplaceAll(line.want, "ID", id); string(out) != want ||
					err != nil {
					t.Errorf("%s %s for %q, as %s: %s, %v, want %s", shell, line.command, id, made,
						out, err, want)
				}
			}
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
}

func TestCommandForRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ command, id string }{
		{"x %s", "-rf"}, {"x '%s'", "-rf"}, {`x ""%s`, "-rf"}, {"x %s", "a\nb"}, {"x %s", "a\x1bb"},
		{"x `y %s`", "a b"}, {"x $(y %s)", "a b"}, {`x "$(y "%s")"`, "a b"},
		{"x <<E\n%s\nE", "a b"},
		{`sh -c "y %s"`, "a b"}, {"sh -c 'y %s'", "a b"}, {"sh -c %s", "a b"},
		{"ssh host y %s", "a b"}, {"eval y %s", "a b"}, {"/bin/su x -c %s", "a b"},
		{`y "a %s`, "a b"}, {`y "b; %s"`, "a b"},
		{"x ${y:-%s}", "a b"}, {"x # %s", "a b"},
	} {
		if got, err := CommandFor(tt.command, tt.id); err == nil {
			t.Errorf("%s for %q: %s", tt.command, tt.id, got)
		}
		if got, err := CommandFor(tt.command, "web-1"); err != nil ||
			got != strings.ReplaceAll(tt.command, "%s", "web-1") {
			t.Errorf("%s for a plain id: %s, %v", tt.command, got, err)
		}
	}
	if got, err := CommandFor("x --id=%s", "-rf"); err != nil || got != "x --id=-rf" {
		t.Errorf("within a word: %s, %v", got, err)
	}
}
