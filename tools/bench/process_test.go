package bench

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// The figures of a process include those of its children.
func TestFamily(t *testing.T) {
	t.Parallel()
	child := exec.Command("sh", "-c", "sleep 60 & wait")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range slices.Backward(family(child.Process.Pid)) {
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill()
			}
		}
		child.Wait()
	})
	for deadline := time.Now().Add(10 * time.Second); len(family(child.Process.Pid)) != 2; {
		if time.Now().After(deadline) {
			t.Fatalf("family %v, want the shell and sleep", family(child.Process.Pid))
		}
		time.Sleep(10 * time.Millisecond) // there is nothing to wait on but the process table
	}
	if f := family(os.Getpid()); !slices.Contains(f, child.Process.Pid) {
		t.Errorf("own family %v lacks child %d", f, child.Process.Pid)
	}
	own, err := pss(os.Getpid())
	if err != nil || own < 1<<20 {
		t.Errorf("own memory %d, %v", own, err)
	}
	if _, err := pss(1 << 29); err == nil {
		t.Error("a process that isn't there has memory")
	}
	if cpuOf([]int{os.Getpid()}) < 0 || ownCPU() <= 0 {
		t.Error("no CPU time")
	}
}
