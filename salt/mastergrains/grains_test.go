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
	"strings"
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

// distributions are contents of os-release.
var distributions = []string{
	"NAME=\"Devuan GNU/Linux\"\nID=devuan\nID_LIKE=debian\nVERSION_ID=\"5\"\nVERSION_CODENAME=daedalus\n",
	"NAME=\"Kali GNU/Linux\"\nID=kali\nID_LIKE=debian\nVERSION_ID=\"2024.1\"\nVERSION_CODENAME=kali-rolling\n",
	"NAME=\"Pop!_OS\"\nID=pop\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=\"22.04\"\nVERSION_CODENAME=jammy\n",
	"NAME=\"Astra Linux (Orel)\"\nID=astra\nID_LIKE=debian\nVERSION_ID=\"2.12.45\"\nPRETTY_NAME=Astra\n",
	"NAME=\"Deepin\"\nID=deepin\nVERSION_ID=\"20.9\"\nVERSION_CODENAME=apricot\n",
	"NAME=\"KDE neon\"\nID=neon\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=\"22.04\"\nVERSION_CODENAME=jammy\n",
	"NAME=\"Linux Mint\"\nID=linuxmint\nVERSION_ID=\"21.3\"\nVERSION_CODENAME=virginia\n",
	"NAME=\"Ubuntu\"\nID=ubuntu\nVERSION_ID=\"22.04\"\nVERSION_CODENAME=jammy\n",
	"NAME=\"Raspbian GNU/Linux\"\nID=raspbian\nVERSION_ID=\"11\"\nVERSION_CODENAME=bullseye\n",
	"NAME=\"Debian GNU/Linux\"\nID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\n",
	"NAME=\"openEuler\"\nID=openEuler\nVERSION_ID=\"22.03\"\nPRETTY_NAME=\"openEuler 22.03 LTS\"\n",
	"NAME=\"CloudLinux\"\nID=cloudlinux\nVERSION_ID=\"8.9\"\nPRETTY_NAME=\"CloudLinux 8.9 (Anatoly)\"\n",
	"NAME=\"Virtuozzo\"\nID=virtuozzo\nVERSION_ID=\"7\"\nPRETTY_NAME=\"Virtuozzo\"\n",
	"NAME=\"VMware Photon OS\"\nID=photon\nVERSION_ID=5.0\nPRETTY_NAME=\"VMware Photon OS/Linux\"\n",
	"NAME=\"ALT\"\nID=altlinux\nVERSION_ID=10.2\nPRETTY_NAME=\"ALT Server 10.2\"\n",
	"NAME=\"Red Hat Enterprise Linux\"\nID=rhel\nVERSION_ID=9.2\nVERSION=\"9.2 (Plow)\"\n" +
		"PRETTY_NAME=\"Red Hat Enterprise Linux 9.2 (Plow)\"\n",
	"NAME=\"Rocky Linux\"\nID=rocky\nVERSION_ID=9.3\nPRETTY_NAME=\"Rocky Linux 9.3 (Blue Onyx)\"\n",
	"NAME=\"AlmaLinux\"\nID=almalinux\nVERSION_ID=9.3\nPRETTY_NAME=\"AlmaLinux 9.3 (Shamrock Cat)\"\n",
	"NAME=\"CentOS Stream\"\nID=centos\nVERSION_ID=9\nPRETTY_NAME=\"CentOS Stream 9\"\n",
	"NAME=\"Oracle Linux Server\"\nID=ol\nVERSION_ID=9.3\nPRETTY_NAME=\"Oracle Linux Server 9.3\"\n",
	"NAME=\"Amazon Linux\"\nID=amzn\nVERSION_ID=2023\nPRETTY_NAME=\"Amazon Linux 2023\"\n",
	"NAME=\"Manjaro Linux\"\nID=manjaro\nID_LIKE=arch\nPRETTY_NAME=\"Manjaro Linux\"\n",
	"NAME=\"EndeavourOS\"\nID=endeavouros\nID_LIKE=arch\nPRETTY_NAME=EndeavourOS\n",
	"NAME=\"Arch Linux\"\nID=arch\nPRETTY_NAME=\"Arch Linux\"\nBUILD_ID=rolling\n",
	"NAME=\"SLED\"\nID=sled\nVERSION_ID=15.5\nCPE_NAME=\"cpe:/o:suse:sled:15:sp5\"\nPRETTY_NAME=SLED\n",
	"NAME=\"SLES\"\nID=sles\nVERSION_ID=15.5\nCPE_NAME=\"cpe:/o:suse:sles:15:sp5\"\nPRETTY_NAME=SLES\n",
	"NAME=\"SLES_SAP\"\nID=sles_sap\nVERSION_ID=15.5\nPRETTY_NAME=\"SUSE for SAP\"\n",
	"NAME=\"openSUSE Leap\"\nID=opensuse-leap\nVERSION_ID=15.5\nPRETTY_NAME=\"openSUSE Leap 15.5\"\n" +
		"CPE_NAME=\"cpe:/o:opensuse:leap:15.5\"\n",
	"NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.19.1\nPRETTY_NAME=\"Alpine Linux v3.19\"\n",
	"NAME=\"Own OS\"\nID=own\nVERSION_ID=beta.1\nPRETTY_NAME=\"Own OS\"\n",
}

// distributionsOfSalt prints what Salt makes of contents of os-release, which it gets as JSON, with
// the file that lies at /etc/os-release as its argument.
const distributionsOfSalt = `import json, os, sys
from salt.grains import core
for text in json.load(sys.stdin):
    with open(sys.argv[1], "w") as file:
        file.write(text)
    if os.fork() == 0:  # what is read is kept in memory
        grains = core._linux_distribution_data()
        if grains.get("osrelease"):
            grains.update(core._osrelease_data(*[grains[k] for k in ("os", "osfullname", "osrelease")]))
        print(json.dumps(grains), flush=True)
        os._exit(0)
    os.wait()`

// TestDistributionsAreSalts: the grains about the distribution are those of Salt.
func TestDistributionsAreSalts(t *testing.T) {
	t.Parallel()
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	if exec.Command("unshare", "-m", "true").Run() != nil {
		t.Skip("only root gives a test its own /etc/os-release")
	}
	if _, err := os.Stat("/etc/lsb-release"); err == nil {
		t.Skip("Salt prefers /etc/lsb-release of this machine")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "os-release")
	place(t, dir, map[string]string{"os-release": "", "master": "id: m1\n"})
	under := []string{"unshare", "-m", "sh", "-c",
		`mount --bind "$0" /etc/os-release && exec "$@"`, file}
	asked, err := json.Marshal(distributions)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(under[0], append(under[1:], filepath.Join(venvs, "salt-3008.3", "bin", "python"),
		"-c", distributionsOfSalt, file)...)
	var complaint bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(asked), &complaint
	said, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &complaint)
	}
	answers := json.NewDecoder(bytes.NewReader(said))
	for _, text := range distributions {
		var theirs map[string]any
		if err := answers.Decode(&theirs); err != nil {
			t.Fatal(err)
		}
		place(t, dir, map[string]string{"os-release": text})
		ours := grainsBy(t, dir, under, os.Args[0])
		names := []string{"os", "os_family", "osfullname", "oscodename", "lsb_distrib_id",
			"lsb_distrib_codename", "lsb_distrib_release", "osmajorrelease", "osrelease",
			"osrelease_info", "osfinger"}
		if !strings.Contains(text, "VERSION_ID") {
			names = names[:8] // Salt takes the others from a program of this machine
		}
		for _, name := range names {
			if !reflect.DeepEqual(ours[name], theirs[name]) {
				t.Errorf("%s%s: %v, Salt's is %v", text, name, ours[name], theirs[name])
			}
		}
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
