package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// own runs a command of clustermaster against a master.
func (m *Master) own(t *testing.T, name string, args ...string) Result {
	t.Helper()
	return Command(t, filepath.Join(filepath.Dir(m.programs.Master), "clustermaster"),
		append([]string{name, "-c", m.ConfDir}, args...)...)
}

// TestLookingAtACluster runs status, members and watch on a healthy cluster, on one with a dead
// master, and without a master. It also makes dry runs of orders.
func TestLookingAtACluster(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{})
	m1, m3 := c.Masters[0], c.Masters[2]
	if r := m1.own(t, "status"); r.Code != 2 ||
		!strings.Contains(r.Stderr, "no master answers on this machine (configuration "+
			m1.ConfDir+")") {
		t.Errorf("without a master: %v", r)
	}
	if r := m1.own(t, "doctor"); r.Code == 0 ||
		!strings.Contains(r.Stdout, "no master runs here") ||
		!strings.Contains(r.Stdout, "the master at "+m3.Addr+":4520 does not answer") {
		t.Errorf("doctor without a master: %v", r)
	}
	m2 := c.Masters[1]
	m1.Run(t)
	Eventually(t, 30*time.Second, "status names the silent masters", func() error {
		r := m1.own(t, "status")
		if r.Code != 1 || !strings.Contains(r.Stdout, "master1: 1 problem; it is no member of a cluster") ||
			!strings.Contains(r.Stdout, "problem: master1 is not a member of the cluster that cluster_id names") ||
			!strings.Contains(r.Stdout, m3.Addr+":4520") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if r := m1.own(t, "watch", "--until", "healthy", "--timeout", "0.5"); r.Code != 1 {
		t.Errorf("watch until a cluster is founded: %v", r)
	}
	m1.Stop(t, 20*time.Second)
	m2.Configure(t, m2.Config(t)+"worker_threads: 7\nkeep_jobs_seconds: 4000\n")
	if err := os.WriteFile(filepath.Join(m3.Dir, "srv", "top.sls"), []byte("base: {}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	c.StartMasters(t)
	for _, m := range c.Masters {
		if r := m.own(t, "watch", "--until", "settled", "--timeout", "60", "-n",
			"0.3"); r.Code != 0 {
			t.Fatalf("watch: %v", r)
		}
	}
	m1.doctor(t, "", "keep_jobs_seconds is missing on master1, master3",
		"file_roots base: top.sls is missing on master1, master2", "5 ports are as they should be")
	if r := m1.own(t, "status"); r.Code != 0 ||
		!strings.Contains(r.Stdout,
			"healthy: 3 of 3 masters ready, 3 of 3 voters in contact (2 needed), leader master") {
		t.Errorf("status: %v", r)
	}
	if r := m3.own(t, "members"); r.Code != 0 || strings.Count(r.Stdout, "\n") != 4 ||
		!strings.Contains(r.Stdout, m1.Addr+":4520") {
		t.Errorf("members: %v", r)
	}
	for _, order := range [][]string{{"cluster.remove", "master3"}, {"cluster.demote", "master3"},
		{"cluster.drain", "master3"}, {"cluster.rotate_secret"}, {"cluster.rotate_keys"}} {
		if r := m1.Runner(t, append([]string{"--dry-run"}, order...)...); r.Code != 0 ||
			!strings.Contains(r.Stdout, "would_") {
			t.Errorf("dry run: %v", r)
		}
	}
	if r := m1.Runner(t, "--dry-run", "test.arg", "x"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "test.arg has no dry run; nothing was called") {
		t.Errorf("dry run of what has none: %v", r)
	}
	if members, err := m1.Members(t); err != nil || len(members.Voters) != 3 {
		t.Errorf("after dry runs: %+v, %v", members, err)
	}
	m3.Kill(t)
	var seen struct {
		Health struct {
			Healthy  bool
			Problems []string
		}
	}
	Eventually(t, 30*time.Second, "status tells of the dead master", func() error {
		r := m1.own(t, "status", "--json")
		if err := json.Unmarshal([]byte(r.Stdout), &seen); err != nil || r.Code != 1 ||
			seen.Health.Healthy || !strings.Contains(fmt.Sprint(seen.Health.Problems),
			"master3 is unreachable") {
			return fmt.Errorf("%v (%w)", r, err)
		}
		return nil
	})
	m1.doctor(t, m1.Addr, "master3 is unreachable", "it gave no report",
		"a master answers at "+m1.Addr+":4505", "a master answers at "+m1.Addr+":4506")
	if r := m1.own(t, "watch", "--until", "healthy", "--timeout", "1", "-n", "0.3"); r.Code != 1 ||
		!strings.Contains(r.Stderr, "not healthy after 1 s") {
		t.Errorf("watch: %v", r)
	}
	if r := m1.own(t, "watch", "--until", "monday"); r.Code != 64 ||
		!strings.Contains(r.Stderr, "use healthy or settled") {
		t.Errorf("watch: %v", r)
	}
}

// doctor runs clustermaster doctor --all and looks for texts of findings.
func (m *Master) doctor(t *testing.T, balancer string, want ...string) {
	t.Helper()
	r := m.own(t, "doctor", "--all", "--json", "--balancer", balancer)
	type findings []struct{ Check, Level, Text, Remedy string }
	var page struct {
		Masters []struct {
			Master   string
			Findings findings
		}
		Cluster findings
	}
	if err := json.Unmarshal([]byte(r.Stdout), &page); err != nil {
		t.Fatalf("%v\n%v", err, r)
	}
	var all findings
	for _, one := range page.Masters {
		all = append(all, one.Findings...)
	}
	all = append(all, page.Cluster...)
	if len(page.Masters) != 3 || r.Code == 0 {
		t.Errorf("doctor: %v", r)
	}
	for _, w := range want {
		if !strings.Contains(fmt.Sprint(all), w) {
			t.Errorf("doctor: no %q in\n%v", w, r)
		}
	}
}
