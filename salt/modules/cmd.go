package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"clustermaster/value"
)

// Bounds of one command.
const (
	maxCommandOutput = 32 << 20 // bytes of stdout and of stderr
	commandGrace     = 2 * time.Second
)

// ran is the result of a command.
type ran struct {
	pid, retcode   int
	stdout, stderr string
	late           bool // its timeout ended it, which stdout says
}

// all is the result in the form of cmd.run_all.
func (r ran) all() value.Map {
	if r.late {
		return value.Map{
			{Key: "stdout", Value: r.stdout}, {Key: "stderr", Value: r.stderr},
			{Key: "retcode", Value: int64(r.retcode)}, {Key: "pid", Value: int64(r.pid)},
		}
	}
	return value.Map{
		{Key: "pid", Value: int64(r.pid)}, {Key: "retcode", Value: int64(r.retcode)},
		{Key: "stdout", Value: r.stdout}, {Key: "stderr", Value: r.stderr},
	}
}

func commandFunctions() []function {
	params := []param{
		need("cmd"), opt("cwd", nil), opt("stdin", nil), opt("runas", nil), opt("group", nil),
		opt("shell", nil), opt("python_shell", nil), opt("env", nil),
		opt("clean_env", false), opt("template", nil), opt("rstrip", true), opt("umask", nil),
		opt("output_encoding", nil), opt("output_loglevel", "debug"),
		opt("log_callback", nil), opt("hide_output", false), opt("timeout", nil),
		opt("reset_system_locale", true), opt("ignore_retcode", false), opt("saltenv", nil),
		opt("use_vt", false), opt("bg", false), opt("password", nil), opt("encoded_cmd", false),
		opt("prepend_path", nil), opt("success_retcodes", nil), opt("success_stdout", nil),
		opt("success_stderr", nil),
	}
	make := func(name string, joined, shell bool, result func(ran) any, own ...param) function {
		return function{name: name, params: append(slices.Clip(params), own...), varArgs: true,
			varKwargs: true, run: func(ctx context.Context, c *call) (any, error) {
				if shell && c.any("python_shell") == nil {
					c.named["python_shell"] = true
				}
				r, err := c.command(ctx, joined)
				if err != nil {
					return nil, err
				}
				if c.is("hide_output") {
					r.stdout, r.stderr = "", ""
				}
				if r.retcode != 0 && c.is("raise_err") && !c.is("ignore_retcode") && !c.quiet() {
					return nil, errors.New(r.stdout)
				}
				return result(r), nil
			}}
	}
	stdout := func(r ran) any { return r.stdout }
	both := []param{opt("redirect_stderr", true), opt("raise_err", false)}
	return []function{
		make("cmd.run", false, false, stdout, both...),
		make("cmd.shell", false, true, stdout, both...),
		make("cmd.run_stdout", false, false, stdout),
		make("cmd.run_stderr", false, false, func(r ran) any { return r.stderr }),
		make("cmd.retcode", true, false, func(r ran) any { return int64(r.retcode) }),
		make("cmd.run_all", false, false, func(r ran) any { return r.all() },
			opt("redirect_stderr", false)),
	}
}

// command runs the command of a call on the master. joined sends stderr to stdout. Without
// python_shell it runs without a shell and splits the text as a shell would.
func (c *call) command(ctx context.Context, joined bool) (ran, error) {
	outer := ctx
	if v := c.any("timeout"); value.Truth(v) {
		if _, ok := number(v); !ok {
			return ran{}, fmt.Errorf("Error: timeout %s must be a number", text(v))
		}
	}
	if d := duration(c.any("timeout")); d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, d)
		defer stop()
	}
	accept, err := c.accepted()
	if err != nil {
		return ran{}, err
	}
	if c.is("template") || c.is("bg") {
		return ran{}, outside("template and bg are not built in")
	}
	argv, err := c.argv()
	if err != nil {
		return ran{}, err
	}
	if argv, err = c.masked(argv); err != nil {
		return ran{}, err
	}
	decode, err := c.decoder()
	if err != nil {
		return ran{}, err
	}
	cmd := group(ctx, argv) // templates of pillar_roots may run commands
	as, err := c.identity()
	if err != nil {
		return ran{}, err
	}
	if cmd.Dir = as.home(); c.is("cwd") {
		cmd.Dir = text(c.any("cwd"))
	}
	if info, err := os.Stat(cmd.Dir); !filepath.IsAbs(cmd.Dir) || err != nil || !info.IsDir() {
		return ran{}, fmt.Errorf("Specified cwd '%s' either not absolute or does not exist",
			cmd.Dir) // Salt's text
	}
	cmd.Env = c.environment(as.variables())
	cmd.SysProcAttr.Credential = as.credential
	if in := c.any("stdin"); in != nil {
		from := text(in)
		if raw, _ := c.kwargs.Get("stdin_raw_newlines"); !value.Truth(raw) {
			from = strings.ReplaceAll(from, `\n`, "\n") // as a user types it
		}
		cmd.Stdin = strings.NewReader(from)
	}
	var stdout, stderr bounded
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if joined || c.is("redirect_stderr") {
		cmd.Stderr = &stdout
	}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case outer.Err() != nil:
		return ran{}, fmt.Errorf("%s: %w", c.shown(argv[0]), outer.Err())
	case ctx.Err() != nil:
		said := value.Str(c.any("cmd"))
		if c.any("python_shell") != true {
			said = value.Repr(argv)
		}
		return ran{
			pid: cmd.Process.Pid, retcode: 1, late: true,
			stdout: fmt.Sprintf("%s : Timed out after %s seconds", said,
				value.Str(c.any("timeout"))),
		}, nil
	case errors.As(err, &exit), errors.Is(err, exec.ErrWaitDelay):
	case err != nil:
		for inner := err; c.quiet() && inner != nil; inner = errors.Unwrap(inner) {
			err = inner // the outer ones name the program
		}
		return ran{}, fmt.Errorf("Unable to run command '%s': %w",
			c.shown(strings.Join(argv, " ")), err)
	}
	if stdout.over || stderr.over {
		return ran{}, fmt.Errorf("%s: more than %d bytes of output", c.shown(argv[0]),
			maxCommandOutput)
	}
	r := ran{pid: cmd.Process.Pid, retcode: cmd.ProcessState.ExitCode(),
		stdout: decode(stdout.buf.Bytes()), stderr: decode(stderr.buf.Bytes())}
	if c.is("rstrip") {
		r.stdout, r.stderr = rstrip(r.stdout), rstrip(r.stderr)
	}
	if accept(r) {
		r.retcode = 0
	}
	if c.is("ignore_retcode") {
		leave(ctx, 0)
		return r, nil
	}
	leave(ctx, r.retcode)
	if r.retcode != 0 && !c.quiet() {
		c.deps.Log.Warn("command of a template failed", "minion", c.who.ID, "cmd", argv[0],
			"retcode", r.retcode)
	}
	return r, nil
}

// quiet reports whether nothing may be logged of the command.
func (c *call) quiet() bool { return strings.ToLower(c.text("output_loglevel")) == "quiet" }

// shown is a part of the command for errors, which are logged.
func (c *call) shown(part string) string {
	if c.quiet() {
		return "REDACTED"
	}
	return part
}

// group makes a command that ends with ctx, together with the processes that it starts.
func group(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = commandGrace
	return cmd
}

// Output runs a command line of the configuration without a shell, in the folder and environment of
// this process, and returns what it prints. An exit code other than 0 is an error, which has what
// the command wrote to stderr.
func Output(ctx context.Context, line string) (string, error) {
	argv, err := shellSplit(line)
	if err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	if len(argv) == 0 {
		return "", errors.New("empty command")
	}
	var stdout, stderr bounded
	cmd := group(ctx, argv)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("%s: %w: %s", argv[0], err, rstrip(stderr.buf.String()))
	}
	if stdout.over {
		return "", fmt.Errorf("%s: more than %d bytes of output", argv[0], maxCommandOutput)
	}
	return stdout.buf.String(), nil
}

// accepted returns the test for a command's success, by success_retcodes or
// by a text in its output.
func (c *call) accepted() (func(ran) bool, error) {
	codes := make(map[int]bool)
	for _, v := range c.split("success_retcodes") {
		n, ok := value.ParseInt(text(v))
		if !ok {
			return nil, errors.New("success_retcodes must be a list of integers")
		}
		codes[n] = true
	}
	stdout, stderr := c.split("success_stdout"), c.split("success_stderr")
	return func(r ran) bool {
		in := func(printed string, wanted []any) bool {
			return slices.ContainsFunc(wanted,
				func(v any) bool { return strings.Contains(printed, text(v)) })
		}
		return codes[r.retcode] || in(r.stdout, stdout) || in(r.stderr, stderr)
	}, nil
}

// split returns a list argument, or splits a text at its commas.
func (c *call) split(name string) []any {
	v := c.any(name)
	if list, ok := v.([]any); ok || v == nil {
		return list
	}
	var out []any
	for _, word := range strings.Split(text(v), ",") {
		out = append(out, strings.TrimSpace(word))
	}
	return out
}

// duration reads a number of seconds; 0 for any other value.
func duration(v any) time.Duration {
	if f, ok := v.(float64); ok {
		return time.Duration(f * float64(time.Second))
	}
	n, _ := number(v)
	return time.Duration(n) * time.Second
}

// rstrip is Python's str.rstrip.
func rstrip(s string) string { return strings.TrimRightFunc(s, value.IsSpace) }

// masked runs the command under a umask. The umask belongs to a process, so a shell sets it and
// then becomes the command.
func (c *call) masked(argv []string) ([]string, error) {
	given := c.any("umask")
	if given == nil {
		return argv, nil
	}
	digits := strings.TrimLeft(text(given), "0")
	if digits == "" {
		return nil, errors.New("Zero umask is not allowed.") // Salt's text
	}
	mask, err := strconv.ParseUint(digits, 8, 12)
	if err != nil {
		return nil, fmt.Errorf("Invalid umask: '%s'",
			text(given)) // Salt's text
	}
	return append([]string{"/bin/sh", "-c", fmt.Sprintf(`umask %04o && exec "$@"`, mask), "sh"},
		argv...), nil
}

// argv returns the command with its arguments.
func (c *call) argv() ([]string, error) {
	if list, ok := c.any("cmd").([]any); ok {
		out := make([]string, len(list))
		for i, v := range list {
			out[i] = text(v)
		}
		if len(out) == 0 {
			return nil, errors.New("empty command")
		}
		return out, nil
	}
	line := c.text("cmd")
	shell := c.text("shell")
	if shell == "" {
		if shell = os.Getenv("SHELL"); shell == "" {
			shell = "/bin/sh"
		}
	}
	if info, err := os.Stat(shell); err != nil || !info.Mode().IsRegular() ||
		info.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("The shell %s is not available",
			shell) // Salt's text
	}
	if c.any("python_shell") == true {
		return []string{shell, "-c", line}, nil
	}
	out, err := shellSplit(line)
	if err == nil && len(out) == 0 {
		err = errors.New("empty command")
	}
	return out, err
}

// decoder returns a function that decodes a command's output from output_encoding.
// Invalid bytes become U+FFFD.
func (c *call) decoder() (func([]byte) string, error) {
	switch name := strings.ReplaceAll(strings.ToLower(c.text("output_encoding")), "_", "-"); name {
	case "", "utf-8", "utf8", "ascii", "us-ascii":
		return func(b []byte) string {
			if utf8.Valid(b) {
				return string(b)
			}
			return string([]rune(string(b)))
		}, nil
	case "latin-1", "latin1", "iso-8859-1", "iso8859-1":
		return func(b []byte) string {
			out := make([]rune, len(b))
			for i, x := range b {
				out[i] = rune(x)
			}
			return string(out)
		}, nil
	default:
		return nil, outside("output_encoding " + name + " is not built in; use utf-8 or latin-1")
	}
}

// environment is the master's environment in the language C, plus the user's variables and env. An
// entry of env that is false removes a variable.
func (c *call) environment(own value.Map) []string {
	vars := make(map[string]string)
	if !c.is("clean_env") {
		for _, e := range os.Environ() {
			if name, val, _ := strings.Cut(e, "="); name != "NOTIFY_SOCKET" { // the master's own
				vars[name] = val
			}
		}
	}
	if c.is("reset_system_locale") {
		for _, name := range []string{"LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE",
			"LC_MONETARY", "LC_MESSAGES", "LC_PAPER", "LC_NAME", "LC_ADDRESS", "LC_TELEPHONE",
			"LC_MEASUREMENT", "LC_IDENTIFICATION", "LANGUAGE"} {
			vars[name] = "C"
		}
	}
	given := own
	switch env := c.any("env").(type) {
	case value.Map:
		given = append(given, env...)
	case []any:
		for _, e := range env {
			m, _ := e.(value.Map)
			given = append(given, m...)
		}
	}
	for _, p := range given {
		if p.Value == false {
			delete(vars, text(p.Key))
			continue
		}
		vars[text(p.Key)] = text(p.Value)
	}
	if p := c.text("prepend_path"); p != "" {
		vars["PATH"] = p + ":" + vars["PATH"]
	}
	out := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		out = append(out, name+"="+vars[name])
	}
	return out
}

// bounded keeps the first bytes written to it. It has no ReadFrom, which would bypass the bound.
type bounded struct {
	buf  bytes.Buffer
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxCommandOutput - b.buf.Len(); len(p) > room {
		b.over = true
		b.buf.Write(p[:room])
		return len(p), nil
	}
	return b.buf.Write(p)
}

// shellSplit is Python's shlex.split.
func shellSplit(s string) ([]string, error) {
	var out []string
	var word strings.Builder
	in, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == '\'' && c != '\'', quote == '"' && c != '"' && c != '\\':
			word.WriteByte(c)
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\':
			i++
			if i == len(s) {
				return nil, errors.New("No escaped character")
			}
			if quote == '"' && s[i] != '"' && s[i] != '\\' {
				word.WriteByte('\\')
			}
			word.WriteByte(s[i])
			in = true
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			if in {
				out = append(out, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if quote != 0 {
		return nil, errors.New("No closing quotation")
	}
	if in {
		out = append(out, word.String())
	}
	return out, nil
}
