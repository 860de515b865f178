package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// own runs a command of clustermaster against a master.
func (m *Master) own(t *testing.T, name string, args ...string) Result {
	t.Helper()
	return Command(t, filepath.Join(filepath.Dir(m.programs.Master), "clustermaster"), append([]string{name, "-c", m.ConfDir}, args...)...)
}

// TestLookingAtACluster runs status, members and watch on a healthy cluster, on one with a dead master, and without a master,
// and dry runs of orders.
func TestLookingAtACluster(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{})
	m1, m3 := c.Masters[0], c.Masters[2]
	if r := m1.own(t, "status"); r.Code != 2 || !strings.Contains(r.Stderr, "no master answers on this machine (configuration "+m1.ConfDir+")") {
		t.Errorf("without a master: %v", r)
	}
	c.StartMasters(t)
	if r := m1.own(t, "watch", "--until", "settled", "--timeout", "60", "-n", "0.3"); r.Code != 0 {
		t.Fatalf("watch: %v", r)
	}
	if r := m1.own(t, "status"); r.Code != 0 || !strings.Contains(r.Stdout, "healthy: 3 of 3 masters ready, 3 of 3 voters in contact (2 needed), leader master") {
		t.Errorf("status: %v", r)
	}
	if r := m3.own(t, "members"); r.Code != 0 || strings.Count(r.Stdout, "\n") != 4 || !strings.Contains(r.Stdout, m1.Addr+":4520") {
		t.Errorf("members: %v", r)
	}
	for _, order := range [][]string{{"cluster.remove", "master3"}, {"cluster.demote", "master3"}, {"cluster.drain", "master3"}, {"cluster.rotate_secret"}, {"cluster.rotate_keys"}} {
		if r := m1.Runner(t, append([]string{"--dry-run"}, order...)...); r.Code != 0 || !strings.Contains(r.Stdout, "would_") {
			t.Errorf("dry run: %v", r)
		}
	}
	if r := m1.Runner(t, "--dry-run", "test.arg", "x"); r.Code == 0 || !strings.Contains(r.Stderr, "test.arg has no dry run; nothing was called") {
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
		if err := json.Unmarshal([]byte(r.Stdout), &seen); err != nil || r.Code != 1 || seen.Health.Healthy || !strings.Contains(fmt.Sprint(seen.Health.Problems), "master3 is unreachable") {
			return fmt.Errorf("%v (%w)", r, err)
		}
		return nil
	})
	if r := m1.own(t, "watch", "--until", "healthy", "--timeout", "1", "-n", "0.3"); r.Code != 1 || !strings.Contains(r.Stderr, "not healthy after 1 s") {
		t.Errorf("watch: %v", r)
	}
	if r := m1.own(t, "watch", "--until", "monday"); r.Code != 64 || !strings.Contains(r.Stderr, "use healthy or settled") {
		t.Errorf("watch: %v", r)
	}
}
