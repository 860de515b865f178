package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/value"
)

// TestSDB reads a configuration whose values lie in sdb, with each release's drivers and with one
// of the site's.
func TestSDB(t *testing.T) {
	t.Parallel()
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	for _, release := range []string{"3006.28", "3007.15", "3008.3"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				text = strings.ReplaceAll(text, "DIR", dir)
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write("secrets.yaml", "shared: of the yaml\ntree: {n: 7, list: [a, 1.5]}\n")
			write("ext/sdb/site_db.py", `
def get(key, profile=None):
    print("some noise")
    if key == "fails":
        raise ValueError("no such key")
    return profile["prefix"] + key
`)
			head := fmt.Sprintf("python_host: %s\nextension_modules: DIR/ext\nfiles: {driver: yaml, files: [DIR/secrets.yaml]}\n",
				filepath.Join(venvs, "salt-"+release, "bin/python3")) +
				"site: {driver: site_db, prefix: 'p '}\n"
			write("master", head+"sharedsecret: sdb://files/shared\ntimeout: sdb://files/tree:n\n"+
				"own: {deep: [{a: 'sdb://site/key'}, plain], tree: 'sdb://files/tree'}\n")
			o, _, err := Load(dir, func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			own, _ := o.Extra["own"].(value.Map)
			if got := fmt.Sprint(own); got != "[{deep [[{a p key}] plain]} {tree [{list [a 1.5]} {n 7}]}]" {
				t.Errorf("own: %s", got)
			}
			if o.Timeout.Seconds() != 7 {
				t.Errorf("timeout %v", o.Timeout)
			}
			if got := fmt.Sprint(o.Extra["sharedsecret"]); got == "sdb://files/shared" {
				t.Errorf("sharedsecret is %s", got)
			}
			o, _, err = LoadForCommand(dir, func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(o.Extra["own"]); o.Timeout.Seconds() != 7 ||
				!strings.Contains(got, "sdb://site/key") {
				t.Errorf("for a command: timeout %v, own %s", o.Timeout, got)
			}
			write("master", head+"sharedsecret: sdb://site/fails\nautosign_file: sdb://nosuch/x\n")
			_, _, err = Load(dir, func(string) string { return "" })
			want := dir + "/master:5: sharedsecret: sdb://site/fails can't be looked up: ValueError: no such key\n" +
				dir + "/master:6: autosign_file: sdb://nosuch/x is the address of no profile: an option of that name with a driver is needed"
			if err == nil || err.Error() != want {
				t.Errorf("got\n%v\nwant\n%s", err, want)
			}
		})
	}
}
