package auth

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"clustermaster/value"
)

// pamProgram calls libpam. This program can't call it, as it is built without C.
//
//go:embed pam.py
var pamProgram string

const (
	maxPAMReply = 1 << 20 // bytes
	pamTime     = 10 * time.Second
)

var errSlowPAM = errors.New("PAM gave no answer in time")

// Python returns an interpreter's path and flags. The first call may take a while.
type Python func(ctx context.Context) ([]string, error)

// systemPython calls libpam if it exists, as in Salt.
const systemPython = "/usr/bin/python3"

// FindPython returns the interpreter that the option auth.pam.python names, else the system's, else
// another one.
func FindPython(option any, other func() ([]string, error)) Python {
	return func(context.Context) ([]string, error) {
		if exe, _ := option.(string); exe != "" {
			return []string{exe, "-I"}, nil
		}
		if _, err := os.Stat(systemPython); !errors.Is(err, fs.ErrNotExist) {
			return []string{systemPython, "-I"}, nil
		}
		return other()
	}
}

// pam asks the system's PAM, in a separate process for each attempt.
type pam struct {
	service  string
	python   Python
	patience time.Duration // of one attempt
}

func newPAM(options value.Map, python Python) (*pam, error) {
	r := optionReader{options: options, prefix: "auth.pam."}
	service := r.text("service", "login")
	if r.err != nil {
		return nil, r.err
	}
	if service == "" || strings.ContainsAny(service, "/\x00") {
		return nil, fmt.Errorf("auth.pam.service %q: name a file of /etc/pam.d", service)
	}
	if python == nil {
		return nil, errors.New("no Python to call libpam with; set auth.pam.python")
	}
	return &pam{service: service, python: python, patience: pamTime}, nil
}

func (p *pam) check(ctx context.Context, user, password string) (known, bool, error) {
	python, err := p.python(ctx)
	if err != nil {
		return known{}, false, fmt.Errorf("find a Python to call libpam with: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.patience, errSlowPAM)
	defer cancel()
	asked, err := json.Marshal(map[string]string{"service": p.service, "user": user,
		"password": password})
	if err != nil {
		return known{}, false, fmt.Errorf("ask PAM: %w", err)
	}
	args := append(append([]string{}, python[1:]...), "-c", pamProgram)
	cmd := exec.CommandContext(ctx, python[0], args...)
	cmd.Stdin = bytes.NewReader(asked)
	var out bounded
	cmd.Stdout = &out
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// also the processes that PAM's modules have started
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if errors.Is(context.Cause(ctx), errSlowPAM) {
			return known{}, false, fmt.Errorf("%w, which is %v: see the modules in /etc/pam.d/%s",
				errSlowPAM, p.patience, p.service)
		}
		return known{}, false, fmt.Errorf("run the program that calls libpam: %w", err)
	}
	var reply struct {
		OK     bool     `json:"ok"`
		Groups []string `json:"groups"`
		Error  string   `json:"error"`
	}
	if err := json.Unmarshal(out.b, &reply); err != nil {
		return known{}, false, fmt.Errorf("read what the program that calls libpam says: %w", err)
	}
	switch {
	case reply.Error != "":
		return known{}, false, fmt.Errorf("call libpam: %s; is it installed?", reply.Error)
	case !reply.OK && !mayReadShadow():
		return known{}, false,
			errors.New("PAM refuses, and this master's user may not read /etc/shadow, so it could confirm nobody else: run the master as root, or add its user to the group shadow")
	}
	return known{groups: reply.Groups}, reply.OK, nil
}

// mayReadShadow reports whether PAM's helpers authenticate users other than the master's own for
// this process.
func mayReadShadow() bool {
	f, err := os.Open("/etc/shadow")
	if err != nil {
		return os.Geteuid() == 0 || errors.Is(err, os.ErrNotExist)
	}
	f.Close()
	return true
}

// bounded keeps the beginning of what is written.
type bounded struct{ b []byte }

func (w *bounded) Write(p []byte) (int, error) {
	w.b = append(w.b, p[:min(len(p), maxPAMReply-len(w.b))]...)
	return len(p), nil
}
