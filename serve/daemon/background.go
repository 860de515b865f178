package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// background starts this program again, detached, and exits.
func background() int {
	exe, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "salt-master: find own program:", err)
		return ExitConfig
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), daemonMark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "salt-master: start in the background:", err)
		return ExitConfig
	}
	return 0
}
