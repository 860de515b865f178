package cli

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
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
