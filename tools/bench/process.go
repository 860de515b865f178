package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of CPU times in /proc/PID/stat; Linux shows 1/100 s on all machines.
const clockTick = 10 * time.Millisecond

// procStat is what /proc/PID/stat says of a process.
type procStat struct {
	parent int
	cpu    time.Duration // user and system, all threads
}

// readStat reads a process; the name in it, which may hold blanks and brackets, is skipped.
func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b)
}

func parseStat(b []byte) (procStat, error) {
	_, rest, ok := bytes.Cut(b[max(bytes.LastIndexByte(b, ')'), 0):], []byte(") "))
	f := bytes.Fields(rest) // from the third field of proc(5) on
	if !ok || len(f) < 13 {
		return procStat{}, fmt.Errorf("read process state %.60q: unknown form", b)
	}
	var n [3]int64
	for i, at := range []int{1, 11, 12} {
		v, err := strconv.ParseInt(string(f[at]), 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("read process state: %w", err)
		}
		n[i] = v
	}
	return procStat{parent: int(n[0]), cpu: time.Duration(n[1]+n[2]) * clockTick}, nil
}

// family is a process and all that descend from it.
func family(pid int) []int {
	parent := make(map[int]int)
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		p, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if st, err := readStat(p); err == nil {
			parent[p] = st.parent
		}
	}
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		for child, p := range parent {
			if p == out[i] {
				out = append(out, child)
			}
		}
	}
	return out
}

// pss is the proportional share of memory of a process and its descendants, in bytes: pages
// that they share count once.
func pss(pid int) (int64, error) { return pssOf(family(pid)) }

// pssBelow is that of the descendants alone.
func pssBelow(pid int) (int64, error) {
	whole := family(pid)
	all, err := pssOf(whole)
	if err != nil {
		return 0, err
	}
	own, err := pssOf(whole[:1])
	return max(all-own, 0), err
}

// pssOf is that of some processes. It is an error if the first can't be read; the others may have
// ended meanwhile.
func pssOf(pids []int) (int64, error) {
	var sum int64
	for i, p := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p))
		if err == nil {
			var n int64
			if n, err = parsePSS(b); err == nil {
				sum += n
				continue
			}
		}
		if i == 0 {
			return 0, fmt.Errorf("read memory of process %d: %w", p, err)
		}
	}
	return sum, nil
}

func parsePSS(b []byte) (int64, error) {
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "Pss:")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) == 2 && f[1] == "kB" {
			n, err := strconv.ParseInt(f[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("no line Pss in %d bytes of smaps_rollup", len(b))
}

// cpuOf is the CPU time of processes and their living descendants.
func cpuOf(pids []int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		for _, p := range family(pid) {
			if st, err := readStat(p); err == nil {
				sum += st.cpu
			}
		}
	}
	return sum
}

// ownCPU is the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// openFilesLimit is how many files this process may have open, and a master that it starts: the Go
// runtime has raised the soft limit to the hard one, as Salt's master does.
func openFilesLimit() (int, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("read limit of open files: %w", err)
	}
	return int(min(l.Cur, 1<<30)), nil
}

// Machine is where a report was made.
type Machine struct {
	CPUs     int    `json:"cpus"`
	CPU      string `json:"cpu"`
	MemoryMB int64  `json:"memory_mb"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
}

func thisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	var u syscall.Utsname
	if syscall.Uname(&u) == nil {
		var release []byte
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			release = append(release, byte(c))
		}
		m.Kernel = string(release)
	}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		m.MemoryMB = int64(uint64(info.Totalram) * uint64(info.Unit) >> 20) //nolint:unconvert // by CPU
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if name, ok := strings.CutPrefix(s.Text(), "model name"); ok {
				m.CPU = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	return m
}

func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), %d MB, Linux %s, %s", m.CPUs, m.CPU, m.MemoryMB,
		m.Kernel, m.Go)
}

// LoadAverage is the mean number of runnable processes over 1, 5 and 15 minutes.
type LoadAverage [3]float64

func thisLoad() LoadAverage {
	var l LoadAverage
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		for i, v := range info.Loads {
			l[i] = float64(v) / (1 << 16)
		}
	}
	return l
}

func (l LoadAverage) String() string { return fmt.Sprintf("%.2f, %.2f, %.2f", l[0], l[1], l[2]) }
