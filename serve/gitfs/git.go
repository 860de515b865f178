package gitfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Bounds of one run of git.
const (
	maxStderr = 64 << 10 // bytes of messages to keep
	killGrace = 5 * time.Second
)

// askpass answers questions of git and ssh for credentials. It gets them from the environment, so
// they are on no command line. It answers only for the remote's own host: a redirect gets nothing.
const askpass = `#!/bin/sh
# Made by clustermaster. Answers git and ssh with the credentials of one remote.
case "$1" in
    Username*"://$CM_GIT_HOST'"*) printf '%s\n' "$CM_GIT_USER" ;;
    Password*"://$CM_GIT_HOST'"* | Password*"@$CM_GIT_HOST'"*) printf '%s\n' "$CM_GIT_PASSWORD" ;;
    "Enter passphrase for key '"*) [ -n "$CM_GIT_PASSPHRASE" ] && printf '%s\n' "$CM_GIT_PASSPHRASE" ;;
    *) exit 1 ;;
esac
`

// program is the installed git, with the settings to run it.
type program struct {
	path       string
	dir        string // of this package; contains askpass
	timeout    time.Duration
	knownHosts string // a file of ssh; "": ssh's default
}

func newProgram(path, dir string, timeout time.Duration) (*program, error) {
	if path == "" {
		var err error
		if path, err = exec.LookPath("git"); err != nil {
			return nil, errors.New("git is not installed; install the package git")
		}
	}
	p := &program{path: path, dir: dir, timeout: timeout}
	return p, p.prepare()
}

// prepare makes the folder with askpass, unless that is there.
func (p *program) prepare() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("make folder for git: %w", err)
	}
	ask := filepath.Join(p.dir, "askpass")
	if had, err := os.ReadFile(ask); err == nil && string(had) == askpass {
		return nil
	}
	if err := os.WriteFile(ask, []byte(askpass), 0o700); err != nil {
		return fmt.Errorf("write askpass: %w", err)
	}
	return nil
}

// kept are the variables of this process that git gets: for programs, home, certificates and the
// agent, and the machine's proxies.
var kept = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "XDG_CONFIG_HOME",
}

// locked is the configuration that overrides files of the machine and repositories.
var locked = [][2]string{
	{"core.hooksPath", "/dev/null"},
	{"core.fsmonitor", "false"},
	{"core.askPass", ""},
	{"protocol.allow", "never"},
	{"protocol.file.allow", "always"},
	{"protocol.git.allow", "always"},
	{"protocol.ssh.allow", "always"},
	{"protocol.http.allow", "always"},
	{"protocol.https.allow", "always"},
	{"fetch.recurseSubmodules", "false"},
	{"submodule.recurse", "false"},
	{"fetch.writeCommitGraph", "false"},
	{"gc.auto", "0"},
	{"maintenance.auto", "false"},
	{"advice.detachedHead", "false"},
	{"http.lowSpeedLimit", "1"},
	{"http.lowSpeedTime", "60"},
}

// environment is the whole environment of git.
func (p *program) environment(r *Remote, extra ...[2]string) []string {
	var env []string
	for _, name := range kept {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	env = append(env, "LC_ALL=C", "LANGUAGE=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_LAZY_FETCH=1", "GCM_INTERACTIVE=never", "GIT_ADVICE=0")
	conf := slices.Concat(locked, extra)
	if r != nil {
		env, conf = p.withAccess(env, conf, r)
	}
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(conf)))
	for i, kv := range conf {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, kv[0]),
			fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, kv[1]))
	}
	return env
}

// withAccess adds the settings for reaching one remote.
func (p *program) withAccess(env []string, conf [][2]string, r *Remote) ([]string, [][2]string) {
	a := r.Access
	ask := filepath.Join(p.dir, "askpass")
	env = p.withSSH(env, a, ask)
	switch scheme(r.URL) {
	case "http", "https":
		if a.User != "" {
			host := ""
			if u, err := url.Parse(r.URL); err == nil {
				host = u.Host
			}
			env = append(env, "GIT_ASKPASS="+ask, "CM_GIT_HOST="+host, "CM_GIT_USER="+a.User,
				"CM_GIT_PASSWORD="+a.Password)
			conf = append(conf, [2]string{"credential.helper", ""}) // the option sets it
		}
		if a.NoVerify {
			conf = append(conf, [2]string{"http.sslVerify", "false"})
		}
		if a.Proxy != "" {
			conf = append(conf, [2]string{"http.proxy", a.Proxy})
		}
	}
	return env, conf
}

// quoted quotes one word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// run is one run of git: its folder, input and environment.
type run struct {
	dir    string
	remote *Remote // nil: it reaches no remote
	conf   [][2]string
	stdin  io.Reader
	stdout io.Writer // nil: returned
	args   []string
}

// gitError is a failed git, with the message that gives the reason.
type gitError struct {
	what string
	text string
	err  error
}

func (e *gitError) Error() string { return e.what + ": " + e.text }
func (e *gitError) Unwrap() error { return e.err }

// do runs git to its end. It kills git's process group at the timeout and when ctx ends.
func (p *program) do(ctx context.Context, r run) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	cmd := p.command(ctx, r)
	var out bytes.Buffer
	told := &tail{max: maxStderr}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.stdin, &out, told
	if r.stdout != nil {
		cmd.Stdout = r.stdout
	}
	err := cmd.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	text := told.reason()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		text = fmt.Sprintf("gave no end within %v and was stopped", p.timeout)
		err = context.DeadlineExceeded
	} else if text == "" {
		text = err.Error()
	}
	if r.remote != nil {
		if why := p.sshReason(told.b, r.remote); why != "" && scheme(r.remote.URL) == "ssh" {
			text = why
		}
		text = redactAll(text, r.remote)
	}
	return out.Bytes(), &gitError{what: "git " + r.args[0], text: text, err: err}
}

// command makes the process, with its own session and without a terminal.
func (p *program) command(ctx context.Context, r run) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path,
		r.args...) // git, with checked arguments
	cmd.Dir, cmd.Env = r.dir, p.environment(r.remote, r.conf...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killGrace
	return cmd
}

// redactAll removes the secrets of a remote from a message.
func redactAll(s string, r *Remote) string {
	s = redact(s)
	for _, secret := range []string{r.Access.Password, r.Access.Passphrase} {
		if len(secret) > 2 {
			s = strings.ReplaceAll(s, secret, "[redacted]")
		}
	}
	return s
}

// tail keeps the end of what is written to it.
type tail struct {
	b   []byte
	max int
}

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > t.max {
		t.b = append(t.b[:0:0], t.b[len(t.b)-t.max:]...)
	}
	return len(p), nil
}

// reason returns the most useful line: the first that begins with fatal or error, else the last.
func (t *tail) reason() string {
	last := ""
	for line := range strings.SplitSeq(string(bytes.ToValidUTF8(t.b, []byte("?"))), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "fatal: "); ok {
			if last != "" && !strings.HasPrefix(last, "warning") &&
				strings.HasPrefix(rest, "Could not read from remote") {
				return last
			}
			return rest
		}
		last = strings.TrimPrefix(strings.TrimPrefix(line, "error: "), "remote: ")
	}
	if len(last) > 500 {
		last = last[:500]
	}
	return last
}
