package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// racing writes a variable from two goroutines if asked to, and may be ended by kill -9 after it.
const racing = `package main

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

var shared int

func main() {
	if len(os.Args) == 1 {
		fmt.Println("clean")
		return
	}
	if os.Args[1] == "raft" {
		raft.Race()
		return
	}
	go write()
	time.Sleep(50 * time.Millisecond)
	shared = 2
	if os.Args[1] == "killed" {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

func write() { shared = 1 }
`

// peer has a race between functions that are called as those of Raft's are.
const peer = `package raft

import "runtime"

type Raft struct{ id int }

func Race() {
	r := &Raft{}
	go r.startStopReplication()
	for updateLastAppended(r) == 0 {
		runtime.Gosched()
	}
}

//go:noinline
func (r *Raft) startStopReplication() { r.id = 1 }

//go:noinline
func updateLastAppended(r *Raft) int { return r.id }
`

// TestRacedPart: raced-part.sh fails a part whose processes raced, even if nothing else shows it,
// and prints what they covered.
func TestRacedPart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("sh", "-c",
		"echo 'int main(void) { return 0; }' | $(go env CC) -x c -o "+dir+"/c -").CombinedOutput(); err != nil {
		t.Skipf("needs a C compiler; run make test: %v\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "probe"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": "module github.com/hashicorp/raft\n\ngo 1.24\n",
		"raft.go": peer, "probe/main.go": racing} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-race", "-cover", "-coverpkg=./probe", "-o", program, "./probe")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script, err := filepath.Abs("../scripts/raced-part.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, command string
		code, reports int
		want          []string
	}{
		{"clean", program, 0, 0, []string{"clean\n", "coverage of the program: 25.0 %\n"}},
		// the exit code of a process that raced may be lost
		{"races", program + " race; " + program + " race; true", 1, 1, []string{
			"WARNING: DATA RACE", "main.write()", "\n  races: 1 data races in masters or commands",
			"coverage of the program: 58.3 %\n"}},
		{"killed", program + "; " + program + " killed; true", 1, 1, []string{
			"main.write()", "\n  killed: 1 data races in masters or commands",
			"coverage of the program: 25.0 %\n"}},
		{"raft", program + " raft", 0, 0, []string{"excepted: 1 reports of Raft's race on the id"}},
		{"both", program + " raft; " + program + " race", 1, 1, []string{"main.write()",
			"excepted: 1 reports of Raft's race on the id", "\n  both: 1 data races in"}},
		{"nothing", "true", 1, 0, []string{"\n  nothing: no process wrote what it covered\n"}},
		{"failed", program + "; exit 3", 1, 0, []string{"\n  failed: exit status 3, and no test failed\n",
			"coverage of the program: 25.0 %\n"}},
	} {
		var out bytes.Buffer
		kept := t.TempDir()
		code := run(&out, "", false, false, second{}, "", []string{tt.name + "=COVERAGE=" + kept + " " +
			script + " " + tt.name + " bash -c '" + tt.command + "'"})
		text := out.String()
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: not in the report: %q\n%s", tt.name, want, text)
			}
		}
		if n := strings.Count(text, "WARNING: DATA RACE"); code != tt.code || n != tt.reports {
			t.Errorf("%s: exit code %d, %d races\n%s", tt.name, code, n, text)
		}
		races, _ := os.ReadFile(filepath.Join(kept, tt.name+".races"))
		profile, _ := os.ReadFile(filepath.Join(kept, tt.name+".txt"))
		if bytes.Count(races, []byte("DATA RACE")) != tt.reports ||
			(len(profile) > 0) != (tt.name != "nothing") {
			t.Errorf("%s: kept %q and %q", tt.name, races, profile)
		}
	}
}

// TestRaced: raced.sh runs a program again if the race detector itself has crashed, at most twice,
// and never after a failure of the program's own.
func TestRaced(t *testing.T) {
	t.Parallel()
	const segv = "SIGSEGV: segmentation violation\nPC=0x4813ca m=3 sigcode=128 addr=0x0"
	for _, tt := range []struct {
		name, says string
		fails      int // runs that fail
		code, runs int
	}{
		{"passes", "", 0, 0, 1},
		{"a check", "ThreadSanitizer: CHECK failed: tsan_rtl.h", 1, 0, 2},
		{"a signal", segv, 2, 0, 3},
		{"always a signal", segv, 9, 2, 3},
		{"a panic", "panic: runtime error\n[signal SIGSEGV: segmentation violation code=0x1]", 1, 2, 1},
		{"a race", "WARNING: DATA RACE", 1, 2, 1},
		{"a race, then a signal", "WARNING: DATA RACE\n" + segv, 1, 2, 1},
		{"a failed test, then a signal", "--- FAIL: TestOne (0.00s)\n" + segv, 1, 2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program := fmt.Sprintf("echo run >>%[1]s/runs; "+
				"[ $(wc -l <%[1]s/runs) -gt %[2]d ] || { echo '%[3]s'; exit 2; }", dir, tt.fails, tt.says)
			cmd := exec.Command("../scripts/raced.sh", "sh", "-c", program)
			out, _ := cmd.CombinedOutput()
			runs, err := os.ReadFile(filepath.Join(dir, "runs"))
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			code, n := cmd.ProcessState.ExitCode(), strings.Count(string(runs), "run")
			if code != tt.code || n != tt.runs {
				t.Errorf("exit code %d after %d runs, want %d after %d:\n%s", code, n, tt.code, tt.runs, out)
			}
			if again := strings.Count(string(out), "left out: a run in which the race detector"); again < n-1 {
				t.Errorf("%d runs were repeated in silence:\n%s", n-1-again, out)
			}
		})
	}
}
