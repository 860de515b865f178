package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"clustermaster/value"
)

// keyring makes a gpg home with one key and returns a function that encrypts to it.
func keyring(t *testing.T) (home string, encrypt func(string) string) {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("needs gpg; run make test")
	}
	home, err := os.MkdirTemp("", "gpg") // short, because the agent's socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
		os.RemoveAll(home)
	})
	run := func(in string, args ...string) string {
		cmd := exec.Command("gpg", append([]string{"--homedir", home, "--batch", "--yes"},
			args...)...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("gpg %v: %v", args, err)
		}
		return string(out)
	}
	run("", "--passphrase", "", "--quick-gen-key", "test@example.org", "future-default", "default",
		"never")
	return home, func(s string) string {
		return run(s, "--trust-model", "always", "--armor", "--encrypt", "-r", "test@example.org")
	}
}

func TestGPG(t *testing.T) {
	t.Parallel()
	home, encrypt := keyring(t)
	r := newRenderer(t, Options{})
	block := "  " + strings.ReplaceAll(strings.TrimSpace(encrypt("s3cret\n")), "\n", "\n  ")
	text := "#!yaml|gpg\npassword: |\n" + block + "\nlist:\n  - |\n  " + strings.ReplaceAll(block,
		"\n", "\n  ") + "\nplain: text\nn: 1\n"
	opts := object("gpg_keydir", home)
	got, err := r.Render(t.Context(), source("t", text), "jinja|yaml", Context{Opts: opts}, tree{})
	if want := object("password", "s3cret", "list", []any{"s3cret"}, "plain", "text", "n",
		int64(1)); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %#v, %v", got, err)
	}
	byDir := object("conf_file", filepath.Join(home, "master"))
	if err := os.Symlink(home, filepath.Join(home, "gpgkeys")); err != nil {
		t.Fatal(err)
	}
	got, err = r.Render(t.Context(), source("t", "#!jinja|gpg|yaml\n{% set a = 1 %}\n"+
		encrypt("a: 5")), "jinja|yaml", Context{Opts: byDir}, tree{})
	if err != nil || !reflect.DeepEqual(got, object("a", int64(5))) {
		t.Fatalf("text before yaml: %#v, %v", got, err)
	}
	broken := strings.Replace(text, "\n  \n  ", "\n  \n  AAAA", 1)
	_, err = r.Render(t.Context(), source("t", broken), "jinja|yaml", Context{Opts: opts}, tree{})
	if err == nil || !strings.HasPrefix(err.Error(),
		"Could not decrypt a PGP message with the keys of "+home) {
		t.Fatalf("damaged message: %v", err)
	}
	lenient := append(append(value.Map{}, opts...),
		value.Pair{Key: "gpg_decrypt_must_succeed", Value: false})
	got, err = r.Render(t.Context(), source("t", broken), "jinja|yaml", Context{Opts: lenient},
		tree{})
	if m, _ := got.(value.Map); err != nil ||
		!strings.HasPrefix(m.String("password"), "-----BEGIN PGP MESSAGE-----") {
		t.Fatalf("damaged message that may stay: %#v, %v", got, err)
	}
}
