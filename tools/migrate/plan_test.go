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
