package operator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// MovingName is a file below sock_dir. clustermaster migrate keeps it, with its process id, while
// it replaces the master; commands wait meanwhile.
const MovingName = "clustermaster.moving"

// StartMoving makes the file, for all users to read. It takes over the file of a process that has
// ended.
func StartMoving(sockDir string) error {
	path := filepath.Join(sockDir, MovingName)
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("make commands wait: %w", err)
	}
	return nil
}

// StopMoving removes the file, if there is one.
func StopMoving(sockDir string) { _ = os.Remove(filepath.Join(sockDir, MovingName)) }

// Moving reports whether the file is there and its process lives.
func Moving(sockDir string) bool {
	b, err := os.ReadFile(filepath.Join(sockDir, MovingName))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return false
	}
	err = syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
