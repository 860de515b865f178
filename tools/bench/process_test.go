package bench

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		want     procStat
		bad      bool
	}{
		{"plain", "12 (salt-master) S 1 12 12 0 -1 4194560 100 200 0 0 150 50 7 8 20 0 9 0 1000",
			procStat{1, 2 * time.Second}, false},
		{"brackets and blanks in the name",
			"12 (a) b) (c) R 77 1 1 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 5",
			procStat{77, 30 * time.Millisecond}, false},
		{"short", "12 (x) S 1 2", procStat{}, true},
		{"no name", "12 x S 1 2", procStat{}, true},
		{"empty", "", procStat{}, true},
		{"no number", "12 (x) S 1 1 1 0 -1 0 0 0 0 0 many 2 0 0 20 0 1 0 5", procStat{}, true},
	} {
		got, err := parseStat([]byte(tt.in))
		if got != tt.want || (err != nil) != tt.bad {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

func TestParsePSS(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want int64
		bad  bool
	}{
		{"55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:    30000 kB\nPss:    20480 kB\nPss_Dirty:  100 kB\n", 20 << 20, false},
		{"Rss: 1 kB\n", 0, true},
		{"Pss: many kB\n", 0, true},
		{"", 0, true},
	} {
		if got, err := parsePSS([]byte(tt.in)); got != tt.want || (err != nil) != tt.bad {
			t.Errorf("%q: %d, %v", tt.in, got, err)
		}
	}
}

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
