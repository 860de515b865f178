package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// daemonMark tells a re-executed process that it is the background process.
const daemonMark = "CLUSTERMASTER_DAEMON"

// readyFile is the background process's end of a pipe, on which it says that it has started.
const readyFile = 3

// background starts this program again, detached, and waits until it has started or ended. It
// returns the exit code. Until then both have the same output.
func background() int {
	exe, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "salt-master: find own program:", err)
		return ExitConfig
	}
	heard, ready, err := os.Pipe()
	if err != nil {
		fmt.Fprintln(os.Stderr, "salt-master: start in the background:", err)
		return ExitConfig
	}
	defer heard.Close()
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), daemonMark+"=1")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{ready}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	ready.Close()
	if err == nil {
		if n, _ := heard.Read(make([]byte, 1)); n == 1 {
			return 0
		}
		err = cmd.Wait()
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "salt-master: start in the background:", err)
		return ExitConfig
	}
	return 0
}

// inBackground makes this process the background process, with Salt's umask. When it has started,
// it calls detach: its output ends, and so does the process that started it.
func inBackground() (detach func() error) {
	os.Unsetenv(daemonMark)
	unix.CloseOnExec(readyFile)
	unix.Umask(0o022)
	return func() error {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		ready := os.NewFile(readyFile, "ready")
		defer ready.Close()
		for _, step := range []func() error{
			func() error { return unix.Chdir("/") },
			func() error { return unix.Dup3(int(null.Fd()), 1, 0) },
			func() error { return unix.Dup3(int(null.Fd()), 2, 0) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		_, _ = ready.Write([]byte{1}) // whoever started this process may have ended
		return nil
	}
}
