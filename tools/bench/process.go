package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// stats reads the data of all processes in /proc, by process id.
func stats() map[int]procfs.ProcStat {
	out := make(map[int]procfs.ProcStat)
	all, _ := procfs.AllProcs()
	for _, p := range all {
		if st, err := p.Stat(); err == nil { // else it has ended
			out[p.PID] = st
		}
	}
	return out
}

// family is a process and all its descendants.
func family(pid int) []int { return familyOf(pid, stats()) }

func familyOf(pid int, all map[int]procfs.ProcStat) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		for child, st := range all {
			if st.PPID == out[i] {
				out = append(out, child)
			}
		}
	}
	return out
}

// pss is the proportional set size of a process and its descendants, in bytes: pages that they
// share count once. It is an error if that of the process can't be read; the others may have ended
// meanwhile.
func pss(pid int) (sum int64, err error) {
	for _, one := range family(pid) {
		p, err := procfs.NewProc(one)
		var m procfs.ProcSMapsRollup
		if err == nil {
			m, err = p.ProcSMapsRollup()
		}
		if err != nil && one == pid {
			return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
		}
		sum += int64(m.Pss)
	}
	return sum, nil
}

// cpuOf is the CPU time of processes and their living descendants.
func cpuOf(pids []int) (sum time.Duration) {
	all := stats()
	for _, pid := range pids {
		for _, p := range familyOf(pid, all) {
			st := all[p]
			sum += time.Duration(st.CPUTime() * float64(time.Second))
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

// openFilesLimit is the number of files that this process may open, and a master that it starts:
// the Go runtime has raised the soft limit to the hard one, as Salt's master does.
func openFilesLimit() (int, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("read limit of open files: %w", err)
	}
	return int(min(l.Cur, 1<<30)), nil
}

// Machine describes the machine of a report.
type Machine struct {
	CPUs     int    `json:"cpus"`
	CPU      string `json:"cpu"`
	MemoryMB int64  `json:"memory_mb"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
}

// LoadAverage is the mean number of runnable processes over 1, 5 and 15 minutes.
type LoadAverage [3]float64

// thisMachine describes this machine as far as it can read its data.
func thisMachine() (Machine, LoadAverage) {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	var load LoadAverage
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel = strings.TrimSpace(string(release))
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m, load
	}
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPU = cpus[0].ModelName
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.MemoryMB = int64(*memory.MemTotalBytes >> 20)
	}
	if l, err := fs.LoadAvg(); err == nil {
		load = LoadAverage{l.Load1, l.Load5, l.Load15}
	}
	return m, load
}

func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), %d MB, Linux %s, %s", m.CPUs, m.CPU, m.MemoryMB,
		m.Kernel, m.Go)
}

func (l LoadAverage) String() string { return fmt.Sprintf("%.2f, %.2f, %.2f", l[0], l[1], l[2]) }
