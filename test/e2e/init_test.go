package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInit starts a cluster from the files that clustermaster init writes.
func TestInit(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{})
	dir := filepath.Join(c.Dir, "init")
	program := filepath.Join(filepath.Dir(c.programs.Master), "clustermaster")
	r := Command(t, program, "init", "--peers", strings.Join(c.Addrs(), ","), "--dir", dir,
		"--balancer", c.Base.Balancer())
	if r.Code != 0 || !strings.Contains(r.Stdout, "salt-run cluster.members") {
		t.Fatal(r)
	}
	for i, m := range c.Masters {
		sub := filepath.Join(dir, fmt.Sprintf("master%d", i+1))
		b, err := os.ReadFile(filepath.Join(sub, "master"))
		if err != nil {
			t.Fatal(err)
		}
		cluster, err := os.ReadFile(filepath.Join(sub, "master.d", "cluster.conf"))
		if err != nil {
			t.Fatal(err)
		}
		// folders of the test instead of /etc/salt and /srv
		own, _, _ := strings.Cut(m.Config(t), "cluster_id:")
		_, own, _ = strings.Cut(own, "\nuser:")
		shared, _, _ := strings.Cut(string(b), "file_roots:")
		m.Configure(t, shared+string(cluster)+"user:"+own)
	}
	c.StartMasters(t)
	Eventually(t, 60*time.Second, "three members", func() error {
		members, err := c.Masters[2].Members(t)
		if err == nil && len(members.Voters) != 3 {
			err = fmt.Errorf("%+v", members)
		}
		return err
	})
}
