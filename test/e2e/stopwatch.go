package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Stopwatch measures how long something would take on a machine with time for it: the processor
// time that others used meanwhile does not count. Others are all processes except the test and
// those that it started, and Salt's programs: their starts and modules take as long as they take.
// So a master of ours that burns processor time does not get a longer limit for it. Waiting for
// anything else (a timer, a peer, a disk) counts in full.
type Stopwatch struct {
	test   string
	start  time.Time
	others time.Duration
}

// startWatch starts a stopwatch for a test, which testOf names, by figures of processes that may be
// so old.
func startWatch(test string, old time.Duration) Stopwatch {
	return Stopwatch{test: test, start: time.Now(), others: othersTime(test, old)}
}

// StartWatch starts a stopwatch for t.
func StartWatch(t testing.TB) Stopwatch { return startWatch(testOf(t), 0) }

// Took is how long it has run.
func (w Stopwatch) Took() time.Duration { return w.about(0) }

// about is Took by figures of processes that may be so old. They cost a look at every process.
func (w Stopwatch) about(old time.Duration) time.Duration {
	return undisturbed(time.Since(w.start), othersTime(w.test, old)-w.others)
}

// undisturbed is at least a quarter of the time that has passed, so that limits end on the busiest
// machine too.
func undisturbed(passed, others time.Duration) time.Duration {
	return min(passed, max(passed-others, passed/4))
}

// testOf names the top-level test: its subtests share its processes.
func testOf(t testing.TB) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

// usage is what the tests' processes use.
var usage struct {
	sync.Mutex
	groups map[int]string           // process group to test
	ended  map[string]time.Duration // processor time of processes that have ended
}

// salts reports whether a program is one of Salt's.
func salts(program string) bool {
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	return venvs != "" && strings.HasPrefix(program, venvs+"/")
}

// charge notes that the process group of a program works for a test.
func charge(test, program string, group int) {
	if salts(program) {
		return
	}
	usage.Lock()
	defer usage.Unlock()
	if usage.groups == nil {
		usage.groups, usage.ended = map[int]string{}, map[string]time.Duration{}
	}
	usage.groups[group] = test
}

// Charge notes that the process group of a started command works for t, and returns what notes its
// end, once it has been waited for.
func Charge(t testing.TB, cmd *exec.Cmd) (ended func()) {
	charge(testOf(t), cmd.Path, cmd.Process.Pid)
	return func() { discharge(cmd.Process.Pid, cmd.ProcessState) }
}

// discharge notes that the group's first process has ended.
func discharge(group int, state *os.ProcessState) {
	usage.Lock()
	defer usage.Unlock()
	if test, charged := usage.groups[group]; charged && state != nil {
		usage.ended[test] += state.UserTime() + state.SystemTime()
	}
	delete(usage.groups, group)
}

// tick is the unit of times in /proc.
const tick = time.Second / 100

// othersTime is the processor time that everything except a test has used since the machine's
// start, per processor, by figures of processes that may be so old.
func othersTime(test string, old time.Duration) time.Duration {
	m := readMachine()
	if m.processors == 0 {
		return 0
	}
	return (m.busy - testTime(test, processes(old))) / time.Duration(m.processors)
}

// machine is what /proc/stat says.
type machine struct {
	processors int
	busy       time.Duration // of all processors since the machine's start
	running    int           // threads that run or wait for a processor
}

// readMachine returns zeros if there is no /proc/stat, so that waiting for the processor counts.
func readMachine() (m machine) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == "procs_running" {
			m.running, _ = strconv.Atoi(f[1])
		}
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		if f[0] != "cpu" {
			m.processors++
			continue
		}
		for i, field := range f[1:9] {
			if i != 3 && i != 4 { // idle, iowait
				m.busy += clockTicks(field)
			}
		}
	}
	return m
}

// testTime is the processor time of this program and of everything it started for a test.
func testTime(test string, all map[int]process) time.Duration {
	usage.Lock()
	defer usage.Unlock()
	sum := usage.ended[test]
	for pid := range all {
		if chargedTo(pid, all) == test {
			sum += all[pid].used
		}
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err == nil {
		sum += time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	return sum
}

// chargedTo is the test that a process works for: that of its group or, if a program of ours gave
// it another group, of the nearest ancestor's. Its caller holds usage.
func chargedTo(pid int, all map[int]process) string {
	for own := pid; ; {
		p, is := all[pid]
		if !is {
			return ""
		}
		if test, charged := usage.groups[p.group]; charged {
			if pid != own && salts(programOf(own)) {
				return ""
			}
			return test
		}
		pid = p.parent
	}
}

// programOf is the path with which a process was started.
func programOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	path, _, _ := bytes.Cut(b, []byte{0})
	return string(path)
}

// process is what /proc says of one.
type process struct {
	parent, group int
	used          time.Duration // its own processor time and that of its ended children
}

// last are the last figures of processes.
var last struct {
	sync.Mutex
	at  time.Time
	all map[int]process
}

// processes are those of the machine, by their id, with figures that may be so old.
func processes(old time.Duration) map[int]process {
	if old == 0 {
		return readProcesses()
	}
	last.Lock()
	defer last.Unlock()
	if time.Since(last.at) > old {
		last.all, last.at = readProcesses(), time.Now()
	}
	return last.all
}

func readProcesses() map[int]process {
	all := map[int]process{}
	dir, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		// from the state on: the name may contain anything
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) < 15 {
			continue
		}
		var p process
		p.parent, _ = strconv.Atoi(f[1])
		p.group, _ = strconv.Atoi(f[2])
		for _, field := range f[11:15] {
			p.used += clockTicks(field)
		}
		all[pid] = p
	}
	return all
}

func clockTicks(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * tick
}
