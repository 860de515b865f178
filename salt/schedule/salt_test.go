package schedule

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/test/answers"
	"clustermaster/value"
	"clustermaster/value/dateutil"
	"clustermaster/value/yaml11"
)

var update = flag.Bool("update", false, "ask Salt for testdata/runs.json again")

// saltsAnswers is what Salt made of testdata/cases.yml.
type saltsAnswers struct {
	Runs       map[string][]string `json:"runs"`
	When, Cron map[string][]string
}

const form = "2006-01-02 15:04:05"

func load(t testing.TB, path string) value.Map {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := yaml11.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := v.(value.Map)
	return m
}

// askSalt runs Salt's own Schedule, dateutil and croniter.
func askSalt(t *testing.T) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv("CLUSTERMASTER_SALT_VENVS"), "salt-3008.3", "bin",
		"python"), "testdata/runs.py", "testdata/cases.yml")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return out
}

func salts(t *testing.T) (a saltsAnswers) {
	t.Helper()
	const path = "testdata/runs.json"
	if *update {
		if err := os.WriteFile(path, askSalt(t), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAnswersAreSalts asks Salt again whether the kept answers are still its own.
func TestAnswersAreSalts(t *testing.T) {
	t.Parallel()
	answers.OnlyLong(t, false)
	if os.Getenv("CLUSTERMASTER_SALT_VENVS") == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	want, err := os.ReadFile("testdata/runs.json")
	if err != nil {
		t.Fatal(err)
	}
	if now := askSalt(t); !bytes.Equal(now, want) {
		t.Error("Salt now says something else: go test -run TestRuns -update, and read the diff")
	}
}

// differences are the cases in which ours is meant to do something else, with the reason.
var differences = map[string]struct {
	ours []string
	why  string
}{
	"once": {[]string{"2026-11-21 10:00:30 j test.arg"},
		"Salt runs it at every look of loop_interval seconds: as often as other entries make it look"},
	"once by a form": {[]string{"2026-11-21 10:00:00 j test.arg"}, "as above"},
	"after and until": {
		[]string{"2026-11-21 10:00:21 j test.arg", "2026-11-21 10:00:28 j test.arg",
			"2026-11-21 10:00:35 j test.arg"},
		"in Salt the last one of range, skip_during_range, until and after that is looked at decides alone",
	},
	"another function in a range": {
		[]string{
			"2026-11-21 10:00:00 j test.arg", "2026-11-21 10:00:07 j test.arg",
			"2026-11-21 10:00:14 j test.arg", "2026-11-21 10:00:21 j test.ping",
			"2026-11-21 10:00:28 j test.ping", "2026-11-21 10:00:35 j test.ping",
			"2026-11-21 10:00:42 j test.arg", "2026-11-21 10:00:49 j test.arg",
			"2026-11-21 10:00:56 j test.arg",
		},
		"in Salt the other function stays in place of the entry's after the range",
	},
}

// simulate makes steps as the leader does, on the case's clock.
func simulate(t *testing.T, c value.Map) (runs []string) {
	t.Helper()
	number := func(key string, other int64) time.Duration {
		if v, ok := c.Get(key); ok {
			n, _ := v.(int64)
			other = n
		}
		return time.Duration(other) * time.Second
	}
	v, err := yaml11.Load([]byte(c.String("schedule")))
	if err != nil {
		t.Fatal(err)
	}
	option, _ := v.(value.Map)
	entries, _ := Read(option)
	start, err := time.Parse(form, c.String("start"))
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]fsm.Scheduled{}
	for now := start; !now.After(start.Add(number("for", 0))); now = now.Add(number("step", 1)) {
		for _, e := range entries {
			next, d, err := e.Step(states[e.Name],
				Clock{Now: now, Window: number("loop", 1),
					Random: func(n int64) int64 { return n - 1 }})
			if err != nil {
				continue
			}
			states[e.Name] = next
			if d.Run {
				runs = append(runs, fmt.Sprintf("%s %s %s", now.Format(form), e.Name, d.Function))
			}
		}
	}
	return runs
}

// TestRuns compares when entries run with Salt's own Schedule on the same clock.
func TestRuns(t *testing.T) {
	t.Parallel()
	want := salts(t)
	v, _ := load(t, "testdata/cases.yml").Get("cases")
	cases, _ := v.([]any)
	if len(cases) < 50 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		c, _ := c.(value.Map)
		name := c.String("name")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs, ok := want.Runs[name]
			if !ok {
				t.Fatal("no answer of Salt: go test -run TestRuns -update")
			}
			if d, ok := differences[name]; ok {
				if d.why == "" || slices.Equal(theirs, d.ours) {
					t.Error("ours is not different any more")
				}
				theirs = d.ours
			}
			if got := simulate(t, c); !slices.Equal(got, theirs) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(theirs, "\n"))
			}
		})
	}
}

// TestTexts compares what texts of when and cron mean with dateutil and croniter.
func TestTexts(t *testing.T) {
	t.Parallel()
	want := salts(t)
	at, err := time.Parse(form, load(t, "testdata/cases.yml").String("at"))
	if err != nil {
		t.Fatal(err)
	}
	const iso = "2006-01-02T15:04:05"
	for _, text := range slices.Sorted(maps.Keys(want.When)) {
		theirs := want.When[text]
		got := []string{"error"}
		if w, err := dateutil.Parse(text); err == nil {
			if on, err := w.On(at); err == nil {
				got = []string{on.Format(iso)}
				if on.Nanosecond() != 0 {
					got = []string{on.Format(iso + ".000000")}
				}
			}
		}
		if zoned := strings.Contains(theirs[0], "+"); zoned {
			// Salt reads it, and then can't compare it with its own clock
			theirs = []string{"error"}
		}
		if !slices.Equal(got, theirs) {
			t.Errorf("when %q: got %s, want %s", text, got, theirs)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(want.Cron)) {
		got := []string{"error"}
		if c, err := parseCron(text); err == nil {
			got = nil
			for next := at; len(got) < 4; {
				next = c.next(next)
				got = append(got, next.Format(iso))
			}
		}
		if !slices.Equal(got, want.Cron[text]) {
			t.Errorf("cron %q: got %s, want %s", text, got, want.Cron[text])
		}
	}
}
