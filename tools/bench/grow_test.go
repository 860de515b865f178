package bench

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// growQuickly runs parts of --grow with our own masters, and returns what was measured.
func growQuickly(t *testing.T, args ...string) *Report {
	t.Helper()
	program, dir := ownProgram(t), t.TempDir()
	t.Setenv("TMPDIR", dir)
	report := filepath.Join(dir, "report.json")
	var stdout, stderr bytes.Buffer
	code := Command(t.Context(), append([]string{"--grow", "--quick", "--binary", program,
		"--json", report}, args...), &stdout, &stderr)
	t.Log(stdout.String())
	if code != exitGood || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	return readReport(t, report)
}

// More minions come to one master, and all of them answer, by glob and by grain; larger jobs go to
// two sizes of clusters.
func TestGrowMinionsAndSizes(t *testing.T) {
	r := growQuickly(t, "--parts", "minions,sizes", "--fleet", "1,7", "--job-sizes", "1,300",
		"--minions", "5", "--workers", "2", "--seconds", "0.3", "--warmup", "0")
	var names []string
	for _, c := range r.Columns {
		names = append(names, c.Name)
		for _, f := range c.Figures {
			if f.Value <= 0 || strings.Contains(f.Note, "only") {
				t.Errorf("%s: %+v", c.Name, f)
			}
		}
		for _, l := range c.Loads {
			if l.Answered == 0 || l.Failed > 0 {
				t.Errorf("%s: %+v", c.Name, l)
			}
		}
	}
	if got := strings.Join(names,
		"; "); got != "0 minions; 1 minion; 7 minions; 1 master, jobs of 1 KB; 1 master, jobs of 300 KB; 3 masters, jobs of 1 KB; 3 masters, jobs of 300 KB" {
		t.Errorf("measured %s", got)
	}
}

func TestGrowMasters(t *testing.T) {
	r := growQuickly(t, "--parts", "masters", "--sizes", "1,2", "--minions", "4", "--workers",
		"4", "--seconds", "0.3", "--warmup", "0")
	if len(r.Columns) != 2 || len(r.Columns[1].Masters) != 2 {
		t.Fatalf("%+v", r.Columns)
	}
	for _, c := range r.Columns {
		if len(c.Loads) != 5 || len(c.Figures) < 6 {
			t.Errorf("%s: %d loads and %d figures", c.Name, len(c.Loads), len(c.Figures))
		}
		for _, l := range c.Loads {
			if l.Answered == 0 || l.Failed > 0 {
				t.Errorf("%s: %+v", c.Name, l)
			}
		}
	}
}

func TestSizeNames(t *testing.T) {
	t.Parallel()
	for kb, want := range map[int]string{1: "1 KB", 100: "100 KB", 1000: "1 MB"} {
		if got := sizeName(kb); got != want {
			t.Errorf("%d: %s, want %s", kb, got, want)
		}
		got := textOf(1000 * kb)
		if len(got) != 1000*kb || strings.Contains(got[100:], got[:50]) {
			t.Errorf("text of %d KB: %d bytes", kb, len(got))
		}
	}
}
