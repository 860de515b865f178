package migrate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/config"
)

func TestOptionsToComeAreNotMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.conf")
	if err := os.WriteFile(path, []byte("'cluster_secret': x\ncluster_port_x: 1\n"+
		"ret_port: 4\nother: {\ncluster_port: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	verdicts := []config.Verdict{
		{Option: "cluster_secret", Fate: config.Refused, Text: "is not set"},
		{Option: "cluster_port", Fate: config.Refused, Text: "is not set"},
		{Option: "ret_port", Line: 3, Fate: config.Refused, Text: "is no port"},
	}
	if err := willSet(verdicts, path); err != nil {
		t.Fatal(err)
	}
	for i, want := range []config.Fate{config.Works, config.Refused, config.Refused} {
		if verdicts[i].Fate != want {
			t.Errorf("%s: %s, want %s", verdicts[i].Option, verdicts[i].Fate, want)
		}
	}
	if err := willSet(verdicts, path+".none"); err == nil {
		t.Error("a missing file was ignored")
	}
	if err := os.WriteFile(path, []byte("a: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := willSet(verdicts, path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is no YAML: %v", err)
	}
}

// TestPackagesThatGo: the plan names the packages of Salt that its master's package needs, and no
// others.
func TestPackagesThatGo(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"salt-api", "salt-syndic", "salt-ssh", "salt-minion"} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var page strings.Builder
	plan := &Plan{options: &config.Options{CacheDir: t.TempDir()}, Packages: packages(bin),
		MasterKey: "known"}
	plan.print(&page)
	if got := plan.code(); got != exitDifferently {
		t.Errorf("exit code %d, want %d\n%s", got, exitDifferently, &page)
	}
	for name, want := range map[string]bool{"salt-api": true, "salt-syndic": true, "salt-cloud": false,
		"salt-ssh": false, "salt-minion": false} {
		line := "  " + name + ": it depends on Salt's own package salt-master"
		run := "run /opt/saltstack/salt/" + name + ";"
		if got := strings.Contains(page.String(), line); got != want {
			t.Errorf("the page names %s: %v, want %v\n%s", name, got, want, &page)
		}
		if got := strings.Contains(page.String(), run); got != want {
			t.Errorf("the page says how to run %s: %v, want %v", name, got, want)
		}
	}
}

// TestJoinersKeys: a master that joins must bring its accepted keys, and names what differs.
func TestJoinersKeys(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		was, is             string
		alone, joined, note bool
	}{
		{"minions", "minions", true, true, false},
		{"minions", "", false, false, false},
		{"minions", "minions_rejected", false, true, true},
		{"minions_pre", "minions", true, true, false},
		{"minions_pre", "", false, true, true},
		{"minions_rejected", "", false, true, true},
		{"minions_rejected", "minions", false, true, true},
	} {
		wanted, got := map[string]string{"web1": tt.was}, map[string]string{}
		if tt.is != "" {
			got["web1"] = tt.is
		}
		if notes, err := compareKeys(wanted, got, false); (err == nil) != tt.alone || len(notes) > 0 {
			t.Errorf("%s, now %q: %q, %v", tt.was, tt.is, notes, err)
		}
		if notes, err := compareKeys(wanted, got, true); (err == nil) != tt.joined || len(notes) > 0 != tt.note {
			t.Errorf("%s, after it joined %q: %q, %v", tt.was, tt.is, notes, err)
		}
	}
}
