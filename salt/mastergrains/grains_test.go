package mastergrains

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"clustermaster/value"
)

// TestGrainsAreSalts: the grains of this master are those that Salt's master has on this machine.
func TestGrainsAreSalts(t *testing.T) {
	t.Parallel()
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "master")
	if err := os.WriteFile(conf, []byte("root_dir: "+dir+"\nid: m1\nenable_fqdns_grains: False\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	script := "import json, logging, sys; logging.disable(logging.CRITICAL); import salt.config, salt.loader; opts = salt.config.master_config(sys.argv[1]); print(json.dumps(salt.loader.grains(opts), default=str))"
	out, err := exec.Command(filepath.Join(venvs, "salt-3008.3", "bin", "python"), "-c", script,
		conf).Output()
	if err != nil {
		t.Fatal(err)
	}
	var theirs map[string]any
	if err := json.Unmarshal(out, &theirs); err != nil {
		t.Fatal(err)
	}
	ours := Of("m1", "3008.3")
	differ := map[string]bool{"pid": true, "master": true, "saltversion": true} // of the process
	for _, p := range ours {
		name, _ := p.Key.(string)
		if differ[name] {
			continue
		}
		text, err := value.JSON(p.Value, value.JSONStyle{Indent: -1})
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if want, ok := theirs[name]; !ok || !reflect.DeepEqual(v, want) {
			t.Errorf("%s: %v, Salt's is %v", name, v, want)
		}
	}
	for _, name := range []string{"os", "os_family", "osrelease", "ipv4", "mem_total", "kernel",
		"host"} {
		if v, _ := ours.Get(name); !value.Truth(v) {
			t.Errorf("%s is missing", name)
		}
	}
	if _, err := value.Pack(ours); err != nil {
		t.Error(err)
	}
}
