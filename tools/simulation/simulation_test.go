package simulation

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"clustermaster/hashring"
)

// What the text says of placement holds for any size: all copies are placed, no master is empty or
// far above the mean up to 20 masters, and a change moves about the share of the one that comes or
// goes.
func TestPlacement(t *testing.T) {
	t.Parallel()
	weight := Weigh(50_000, hashring.DefaultPartitions)
	for _, n := range []int{1, 2, 3, 4, 5, 7, 10, 20, 50, 100} {
		p, err := Place(n, weight)
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(256*min(n, 3)) / float64(n); p.MeanPartitions < want-0.001 ||
			p.MeanPartitions > want+0.001 || p.Minions != 50_000 {
			t.Errorf("%d masters: %.3f partitions of %d minions, want %.3f", n, p.MeanPartitions,
				p.Minions, want)
		}
		if p.LeastPartitions < 1 || n <= 20 &&
			(p.MostMinions > 1.4 || float64(p.LeastPartitions) < 0.5*p.MeanPartitions) {
			t.Errorf("%d masters are out of balance: %+v", n, p)
		}
		if p.Join > 1.5*p.IdealJoin || p.JoinMost > p.Join || p.Leave > 1.6*p.IdealLeave+0.001 {
			t.Errorf("%d masters move too much: %+v", n, p)
		}
		again, err := Place(n, weight)
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%d masters: placed anew %+v, %v", n, again, err)
		}
	}
}

func TestAgreement(t *testing.T) {
	t.Parallel()
	a, err := Agree(100, 2000)
	if err != nil {
		t.Fatal(err)
	}
	if a.Refused != 0 || a.NewKeys <= 0 || a.Known <= 0 || a.SnapshotBytes < 2000*400 ||
		a.EntryBytes < 400 || a.EntryBytes > 700 {
		t.Errorf("%+v", a)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "simulation.json")
	var stdout, stderr bytes.Buffer
	if code := Command(t.Context(), []string{"--masters", "1,3,5", "--minions", "100,200", "--json",
		path}, &stdout, &stderr); code != 0 {
		t.Fatal(code, stderr.String())
	}
	var r Result
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || len(r.Placements) != 3 || r.Placements[2].LeastPartitions != 144 ||
		len(r.Agreements) != 2 || r.Agreements[1].Minions != 200 {
		t.Errorf("%v\n%s", err, b)
	}
	if !regexp.MustCompile(`(?m)^ +5 +144 +153\.6 +165 `).Match(stdout.Bytes()) {
		t.Errorf("printed %s", stdout.String())
	}
	for _, args := range []string{"--masters 0", "--minions 1,99999999", "extra", "--nosuch", "--masters x"} {
		stderr.Reset()
		if code := Command(t.Context(), strings.Fields(args), &stdout,
			&stderr); code != exitUsage || !strings.Contains(stderr.String(), "--help") ||
			strings.Contains(stderr.String(), "strconv") {
			t.Errorf("%s: %d %s", args, code, stderr.String())
		}
	}
}
