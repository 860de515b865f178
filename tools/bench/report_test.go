package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func sampleReport() *Report {
	one := Column{Name: "1 master", Masters: []string{"127.64.1.1:4506"}, Minions: 100, Workers: 32}
	a := newAccount()
	a.Due, a.Answered, a.Failed, a.Unsent, a.Completed = 61710, 61700, 7, 3, 61699
	a.Took, a.Err = 5*time.Second, errors.New("await reply: connection closed")
	for i := range 1000 {
		a.record(time.Duration(i+1) * time.Millisecond)
	}
	closed, open := Load{Request: "_return", GeneratorCPU: 0.21,
		MastersCPU: 0.6}, Load{Request: "_return", Rate: 6000, GeneratorCPU: 0.2, MastersCPU: 0.4}
	closed.fill(&a)
	a.Err, a.Failed, a.Answered = nil, 0, 61707
	open.fill(&a)
	one.Loads = []Load{closed, open, {Request: "_pillar",
		Err: "check of 127.64.1.1:4506: _pillar: authentication error"}}
	one.add("start to ready", 0.4213, "s", "")
	one.addMemory("memory (PSS) of a master, idle", []int64{44 << 20}, "")
	three := Column{Name: "3 masters", Masters: []string{"127.64.1.1:4506", "127.64.1.2:4506"},
		Minions: 100, Workers: 32, Loads: []Load{open, closed}}
	three.addMemory("memory (PSS) of a master, idle", []int64{44 << 20, 47 << 20, 45 << 20}, "")
	three.add("kill -9 of the leader to the answer of all 100 minions", 2.62, "s", "one test.ping")
	return &Report{Made: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		Machine: Machine{CPUs: 2, CPU: "Some CPU", MemoryMB: 4096, Kernel: "6.18", Go: "go1.26"},
		Columns: []Column{one, three}}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	r := sampleReport()
	var out bytes.Buffer
	for _, c := range r.Columns {
		printColumn(&out, &c)
	}
	out.WriteByte('\n')
	table(&out, r.Summary())
	golden(t, "report.txt", out.Bytes())
}

func TestJSON(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out.json")
	r := sampleReport()
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", b)
	var back Report
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(&back, r) {
		t.Errorf("read back: %v: %+v", err, back)
	}
	if err := r.write(filepath.Join(path, "no")); err == nil {
		t.Error("written below a file")
	}
}
