package commands

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestAccessPage gives a master the configuration and the users that docs/access.md shows, and runs
// the page's commands.
func TestAccessPage(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(e2e.Root(t), "docs", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	options, users := fence(t, string(b), "yaml"), fence(t, string(b), "text")
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true})
	m := c.Masters[0]
	m.Configure(t, m.Config(t)+strings.ReplaceAll(options, "/etc/salt", m.ConfDir))
	if err := os.WriteFile(filepath.Join(m.ConfDir, "users"), []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Run(t)
	web := e2e.NewMinion(t, c.Dir, e2e.MinionOptions{ID: "web1", Release: reference, Master: m.Addr,
		Extra: minionOptions})
	web.Run(t)
	e2e.Eventually(t, 90*time.Second, "the minion answers", func() error {
		if err := m.Ready(); err != nil {
			return err
		}
		m.Key(t, "-A", "-y")
		if r := m.Salt(t, "-t", "2", "--out=txt", "web1",
			"test.ping"); strings.TrimSpace(r.Stdout) != "web1: True" {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	home := filepath.Join(c.Dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	own := filepath.Dir(e2e.Ours(t).Salt)
	for _, s := range shown(string(b)) {
		cmd := exec.Command("bash", "-c", s.command)
		cmd.Env = append(os.Environ(), "PATH="+own+":"+os.Getenv("PATH"),
			"SALT_CONFIG_DIR="+m.ConfDir, "HOME="+home)
		out, err := cmd.Output()
		if got := trailing.ReplaceAllString(string(out), ""); err != nil &&
			!errors.As(err, new(*exec.ExitError)) || !s.matches(got) {
			t.Errorf("$ %s\n%s--- shown as\n%s(error %v)", s.command, got, s.output, err)
		}
	}
}

// fence is the first block of a kind on a page.
func fence(t *testing.T, page, kind string) string {
	t.Helper()
	m := regexp.MustCompile("(?ms)^```" + kind + "\n(.*?)^```$").FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no block of %s", kind)
	}
	return m[1]
}
