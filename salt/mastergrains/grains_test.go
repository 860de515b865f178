package mastergrains_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"clustermaster/config"
	"clustermaster/config/settings"
	"clustermaster/salt/mastergrains"
	"clustermaster/value"
)

// asked makes the test's program print the grains of a master, with a given folder of
// configuration files, instead of testing.
const asked = "CLUSTERMASTER_TEST_GRAINS"

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" {
		os.Exit(m.Run())
	}
	var text string
	o, _, err := config.Load(os.Getenv(asked), os.Getenv)
	if err == nil {
		text, err = value.JSON(settings.Grains(o, "3008.3", slog.Default()).Load(),
			value.JSONStyle{Indent: -1})
	}
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
	for name, files := range administered {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := filepath.Join(t.TempDir(), "master")
			place(t, filepath.Dir(conf), files)
			place(t, filepath.Dir(conf), map[string]string{"master": "root_dir: " +
				filepath.Dir(conf) + "\nid: m1\nenable_fqdns_grains: False\n" + files["master"]})
			ours := compare(t, nil, python, conf)
			for _, name := range []string{"role", "nest", "os"} {
				if ours[name] == nil {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
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

// administered are configurations that set grains.
var administered = map[string]map[string]string{
	"file": {"grains": "role: [web]\nnest: {a: {b: 1}}\nos: Mine\nnone: null\n"},
	"option": {"master": "grains: {role: db, nest: {c: 2}, id: other, num: 1.5}\n",
		"grains": "# none yet\n"},
	"both": {"master": "grains: {role: db, own: 2}\n",
		"grains": "role: [web]\nnest: {a: 1}\nos: Mine\n"},
	"included": {"master": "grains: {role: db, own: 2}\n",
		"master.d/a.conf": "grains: {nest: {c: 2}}\n", "master.d/b.conf": "grains: {role: [web]}\n"},
	"damaged": {"master": "grains: {role: db, nest: 2}\n", "grains": "role: [web\n"},
	"list":    {"master": "grains: {role: db, nest: 2}\n", "grains": "- role\n"},
}

// place writes files below a folder.
func place(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoadIsNew: grains follow file and option. A broken one is left out.
func TestLoadIsNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place(t, dir, map[string]string{"master": "id: m1\n"})
	o, _, err := config.Load(dir, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	own := settings.Grains(o, "3008.3", slog.New(slog.NewTextHandler(&logged, nil)))
	for _, step := range []struct {
		files map[string]string
		want  string // of the grains a and b
		log   string
	}{
		{nil, "<nil> <nil>", ""},
		{map[string]string{"grains": "a: file\nb: file\n"}, "file file", ""},
		{map[string]string{"master.d/x.conf": "grains: {a: option}\n"}, "option file", ""},
		{map[string]string{"grains": "b: ["}, "option <nil>", "the grains file is left out"},
		{map[string]string{"master": "id: ["}, "<nil> <nil>", "the option grains is left out"},
		{map[string]string{"grains": "b: 1\n", "master": "grains: [b]\n",
			"master.d/x.conf": ""}, "<nil> 1", ""},
	} {
		place(t, dir, step.files)
		logged.Reset()
		grains := own.Load()
		a, _ := grains.Get("a")
		b, _ := grains.Get("b")
		if got := fmt.Sprint(a, " ", b); got != step.want ||
			!bytes.Contains(logged.Bytes(), []byte(step.log)) ||
			(step.log == "") != (logged.Len() == 0) {
			t.Errorf("%v: %s, want %s; logged %s", step.files, got, step.want, &logged)
		}
		if grains.String("id") != "m1" {
			t.Errorf("%v: id %s", step.files, grains.String("id"))
		}
	}
}

// compare asks this master before and after Salt's. It compares once both answers of this master
// are equal, so that a change of the machine does not count.
func compare(t *testing.T, under []string, python, conf string) map[string]any {
	t.Helper()
	for range 5 {
		before := grainsBy(t, filepath.Dir(conf), under, os.Args[0])
		theirs := grainsBy(t, filepath.Dir(conf), under, python, "-c", ofSalt, conf)
		ours := grainsBy(t, filepath.Dir(conf), under, os.Args[0])
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
		return ours
	}
	t.Fatal("the grains of this machine change all the time")
	return nil
}

func grainsBy(t *testing.T, dir string, under []string, program ...string) (grains map[string]any) {
	t.Helper()
	all := append(append([]string{}, under...), program...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Env = append(os.Environ(), asked+"="+dir)
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
	if _, err := value.Pack(mastergrains.Of("m1", "3008.3")); err != nil {
		t.Error(err)
	}
}
