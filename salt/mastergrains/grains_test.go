package mastergrains

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"clustermaster/value"
)

// asked makes the test's program print the grains of the machine instead of testing.
const asked = "CLUSTERMASTER_TEST_GRAINS"

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" {
		os.Exit(m.Run())
	}
	text, err := value.JSON(Of("m1", "3008.3"), value.JSONStyle{Indent: -1})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(text)
}

// ofSalt prints the grains of Salt's master with a given configuration file.
const ofSalt = `import json, logging, sys
logging.disable(logging.CRITICAL)
import salt.config, salt.loader
print(json.dumps(salt.loader.grains(salt.config.master_config(sys.argv[1])), default=str))`

// TestGrainsAreSalts: this master's grains equal those of Salt's master on this machine, whichever
// full name /etc/hosts gives it.
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
	python := filepath.Join(venvs, "salt-3008.3", "bin", "python")
	t.Run("this machine", func(t *testing.T) {
		compare(t, nil, python, conf)
	})
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"10.9.8.7 " + name + ".site.example " + name,
		"10.9.8.7 " + name + " " + name + ".site.example",
		"10.9.8.7 other.example " + name,
		"10.9.8.7 elsewhere",
	} {
		t.Run(line, func(t *testing.T) {
			if exec.Command("unshare", "-m", "true").Run() != nil {
				t.Skip("only root gives a test its own /etc/hosts")
			}
			hosts := filepath.Join(t.TempDir(), "hosts")
			if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+line+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			compare(t, []string{"unshare", "-m", "sh", "-c",
				`mount --bind "$0" /etc/hosts && exec "$@"`, hosts}, python, conf)
		})
	}
}

// compare asks this master before and after Salt's. It compares once both answers of this master
// are equal, so that a change of the machine does not count.
func compare(t *testing.T, under []string, python, conf string) {
	t.Helper()
	for range 5 {
		before := grainsBy(t, under, os.Args[0])
		theirs := grainsBy(t, under, python, "-c", ofSalt, conf)
		ours := grainsBy(t, under, os.Args[0])
		for _, name := range []string{"pid", "master", "saltversion"} { // of the process
			delete(before, name)
			delete(ours, name)
		}
		if !reflect.DeepEqual(before, ours) {
			continue
		}
		for name, v := range ours {
			if want, ok := theirs[name]; !ok || !reflect.DeepEqual(v, want) {
				t.Errorf("%s: %v, Salt's is %v", name, v, want)
			}
		}
		for _, name := range []string{"os", "os_family", "osrelease", "ipv4", "mem_total", "kernel",
			"host"} {
			if ours[name] == nil || ours[name] == "" {
				t.Errorf("%s is missing", name)
			}
		}
		return
	}
	t.Fatal("the grains of this machine change all the time")
}

func grainsBy(t *testing.T, under []string, program ...string) (grains map[string]any) {
	t.Helper()
	all := append(append([]string{}, under...), program...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Env = append(os.Environ(), asked+"=1")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &grains)
	}
	if err != nil {
		t.Fatalf("%q: %v\n%s", program, err, &complaint)
	}
	return grains
}

func TestGrainsCanBeSent(t *testing.T) {
	t.Parallel()
	if _, err := value.Pack(Of("m1", "3008.3")); err != nil {
		t.Error(err)
	}
}
