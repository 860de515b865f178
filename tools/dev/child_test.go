package dev

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentEnv makes this program a parent that starts one child, names it and waits.
const parentEnv = "CLUSTERMASTER_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		c, err := Start("sleep", filepath.Join(dir, "out"), nil, []string{"sleep", "300"})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.PID())
		_ = c.Ended()
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A child does not outlive a parent that was killed.
func TestChildrenEndWithTheirParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	child, convErr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || convErr != nil {
		t.Fatalf("%q: %v, %v", line, err, convErr)
	}
	if !alive(child) {
		t.Fatal("the child has ended before its parent")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(20 * time.Second); alive(child); <-look.C {
		if time.Now().After(end) {
			_ = syscall.Kill(child, syscall.SIGKILL)
			t.Fatal("the child outlives its parent")
		}
	}
}

// alive reports whether a process runs; one whose end nobody has read does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	return err != nil || !strings.Contains(string(b), ") Z ")
}
