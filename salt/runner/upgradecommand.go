package runner

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// upgradeOutput bounds the kept output of cluster_upgrade_command, in bytes.
const upgradeOutput = 64 << 10

// UpgradeCommand makes UpgradeDeps.Restart from the option cluster_upgrade_command: it runs these
// words with a peer's id, its address and the release as further arguments. It returns nil without
// the option.
func UpgradeCommand(words []string) func(context.Context, PeerView, string) (string, error) {
	if len(words) == 0 {
		return nil
	}
	return func(ctx context.Context, p PeerView, release string) (string, error) {
		args := append(append([]string{}, words[1:]...), p.ID, p.Addr, release)
		cmd := exec.CommandContext(ctx, words[0], args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		var out keptOutput
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return out.String(), fmt.Errorf("%s: %w", words[0], err)
		}
		return out.String(), nil
	}
}

// keptOutput keeps the beginning of the output.
type keptOutput struct{ strings.Builder }

// Write implements io.Writer.
func (k *keptOutput) Write(b []byte) (int, error) {
	if room := upgradeOutput - k.Len(); room > 0 {
		k.Builder.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}
