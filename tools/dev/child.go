package dev

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Child is a started process; its parent ends it by pid, never by name. It has its own process
// group: Ctrl-C reaches only the parent, which ends its children in order. If the parent dies, the
// kernel sends them SIGTERM.
type Child struct {
	Name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read after done
}

// Start runs a program; its output goes to the end of the file out. env is added to this process's.
func Start(name, out string, env, argv []string) (*Child, error) {
	f, err := os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer f.Close()
	c := &Child{Name: name, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Env = f, f, append(os.Environ(), env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// PID is the process's number.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Running reports whether it has not ended.
func (c *Child) Running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Ended returns how the process ended, once it has: nil for exit code 0.
func (c *Child) Ended() error {
	<-c.done
	return c.err
}

// Kill ends it as a power cut would.
func (c *Child) Kill() {
	syscall.Kill(c.PID(), syscall.SIGKILL)
	<-c.done
}

// Stop ends all of them and the rest of their process groups: with SIGTERM, after a grace with
// SIGKILL.
func Stop(grace time.Duration, children ...*Child) {
	for _, c := range children {
		if c.Running() {
			syscall.Kill(-c.PID(), syscall.SIGTERM)
		}
	}
	late := time.Now().Add(grace)
	for _, c := range children {
		select {
		case <-c.done:
		case <-time.After(time.Until(late)):
		}
		syscall.Kill(-c.PID(), syscall.SIGKILL)
		<-c.done
	}
}
