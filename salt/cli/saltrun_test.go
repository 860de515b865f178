package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/serve/operator"
	"clustermaster/value"
)

// answering is a daemon with a fixed answer to runner calls.
func answering(res operator.RunResult, err error) *fakeDaemon {
	return &fakeDaemon{runner: func(r operator.RunRequest,
		out func(string, any)) (operator.RunResult, error) {
		if r.Fun == "test.stream" {
			out("print", "foo\n")
			out("progress", value.Map{{Key: "message", Value: "1%"}, {Key: "_stamp", Value: "now"}})
			out("warning", "incomplete\n")
		}
		return res, err
	}}
}

func TestSaltRun(t *testing.T) {
	t.Parallel()
	state := value.Map{{Key: "x_|-a_|-a_|-y",
		Value: value.Map{{Key: "result", Value: true}, {Key: "changes", Value: value.Map{}},
			{Key: "comment", Value: "c"}, {Key: "__run_num__", Value: int64(0)}}}}
	high := value.Map{{Key: "outputter", Value: "highstate"},
		{Key: "data", Value: value.Map{{Key: "m1", Value: state}}}}
	tests := []struct {
		name   string
		res    operator.RunResult
		err    error
		words  string
		code   int
		stdout string
		stderr string
	}{
		{"value", operator.RunResult{Return: []any{"a", "b"}, Success: true}, nil, "manage.up", 0,
			"- a\n- b\n", ""},
		{"json", operator.RunResult{Return: value.Map{{Key: "args", Value: []any{int64(1)}},
			{Key: "kwargs", Value: value.Map{}}}}, nil, "test.arg 1 --out=json", 0,
			"{\n    \"args\": [\n        1\n    ],\n    \"kwargs\": {}\n}\n", ""},
		{"not available", operator.RunResult{Return: "'nosuch.fun' is not available.",
			NotRun: true}, nil, "nosuch.fun", 0, "'nosuch.fun' is not available.\n", ""},
		{"module", operator.RunResult{Return: "'jobs' is not available.", NotRun: true}, nil, "jobs", 0,
			"jobs.active:\n    \n        List.\n", ""},
		{"shortened function", operator.RunResult{Return: "'test.a' is not available.",
			NotRun: true}, nil, "test.a --out=json", 0,
			"{\n    \"test.arg\": \"\\n    Return the arguments.\\n    \"\n}\n", ""},
		{"too many calls", operator.RunResult{Return: "too many", NotRun: true, Retcode: 1}, nil,
			"jobs.active", 1, "too many\n", ""},
		{"wrong arguments",
			operator.RunResult{Return: "\nPassed invalid arguments: x() y\n\nUsage:\n\n    Doc.\n    ", Success: true}, nil, "x.x", 0,
			"\nPassed invalid arguments: x() y\n\nUsage:\n\n    Doc.\n", ""},
		{"exception", operator.RunResult{Return: "Exception occurred in runner a.b: no",
			Retcode: 1}, nil, "a.b", 1, "Exception occurred in runner a.b: no\n", ""},
		{"retcode", operator.RunResult{Return: value.Map{{Key: "retcode", Value: int64(7)}},
			Retcode: 7}, nil, "a.b", 7, "retcode:\n    7\n", ""},
		{"quiet", operator.RunResult{Return: "x"}, nil, "test.stream --quiet", 0, "foo\n",
			"[WARNING ] incomplete\n"},
		{"none", operator.RunResult{Return: nil}, nil, "a.b", 0, "None\n", ""},
		{"outputter", operator.RunResult{Return: high, Outputter: "highstate"}, nil,
			"state.orch --state-output=terse", 0,
			"m1:\n  Name: a - Function: x.y - Result: Clean\n\nSummary for m1\n------------\nSucceeded: 1\nFailed:    0\n------------\nTotal states run:     1\nTotal run time:   0.000 ms\n", ""},
		{"progress", operator.RunResult{Return: true}, nil, "test.stream", 0,
			"foo\nevent:\n    ----------\n    _stamp:\n        now\n    message:\n        1%\nsuffix:\n    progress\nTrue\n", "[WARNING ] incomplete\n"},
		{"async", operator.RunResult{JID: "2026"}, nil, "a.b --async", 0, "",
			"[WARNING ] Running in asynchronous mode. The result can be read from the events of the master or from the job cache. This execution is running under tag salt/run/2026\n"},
		{"error", operator.RunResult{}, errors.New("too many runner calls"), "a.b", 1,
			"Exception occurred in runner a.b: too many runner calls\n", ""},
		{"docs", operator.RunResult{}, nil, "-d test", 0,
			"test.arg:\n\n    Return the arguments.\n    \n", ""},
		{"docs of nothing", operator.RunResult{}, nil, "-d nosuch", 0, "", ""},
		{"all docs", operator.RunResult{}, nil, "", 0,
			"jobs.active:\n\n    List.\n    \ntest.arg:\n\n    Return the arguments.\n    \n", ""},
		{"two docs", operator.RunResult{}, nil, "-d a b", 64, "",
			"Usage: salt-run [options] <function> [arguments]\n\nsalt-run: error: You can only get documentation for one method at one time\n"},
		{"no job id", operator.RunResult{}, nil, "--jid=abc test.arg", 64, "",
			"Usage: salt-run [options] <function> [arguments]\n\nsalt-run: error: 'abc' is not a valid JID\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run(t, SaltRun, answering(tt.res, tt.err), "", strings.Fields(tt.words)...).check(t,
				tt.code, tt.stdout, tt.stderr)
		})
	}
}

func TestSaltRunWithoutMaster(t *testing.T) {
	t.Parallel()
	run(t, SaltRun, nil, "", "manage.up").check(t, 1, "Exception occurred in runner manage.up: "+
		masterDown+"\n",
		"[ERROR   ] Unable to connect to the salt master publisher at /run/m\n")
}

func TestSaltRunArguments(t *testing.T) {
	t.Parallel()
	var got operator.RunRequest
	d := &fakeDaemon{runner: func(r operator.RunRequest, _ func(string, any)) (operator.RunResult,
		error) {
		got = r
		return operator.RunResult{Return: true}, nil
	}}
	run(t, SaltRun, d, "", "test.arg", "1", "a==b", "x=", "l=[1, {a: b}]", "None", "--jid",
		"20261121093513900077", "--enable-profiling", "--profiling-path", "/tmp/p")
	if s := fmt.Sprint(got.Args, " ", got.Kwargs, " ",
		got.JID); s != "[1 a==b <nil>] [{x } {l [1 [{a b}]]}] 20261121093513900077" {
		t.Errorf("called with %s", s)
	}
}

// TestSaltRunShowsTheJobsID: show_jid prints the job's id before the function's own output, unless
// the command returns at once.
func TestSaltRunShowsTheJobsID(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"test.stream":                            "jid: 20261121093513900001\nfoo\n",
		"test.stream --jid 20261121093513900077": "jid: 20261121093513900077\nfoo\n",
		"a.b --async -l quiet":                   "",
	} {
		d := answering(operator.RunResult{Return: true, JID: "2026"}, nil)
		d.showJID = true
		if got := run(t, SaltRun, d, "", strings.Fields(words)...).stdout; got != want &&
			(want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: printed %q, want %q", words, got, want)
		}
	}
}

func TestPassphraseIsAskedForBackupsAlone(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"cluster.backup /b":                        "[{passphrase from the input}]",
		"cluster.restore /b jobs=True":             "[{jobs true} {passphrase from the input}]",
		"cluster.backup /b passphrase_file=/p":     "[{passphrase_file /p}]",
		"cluster.backup /b passphrase=typed-in-it": "[{passphrase typed-in-it}]",
		"cluster.remove m3":                        "[]",
	} {
		var got operator.RunRequest
		d := &fakeDaemon{runner: func(r operator.RunRequest,
			_ func(string, any)) (operator.RunResult, error) {
			got = r
			return operator.RunResult{Return: true}, nil
		}}
		run(t, SaltRun, d, "from the input\nmore", strings.Fields(words)...)
		if s := fmt.Sprint(got.Kwargs); s != want {
			t.Errorf("%s: called with %s, want %s", words, s, want)
		}
	}
}

func TestSaltCP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, link := filepath.Join(dir, "motd"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(src, []byte("hello\n"), 0o600), os.Symlink("motd", link)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{minions: map[string]minion{"web-a": {answer: value.Map{{Key: "/etc/motd",
			Value: true}}}}}
		run(t, SaltCP, d, "", "*", src, "/etc/motd").check(t, 0,
			"web-a:\n    ----------\n    /etc/motd:\n        True\n", "")
		p := d.published[0]
		if p.Fun != "cp.recv" || fmt.Sprint(p.Arg) != "[[{"+src+" hello\n}] /etc/motd]" {
			t.Errorf("sent %v %v", p.Fun, p.Arg)
		}
		run(t, SaltCP, d, "", "*", link, "/etc/motd")
		if got := fmt.Sprint(d.published[1].Arg); got != fmt.Sprint(p.Arg) {
			t.Errorf("sent %v for a link", got)
		}
		run(t, SaltCP, d, "", "*", dir, "/x").check(t, 1,
			dir+
				" is a directory, only files are supported in non-chunked mode. Use \"--chunked\" command line argument.\n", "")
		run(t, SaltCP, d, "", "no", src, "/x").check(t, 0, noMatch+"\n", "")
		run(t, SaltCP, d, "", "*", src+"x", "/x").check(t, 0, "",
			"none of the source files exists; check the paths\n")
		if r := run(t, SaltCP, d, "", "*", src); r.code != 64 ||
			!strings.HasSuffix(r.stderr, "salt-cp: error: Insufficient arguments\n") {
			t.Errorf("exit %d, stderr %q", r.code, r.stderr)
		}
	})
}

// endless is a daemon whose runner prints until the command ends.
type endless struct{ *fakeDaemon }

func (endless) Run(ctx context.Context, _ operator.RunRequest,
	out func(string, any)) (operator.RunResult, error) {
	for ctx.Err() == nil {
		out("print", "salt/auth\t{}\n")
	}
	return operator.RunResult{}, ctx.Err()
}

// TestUnreadEvents: state.event has no end of its own, so it ends when nobody reads it any more.
func TestUnreadEvents(t *testing.T) {
	t.Parallel()
	env, _, errs := newEnv(&fakeDaemon{}, "")
	env.Dial = func(context.Context, string) (Daemon, error) { return endless{}, nil }
	env.Stdout = closedPipe(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if code := SaltRun(ctx, []string{"state.event"}, env); code != ExitOK || ctx.Err() != nil ||
		errs.Len() > 0 {
		t.Errorf("exit %d, %v\n%s", code, ctx.Err(), errs)
	}
}

// closedPipe returns a pipe that nobody reads any more.
func closedPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() { w.Close() })
	return w
}
