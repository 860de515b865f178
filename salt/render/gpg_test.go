package render

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"clustermaster/value"
)

// keyring makes a gpg home with one key of an algorithm and returns a function that encrypts to it.
func keyring(t *testing.T, algorithm string) (home string, encrypt func(string) string) {
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
	run("", "--passphrase", "", "--quick-gen-key", "test@example.org", algorithm, "default",
		"never")
	return home, func(s string) string {
		return run(s, "--trust-model", "always", "--armor", "--encrypt", "-r", "test@example.org")
	}
}

func TestGPG(t *testing.T) {
	t.Parallel()
	home, encrypt := keyring(t, "future-default")
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

// TestManyDecryptAtOnce: the agent of gpg has little memory for secrets, and refuses messages when
// too many are decrypted at once, as when all minions ask for their pillars.
func TestManyDecryptAtOnce(t *testing.T) {
	t.Parallel()
	home, encrypt := keyring(t, "default") // RSA
	begin, rest, _ := strings.Cut(encrypt("s3cret"), "\n")
	opts := object("gpg_keydir", home)
	var all errgroup.Group
	for n := range 500 {
		all.Go(func() error {
			message := fmt.Sprintf("%s\nComment: %d\n%s", begin, n, rest) // all differ
			got, err := decryptAll(t.Context(), message, opts)
			if err == nil && got != "s3cret" {
				err = fmt.Errorf("got %q", got)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

// TestSharedDecryption: minions that ask for one message at the same time share a process of gpg;
// one that gives up spoils nothing for the others, and the next one starts anew.
func TestSharedDecryption(t *testing.T) {
	t.Parallel()
	home, encrypt := keyring(t, "future-default")
	begun, gate := filepath.Join(home, "begun"), filepath.Join(home, "gate")
	for _, pipe := range []string{begun, gate} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	exe := filepath.Join(home, "slow-gpg")
	script := fmt.Sprintf("#!/bin/sh\n: > %s\ncat %s\nexec gpg \"$@\"\n", begun, gate)
	if err := os.WriteFile(exe, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	begins := func() { // waits for a process
		if _, err := os.ReadFile(begun); err != nil {
			t.Error(err)
		}
	}
	goes := func() { // lets it go on
		if err := os.WriteFile(gate, nil, 0); err != nil {
			t.Error(err)
		}
	}
	g, message := gpg{exe: exe, home: home, must: true}, encrypt("s3cret")
	impatient, cancel := context.WithCancel(t.Context())
	var first, all sync.WaitGroup
	first.Go(func() {
		if _, err := g.decrypt(impatient, message); !errors.Is(err, context.Canceled) {
			t.Errorf("one that gives up: %v", err)
		}
	})
	begins()
	const others = 50
	right := func() {
		if got, err := g.decrypt(t.Context(), message); err != nil || got != "s3cret" {
			t.Errorf("%q, %v", got, err)
		}
	}
	for range others {
		all.Go(right)
	}
	for waiting("TestSharedDecryption.func") < others+1 {
		runtime.Gosched()
	}
	cancel()
	first.Wait()
	goes()
	all.Wait() // a second process would wait for ever
	all.Go(right)
	begins()
	goes()
	all.Wait()
}

// waiting counts the goroutines of a function that wait for a decryption.
func waiting(of string) (n int) {
	stacks := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if first, rest, _ := strings.Cut(stack, "\n"); strings.Contains(first, "[select") &&
			strings.Contains(rest, "gpg.decrypt(") && strings.Contains(rest, of) {
			n++
		}
	}
	return n
}
