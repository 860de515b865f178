package conformance

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// logs reports whether a master's log has a text in time.
func (m *subject) logs(limit time.Duration, text string) bool {
	return endsWithin(limit, func() bool {
		b, err := os.ReadFile(m.Log)
		return err == nil && strings.Contains(string(b), text)
	})
}

// TestJoinTimeoutOption starts one of two masters that have no cluster yet.
func TestJoinTimeoutOption(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]bool{"": false, "cluster_join_timeout: 2\n": true} {
		c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 2, Extra: options})
		m := &subject{Master: c.Masters[0]}
		m.Run(t)
		if got := m.logs(20*time.Second, "--found"); got != want {
			t.Errorf("with %q the log names --found soon: %v", options, got)
		}
		m.Kill(t)
	}
}

// TestFingerprintOption has a master join a cluster with the fingerprint of its key, and with that
// of another.
func TestFingerprintOption(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 2})
	c.Masters[0].Run(t, "--found")
	c.WaitReady(t, time.Minute, c.Masters[0])
	shown := c.Masters[0].Key(t, "-F", "master").Stdout
	own := regexp.MustCompile(`cluster.pub:\s+(\S+)`).FindStringSubmatch(shown)
	if own == nil {
		t.Fatal(shown)
	}
	other := strings.NewReplacer("0", "1", "1", "0").Replace(own[1])
	m := &subject{Master: c.Masters[1]}
	plain := m.Config(t)
	m.Configure(t, plain+"cluster_pub_fingerprint: '"+other+"'\n")
	m.Run(t)
	if !m.logs(time.Minute, "cluster_pub_fingerprint") || m.Ready() == nil {
		t.Error("a master joins a cluster that has another key than it insists on")
	}
	m.Kill(t)
	m.Configure(t, plain+"cluster_pub_fingerprint: '"+own[1]+"'\n")
	m.Run(t)
	c.WaitReady(t, time.Minute, m.Master)
}

// TestClusterKeyPassOption founds a cluster with an older key, which is encrypted.
func TestClusterKeyPassOption(t *testing.T) {
	t.Parallel()
	for _, set := range []bool{false, true} {
		c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 2})
		m := &subject{Master: c.Masters[0], kind: ours, base: c.Base}
		options := "auto_accept: True\ncluster_pki_dir: " + m.path("older") + "\n"
		if set {
			options += "cluster_key_pass: abc\n"
		}
		m.Configure(t, m.Config(t)+options)
		key := m.writeSealedKey(t, "older/cluster")
		m.Run(t, "--found")
		if !set {
			if !m.logs(time.Minute, "passphrase missing or wrong") || m.Ready() == nil {
				t.Error("a master serves without the passphrase of its cluster's key")
			}
			continue
		}
		c.WaitReady(t, time.Minute, m.Master)
		if got := m.signIn(t, "knows", 3).got.Master.Text(); got != key.Text() {
			t.Errorf("minions get the key\n%s", got)
		}
	}
}

// TestPublishSessionOption waits until a master takes another AES key. One with the default has
// kept its key meanwhile.
func TestPublishSessionOption(t *testing.T) {
	t.Parallel()
	asked := map[string]func() string{}
	for _, options := range []string{"", "publish_session: 60\n"} {
		m := newMaster(t, ours, variant{name: "session", options: "auto_accept: True\n" + options})
		m.start(t)
		asked[options] = func() string { return m.signIn(t, "asks", 3).got.AES.String() }
	}
	kept, replaced := asked[""], asked["publish_session: 60\n"]
	first, before := kept(), replaced()
	e2e.Eventually(t, 3*time.Minute, "the key is replaced after 60 s", func() error {
		<-time.After(time.Second)
		if replaced() == before {
			return errors.New("not yet")
		}
		return nil
	})
	if kept() != first {
		t.Error("the key is replaced by default too")
	}
}
