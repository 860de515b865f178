package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"clustermaster/salt/gather"
)

// TestBinary picks a command by the program's name or its first argument.
func TestBinary(t *testing.T) {
	t.Parallel()
	var got []string
	b := Binary{
		Name: "tool", Version: "7", About: "A tool.", Examples: []string{"tool key"},
		Commands: []Command{{"key", "list keys", func(_ context.Context, args []string) int {
			got = args
			return 3
		}}},
	}
	for _, tt := range []struct {
		args      []string
		code      int
		out, errs string // parts
		got       []string
	}{
		{args: []string{"/usr/bin/key", "-L"}, code: 3, got: []string{"-L"}},
		{args: []string{"tool", "key", "-L"}, code: 3, got: []string{"-L"}},
		{args: []string{"tool", "--version"}, out: "tool 7\n"},
		{args: []string{"tool", "--help"}, out: "  key          list keys\n\nExamples:\n  tool key\n"},
		{args: []string{"tool"}, code: ExitUsage, errs: "Usage: tool COMMAND"},
		{args: []string{"tool", "keys"}, code: ExitUsage, errs: "tool: unknown command \"keys\"\n"},
	} {
		got = nil
		var out, errs bytes.Buffer
		code := b.Run(t.Context(), tt.args, &out, &errs)
		if code != tt.code || !strings.Contains(out.String(), tt.out) ||
			!strings.Contains(errs.String(), tt.errs) || !reflect.DeepEqual(got, tt.got) {
			t.Errorf("%v: %d, %q, %q, ran with %v", tt.args, code, out.String(), errs.String(), got)
		}
	}
}

// TestOptionsOf describes flags for completion and manual pages.
func TestOptionsOf(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	fs.BoolP("daemon", "d", false, "run in the background")
	fs.String("pid-file", "", "option pidfile")
	want := []Option{{Names: "-d --daemon", Help: "run in the background"},
		{Names: "--pid-file", Value: "VALUE", Help: "option pidfile"}}
	if got := OptionsOf(fs); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// struck gets a signal when a job has been published.
type struck struct {
	*fakeDaemon
	by syscall.Signal
}

func (s struck) Publish(ctx context.Context, p gather.Publish) (gather.Published, error) {
	published, err := s.fakeDaemon.Publish(ctx, p)
	return published, errors.Join(err, syscall.Kill(os.Getpid(), s.by))
}

// TestSignals: what salt prints at a signal while it waits, and its exit code, are Salt's
// (salt/scripts.py).
func TestSignals(t *testing.T) {
	const jid = "20261121093513900001"
	graceful := "\nExiting gracefully on Ctrl-c\nThis job's jid is: " + jid + "\n" +
		gather.LateReturns(jid) + "\n"
	for _, c := range []struct {
		by     syscall.Signal
		words  []string
		code   int
		stderr string
	}{
		{syscall.SIGINT, nil, 0, graceful},
		{syscall.SIGTERM, nil, 0, ""},
		{syscall.SIGINT, []string{"--hard-crash"}, 1, graceful},
		{syscall.SIGTERM, []string{"--hard-crash"}, 1, "\nExiting with hard crash on Ctrl-c\n"},
	} {
		d := &fakeDaemon{minions: map[string]minion{"web-a": {silent: true}}}
		env, out, errs := newEnv(d, "")
		env.Dial = func(context.Context, string) (Daemon, error) { return struck{d, c.by}, nil }
		code := UntilSignal(func(ctx context.Context, args []string) int {
			return Salt(ctx, args, env)
		})(t.Context(), append(c.words, "web-a", "test.ping"))
		if code != c.code || errs.String() != c.stderr || out.Len() > 0 {
			t.Errorf("%v %q: exit %d, want %d\n%s%s--- want\n%s", c.by, c.words, code, c.code, out, errs,
				c.stderr)
		}
	}
}
