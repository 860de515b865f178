package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPlaygroundEnds: the playground leaves no master and no folder behind if its terminal is
// closed, or the reader of its output has gone.
func TestPlaygroundEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(cmd *exec.Cmd, reader *os.File) error{
		"hang-up":     func(cmd *exec.Cmd, _ *os.File) error { return cmd.Process.Signal(syscall.SIGHUP) },
		"closed pipe": func(_ *exec.Cmd, reader *os.File) error { return reader.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "pg") // short: the path of a unix socket is
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			cmd := exec.Command(filepath.Join(filepath.Dir(Ours(t).Master), "clustermaster"), "dev",
				"--masters", "1", "--minions", "1")
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			cmd.Stdout = writer
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			writer.Close()
			done := make(chan struct{})
			go func() { _ = cmd.Wait(); close(done) }()
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-done
			})
			lines := bufio.NewScanner(reader)
			ready := false
			for !ready && lines.Scan() {
				ready = strings.Contains(lines.Text(), "all ready after")
			}
			if !ready {
				t.Fatal("its master is not ready")
			}
			if err := end(cmd, reader); err != nil {
				t.Fatal(err)
			}
			Eventually(t, time.Minute, "it ends and cleans up", func() error {
				select {
				case <-done:
				default:
					return fmt.Errorf("it runs")
				}
				left, err := filepath.Glob(filepath.Join(dir, "*"))
				if err == nil && len(left) > 0 {
					err = fmt.Errorf("%v stay", left)
				}
				return err
			})
		})
	}
}
