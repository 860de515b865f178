package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, want string }{
		{"", "give one of --master HOST, --self, --grow and --compare VENV"},
		{"--self --master a",
			"give one of --master HOST, --self, --grow and --compare VENV"},
		{"--master a b", `unexpected argument "b"`},
		{"--master a:0", "want HOST, HOST:PORT"},
		{"--master a:b:c", "want HOST, HOST:PORT"},
		{"--master a --minions 0", "--minions 0: want 1 to"},
		{"--master a --minions 5 --workers 6", "--workers 6: want 1 to 5"},
		{"--master a --seconds NaN", "--seconds NaN: want"},
		{"--master a --rate 0", `rate "0": want requests per second`},
		{"--master a --rate -5%", "want requests per second"},
		{"--master a --rate fast", "want requests per second"},
		{"--master a --only nosuch", `unknown request "_nosuch"; there are _auth`},
		{"--master a --only serve_file", "_serve_file needs --file"},
		{"--self --fleet 10,10", "--fleet 10: want 0 to 10000, each more than the one before"},
		{"--self --fleet 10001", "--fleet 10001: want"},
		{"--grow --self", "give one of"},
		{"--grow --parts masters,nosuch", "--parts nosuch: want some of minions,masters"},
		{"--grow --job-sizes 0", "--job-sizes 0: want 1 to 1000"},
		{"--nosuch", "unknown flag: --nosuch"},
	} {
		var stdout, stderr bytes.Buffer
		if code := Command(t.Context(), strings.Fields(tt.args), &stdout,
			&stderr); code != exitUsage || !strings.Contains(stderr.String(), tt.want) ||
			stdout.Len() > 0 {
			t.Errorf("%q: exit code %d: %s", tt.args, code, stderr.String())
		}
	}
	var stdout, stderr bytes.Buffer
	if code := Command(t.Context(), []string{"--help"}, &stdout, &stderr); code != exitGood ||
		stderr.Len() > 0 ||
		!strings.Contains(stdout.String(), "Examples:") ||
		!strings.Contains(stdout.String(), "--only return,minion_event --rate 50%\n") {
		t.Errorf("--help: %d: %s%s", code, stdout.String(), stderr.String())
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args                     string
		master                   string
		minions, workers         int
		seconds                  float64
		kinds                    string
		perSecond, share, warmup float64
	}{
		{"--master salt", "salt:4506", 100, 32, 5,
			"_auth _return _minion_event _pillar _mine _mine_get _file_list", 0, 0, 1},
		{"--master salt:99 --minions 7", "salt:99", 7, 7, 5,
			"_auth _return _minion_event _pillar _mine _mine_get _file_list", 0, 0, 1},
		{"--master ::1 --quick --rate 50%", "[::1]:4506", 32, 16, 1,
			"_auth _return _minion_event _pillar _mine _mine_get _file_list", 0, 0.5, 0.3},
		{"--master [::1]:9 --quick --seconds 2 --rate 700", "[::1]:9", 32, 16, 2,
			"_auth _return _minion_event _pillar _mine _mine_get _file_list", 700, 0, 0.3},
		{"--master a --file x --only _return,serve_file,pillar+40sls", "a:4506", 100, 32, 5,
			"_return _serve_file _pillar+40sls", 0, 0, 1},
		{"--master a --file x", "a:4506", 100, 32, 5,
			"_auth _return _minion_event _pillar _mine _mine_get _file_list _file_hash _serve_file",
			0, 0, 1},
	} {
		f, _, err := parseFlags(strings.Fields(tt.args))
		if err != nil {
			t.Errorf("%q: %v", tt.args, err)
			continue
		}
		b, err := newBencher(f, new(bytes.Buffer), new(bytes.Buffer))
		if err != nil {
			t.Errorf("%q: %v", tt.args, err)
			continue
		}
		var names []string
		for _, k := range b.kinds {
			names = append(names, k.name)
		}
		if f.masters[0] != tt.master || f.minions != tt.minions || f.workers != tt.workers ||
			f.seconds != tt.seconds || f.warmup != tt.warmup ||
			strings.Join(names, " ") != tt.kinds || b.rate != (rate{tt.perSecond, tt.share}) {
			t.Errorf("%q: %+v, kinds %v, rate %v", tt.args, f, names, b.rate)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	var stdout, stderr bytes.Buffer
	if code := Command(t.Context(), []string{"--master", addr, "--quick", "--keys",
		filepath.Join(t.TempDir(), "keys.pem")}, &stdout, &stderr); code != exitBad ||
		!strings.Contains(stderr.String(), "connection refused") {
		t.Errorf("%d: %s", code, stderr.String())
	}
}

// The generator measures Salt's own master: all its answers are the right ones.
func TestAgainstRealMaster(t *testing.T) {
	venvs := e2e.Venvs(t)
	dir, err := os.MkdirTemp("", "bench") // short: a unix socket path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	host := fmt.Sprintf("127.%d.%d.7", 64+os.Getpid()%64, 1+os.Getpid()/64%250)
	if err := makeTree(dir, roots()); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("root_dir: %s\ninterface: %s\nid: real\nuser: root\nauto_accept: true\nworker_threads: 2\nlog_level: warning\n"+
		"enable_fqdns_grains: false\nfile_roots: {base: [%s/files]}\npillar_roots: {base: [%s/pillar]}\n", dir,
		host, dir, dir)
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	master := exec.Command(filepath.Join(venvs, "salt-3008.3", "bin", "salt-master"), "-c", dir)
	master.Stdout, master.Stderr = out, out
	master.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := master.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-master.Process.Pid, syscall.SIGTERM)
		late := time.AfterFunc(10*time.Second,
			func() { syscall.Kill(-master.Process.Pid, syscall.SIGKILL) })
		defer late.Stop()
		master.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	for started := (&masterProcess{host: host}); !answers(key)(ctx, started); {
		if !sleepUntil(ctx, time.Now().Add(200*time.Millisecond)) {
			b, _ := os.ReadFile(out.Name())
			t.Fatalf("the master at %s does not answer\n%s", host, b)
		}
	}

	report, keys := filepath.Join(dir, "report.json"), filepath.Join(dir, "new", "keys.pem")
	var stdout, stderr bytes.Buffer
	code := Command(ctx, []string{"--master", host, "--quick", "--minions", "8", "--workers", "4",
		"--seconds", "0.5", "--file", benchFile,
		"--only",
		"auth,return,minion_event,pillar,pillar+grains,mine,mine_get,file_list,file_hash,serve_file",
		"--rate", "30%", "--keys", keys,
		"--json", report}, &stdout, &stderr)
	t.Log(stdout.String())
	if code != exitGood || stderr.Len() > 0 {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	checkReport(t, report, 1, 20, 0)

	// A second run has the keys that the master knows; one with others is told what to do.
	args := []string{"--master", host, "--quick", "--minions", "2", "--seconds", "0.1", "--only",
		"minion_event", "--keys"}
	if code := Command(ctx, append(args, keys), &stdout, &stderr); code != exitGood {
		t.Errorf("second run: exit code %d: %s", code, stderr.String())
	}
	if code := Command(ctx, append(args, filepath.Join(dir, "others.pem")), &stdout,
		&stderr); code != exitBad || !strings.Contains(stderr.String(), "take another --prefix") {
		t.Errorf("other keys: exit code %d: %s", code, stderr.String())
	}
}

// readReport reads what --json wrote.
func readReport(t *testing.T, path string) *Report {
	t.Helper()
	r := new(Report)
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkReport reads a report and checks that it says something of everything.
func checkReport(t *testing.T, path string, columns, loads, figures int) {
	t.Helper()
	r := readReport(t, path)
	if len(r.Columns) != columns || r.Machine.CPUs == 0 {
		t.Fatalf("%d columns, want %d: %+v", len(r.Columns), columns, r)
	}
	for _, c := range r.Columns {
		if len(c.Loads) != loads || len(c.Figures) < figures {
			t.Errorf("%s: %d loads and %d figures, want %d and at least %d", c.Name, len(c.Loads),
				len(c.Figures), loads, figures)
		}
		for _, l := range c.Loads {
			if l.Answered == 0 || l.PerSecond <= 0 || l.Failed > 0 || l.Err != "" ||
				l.Due != l.Answered+l.Unsent || l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.Max ||
				l.GeneratorCPU <= 0 {
				t.Errorf("%s: %+v", c.Name, l)
			}
		}
		for _, f := range c.Figures {
			if f.Value <= 0 || f.Unit == "" || strings.Contains(f.Note, "only") {
				t.Errorf("%s: %+v", c.Name, f)
			}
		}
	}
}

// ownProgram is the path of our own binary, as it is now.
func ownProgram(t *testing.T) string {
	t.Helper()
	return filepath.Join(filepath.Dir(e2e.Ours(t).Master), "clustermaster")
}

// The whole of --self, with our own masters.
func TestSelf(t *testing.T) {
	program := ownProgram(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	report := filepath.Join(dir, "report.json")
	var stdout, stderr bytes.Buffer
	code := Command(t.Context(), []string{"--self", "--quick", "--binary", program, "--json", report,
		"--seconds", "0.1", "--warmup", "0", "--minions", "12", "--workers", "6", "--fleet", "4,9", "--only",
		"auth,return,minion_event,pillar,pillar+grains,pillar+40sls,mine,mine_get,file_list"},
		&stdout, &stderr)
	t.Log(stdout.String())
	if code != exitGood || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	checkReport(t, report, 2, 10, 11)
	if left, _ := filepath.Glob(filepath.Join(dir, "cm-bench-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A master that can't start is reported with the place of its output, which stays.
func TestSelfWithBrokenProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho can not\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := Command(t.Context(), []string{"--self", "--quick", "--binary", broken}, &stdout, &stderr)
	if code != exitBad || !strings.Contains(stderr.String(),
		"m1 ended at its start (exit status 3)") {
		t.Errorf("%d: %s", code, stderr.String())
	}
	outs, _ := filepath.Glob(filepath.Join(dir, "cm-bench-*", "1", "m1", "out"))
	if len(outs) != 1 {
		t.Fatalf("outputs %v", outs)
	}
	if b, _ := os.ReadFile(outs[0]); string(b) != "can not\n" {
		t.Errorf("output %q", b)
	}
}
