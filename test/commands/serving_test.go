package commands

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestCommandWaitsForItsMaster: a command given while its master starts waits until the master
// serves.
func TestCommandWaitsForItsMaster(t *testing.T) {
	t.Parallel()
	m := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true}).Masters[0]
	m.Run(t)
	e2e.Eventually(t, 30*time.Second, "the socket", func() error {
		r := m.Salt(t, "*", "test.ping")
		if strings.Contains(r.Stdout, "could not be contacted") {
			return errors.New(r.Stdout)
		}
		if r.Stdout != "No minions matched the target. No command was sent, no jid was assigned.\n" || r.Stderr != "ERROR: No return received\n" || r.Code != 2 {
			t.Fatalf("the first answer is %v", r)
		}
		return nil
	})
}

// TestCommandSaysWhyItsMasterDoesNotServe: a master that neither finds its cluster nor may found
// one holds a command no longer than its -t.
func TestCommandSaysWhyItsMasterDoesNotServe(t *testing.T) {
	t.Parallel()
	m := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3}).Masters[1]
	m.Run(t)
	e2e.Eventually(t, 30*time.Second, "an answer of "+filepath.Base(m.Dir), func() error {
		for _, words := range [][]string{{"*", "test.ping"}, {"*", "test.ping", "--static"},
			{"-b", "1", "*", "test.ping"}, {"*", "test.ping", "--async"}} {
			r := m.Salt(t, append([]string{"-t", "1"}, words...)...)
			if strings.Contains(r.Stdout, "could not be contacted") {
				return errors.New(r.Stdout)
			}
			if r.Stdout != "" || r.Code != 1 ||
				!strings.Contains(r.Stderr,
					"this master does not serve: it has not joined its cluster: none of cluster_peers has let it in, and "+
						"a new one is founded only when all of them run; see its log") {
				t.Errorf("salt %q: %v", words, r)
			}
		}
		return nil
	})
}
