package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// turns limits how many tests have processes at the same time, over all test programs of the
// machine. A few always may. More may while the machine has time for them: beside too many, or on a
// slow machine, minions and masters miss limits of their own, which no test can lengthen.
type turns struct {
	dir      string        // of the files that are locked: one per turn, and the door
	always   int           // tests that need not ask whether the machine is crowded
	crowded  func() bool   // whether one more test would be one too many
	settle   time.Duration // how long it takes until a test that began shows in crowded
	patience time.Duration // the longest wait, for tests that wait for each other
}

// mostTurns is the number of turns that are counted.
const mostTurns = 32

var machineTurns = sync.OnceValue(func() *turns {
	c := watchCrowd()
	return &turns{
		dir:    filepath.Join(os.TempDir(), fmt.Sprintf("clustermaster-turns-%d", os.Getuid())),
		always: 3, crowded: c.dense,
		settle: 1500 * time.Millisecond, patience: 5 * time.Minute,
	}
})

// take waits for a turn. release gives it back, and so does the end of this program.
func (q *turns) take() (release func(), err error) {
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		return nil, err
	}
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); ; <-look.C {
		door, err := q.lock("door")
		if err != nil {
			return nil, err
		}
		if door == nil {
			continue // another test looks, or has just begun
		}
		turn, taken, err := q.free()
		late := time.Since(began) > q.patience
		switch {
		case err != nil:
			door.Close()
			return nil, err
		case taken < q.always || late:
			door.Close()
		case q.crowded():
			door.Close()
			if turn != nil {
				turn.Close()
			}
			continue
		default:
			time.AfterFunc(q.settle, func() { door.Close() })
		}
		if turn == nil { // more than are counted
			return func() {}, nil
		}
		return func() { turn.Close() }, nil
	}
}

// free locks a free turn, if there is one, and counts those that are taken.
func (q *turns) free() (turn *os.File, taken int, err error) {
	for n := range mostTurns {
		f, err := q.lock(strconv.Itoa(n))
		switch {
		case err != nil:
			if turn != nil {
				turn.Close()
			}
			return nil, 0, err
		case f == nil:
			taken++
		case turn == nil:
			turn = f
		default:
			f.Close()
		}
	}
	return turn, taken, nil
}

// lock returns nil if another has locked the file.
func (q *turns) lock(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(q.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if err == syscall.EWOULDBLOCK {
			return nil, nil
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// turnsTaken are the tests of this program that have a turn, or wait for one until the channel is
// closed.
var turnsTaken struct {
	sync.Mutex
	tests map[string]chan struct{}
}

// takeTurn waits for t's turn, which ends with t. Its subtests need none of their own.
func takeTurn(t testing.TB) {
	t.Helper()
	turnsTaken.Lock()
	for name := t.Name(); name != ""; name = parent(name) {
		if taken := turnsTaken.tests[name]; taken != nil {
			turnsTaken.Unlock()
			<-taken
			return
		}
	}
	if turnsTaken.tests == nil {
		turnsTaken.tests = map[string]chan struct{}{}
	}
	taken := make(chan struct{})
	turnsTaken.tests[t.Name()] = taken
	turnsTaken.Unlock()
	defer close(taken)
	release, err := machineTurns().take()
	if err != nil {
		t.Fatalf("wait for the machine: %v", err)
	}
	t.Cleanup(func() {
		turnsTaken.Lock()
		delete(turnsTaken.tests, t.Name())
		turnsTaken.Unlock()
		release()
	})
}

// parent is the name of the test that a subtest belongs to; "" for a test.
func parent(name string) string { return name[:max(strings.LastIndexByte(name, '/'), 0)] }

// crowd measures how much slower than alone on a fast machine a thread gets on, of late.
type crowd struct {
	mu      sync.Mutex
	waiting float64 // threads that want a processor, per processor
	busy    float64 // part of the processors' time
	slow    float64 // processor time of a piece of work, in that of the fast machine
}

// watchCrowd measures as long as the program runs.
func watchCrowd() *crowd {
	const every, memory, work = 200 * time.Millisecond, 2 * time.Second, 10 * time.Second
	was, at := readMachine(), time.Now()
	c := &crowd{waiting: was.waiting(), slow: slowness()}
	go func() {
		tick := time.NewTicker(every)
		for n := 1; ; n++ {
			<-tick.C
			is := readMachine()
			busy := float64(is.busy-was.busy) / float64(is.processors) / float64(time.Since(at))
			was, at = is, time.Now()
			c.mu.Lock()
			const part = float64(every) / float64(memory)
			c.waiting += (is.waiting() - c.waiting) * part
			c.busy += (busy - c.busy) * part
			c.mu.Unlock()
			if n%int(work/every) == 0 {
				slow := slowness()
				c.mu.Lock()
				c.slow += (slow - c.slow) / 3
				c.mu.Unlock()
			}
		}
	}()
	return c
}

// dense reports whether one more test would make the others late: no processor has time left, and a
// thread gets on at less than a third of its speed.
func (c *crowd) dense() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy > 0.9 && max(c.waiting, 1)*max(c.slow, 1) > 3
}

// waiting is how many threads there are for each processor. It counts those that run and those that
// wait for a processor, but not the one that asks.
func (m machine) waiting() float64 {
	return float64(max(m.running-1, 0)) / float64(max(m.processors, 1))
}

// slowness is how much processor time a piece of work needs, compared with the machine for which
// limits were chosen. What others use meanwhile does not count.
func slowness() float64 {
	const fast = 3500 * time.Microsecond
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
			return 0
		}
		return time.Duration(ts.Nano())
	}
	before := used()
	sum := uint64(14695981039346656037)
	for i := range uint64(2e6) {
		sum = (sum ^ i) * 1099511628211
	}
	pages, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 1
	}
	for n := 0; n < len(pages); n += os.Getpagesize() {
		pages[n] = byte(sum)
	}
	if err := unix.Munmap(pages); err != nil {
		return 1
	}
	return float64(used()-before) / float64(fast)
}
