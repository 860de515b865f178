package conformance

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestClusterOptions starts two masters as they are by default, and with options of clusters. Each
// look must show a difference.
func TestClusterOptions(t *testing.T) {
	t.Parallel()
	looks := []struct {
		options string
		ask     func(t *testing.T, c *e2e.Cluster) string
	}{
		{"cluster_pool_port", func(_ *testing.T, c *e2e.Cluster) string {
			m := &subject{Master: c.Masters[0]}
			return fmt.Sprint(m.open(e2e.PeerPort) == nil, m.open(4620) == nil)
		}},
		{"cluster_max_voters cluster_min_voters", func(t *testing.T, c *e2e.Cluster) string {
			var v e2e.Members
			e2e.Eventually(t, 30*time.Second, "both are members", func() (err error) {
				if v, err = c.Masters[0].Members(t); err == nil && len(v.Voters)+len(v.Learners) < 2 {
					err = fmt.Errorf("%v", v)
				}
				return err
			})
			return fmt.Sprint("learners: ", len(v.Learners))
		}},
		{"backup_by", func(t *testing.T, c *e2e.Cluster) string {
			var made []int // by each master
			e2e.Eventually(t, 60*time.Second, "a master has made three", func() error {
				made = nil
				for _, m := range c.Masters {
					names, err := filepath.Glob(filepath.Join(c.Dir, "backups", "*"+m.ID+"*"))
					if err != nil {
						return err
					}
					made = append(made, len(names))
				}
				if slices.Max(made) < 3 {
					return fmt.Errorf("%v", made)
				}
				return nil
			})
			return fmt.Sprint("by both: ", slices.Min(made) > 0)
		}},
		{"cluster_stale_limit", func(t *testing.T, c *e2e.Cluster) string {
			leader := c.Leader(t, c.Masters[0])
			left := c.Others(leader)[0]
			leader.Kill(t)
			// twice the default, and well below the option
			return fmt.Sprint("not ready: ", endsWithin(20*time.Second, func() bool {
				err := left.Ready()
				return err != nil && !errors.As(err, new(*url.Error)) // that is no answer
			}))
		}},
	}
	shown := make([][]string, 2)
	for i, more := range []string{"", `cluster_pool_port: 4620
cluster_max_voters: 1
cluster_min_voters: 1
backup_by: all
cluster_stale_limit: 30
`} {
		c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 2, Extra: more})
		for _, m := range c.Masters {
			phrase := filepath.Join(m.Dir, "phrase")
			if err := os.WriteFile(phrase, []byte("twelve characters\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			m.Configure(t, m.Config(t)+"backup_interval: 5\nbackup_dir: "+c.Dir+
				"/backups\nbackup_passphrase_file: "+phrase+"\n")
		}
		c.StartMasters(t)
		for _, l := range looks {
			shown[i] = append(shown[i], l.ask(t, c))
		}
	}
	for i, l := range looks {
		if shown[0][i] == shown[1][i] {
			t.Errorf("%s: nothing shows a difference from the default: %s", l.options, shown[0][i])
		}
	}
	t.Log(shown)
}
