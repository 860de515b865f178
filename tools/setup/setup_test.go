package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/config"
)

func noEnv(string) string { return "" }

// TestWrittenFilesAreGood reads what init wrote as the master and HAProxy do.
func TestWrittenFilesAreGood(t *testing.T) {
	t.Parallel()
	for peers, ids := range map[string]string{
		"10.0.0.1,10.0.0.2,10.0.0.3":                    "master1 master2 master3",
		"m1=salt1.example.com, salt2.example.com,a=::9": "m1 salt2.example.com a",
		"fd00::1,[fd00::2]":                             "master1 master2",
	} {
		dir := filepath.Join(t.TempDir(), "new")
		var out, errs strings.Builder
		if code := Command([]string{"--peers", peers, "--dir", dir, "--balancer", "10.0.0.100"},
			&out, &errs); code != 0 {
			t.Fatalf("%s: exit %d, %s", peers, code, errs.String())
		}
		secret := ""
		for _, id := range strings.Fields(ids) {
			o, warnings, err := config.Load(filepath.Join(dir, id), noEnv)
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%s: %v %v", id, err, warnings)
			}
			if o.ID != id || len(o.PeerAddrs()) != len(strings.Fields(ids))-1 ||
				!o.ClusterIsolatedFilesystem || o.ClusterID != "salt" {
				t.Errorf("%s: id %s, peers %v", id, o.ID, o.PeerAddrs())
			}
			if s := o.ClusterSecret.Reveal(); len(s) < 40 || secret != "" && s != secret {
				t.Errorf("%s: secret %q, the one before has %q", id, s, secret)
			} else {
				secret = s
			}
			file := filepath.Join(dir, id, "master")
			for name, mode := range map[string]os.FileMode{"master": 0o644, "master.d/cluster.conf": 0o600} {
				st, err := os.Stat(filepath.Join(dir, id, name))
				if err != nil || st.Mode().Perm() != mode {
					t.Errorf("%s: %v, %v", name, st, err)
				}
			}
			if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), secret) {
				t.Errorf("%s has the secret, or: %v", file, err)
			}
			if open := o.OpenSecret(); open != "" {
				t.Error(open)
			}
			// Users who can't read the secret's file have what a command needs.
			if err := os.Remove(filepath.Join(dir, id, "master.d/cluster.conf")); err != nil {
				t.Fatal(err)
			}
			if _, warnings, err := config.LoadForCommand(filepath.Join(dir, id), noEnv); err != nil || len(warnings) > 0 {
				t.Errorf("%s without cluster.conf: %v %v", id, warnings, err)
			}
			if text := out.String(); !strings.Contains(text, file) ||
				!strings.Contains(text, "haproxy.cfg root@10.0.0.100:/etc/haproxy/haproxy.cfg") ||
				!strings.Contains(text, "master: 10.0.0.100") ||
				!strings.Contains(text, "4520 to the other masters") ||
				!strings.Contains(text, "copy only master.d to it") ||
				!strings.Contains(text, "systemctl restart --no-block salt-master") ||
				!strings.Contains(text, "enable --now --no-block salt-master") {
				t.Errorf("the next commands lack %s:\n%s", file, out.String())
			}
		}
		haproxy := filepath.Join(dir, "haproxy.cfg")
		if b, err := os.ReadFile(haproxy); err != nil ||
			strings.Contains(string(b), "server master1 192.0.2") ||
			!strings.Contains(string(b), "bind 10.0.0.100:4505") {
			t.Errorf("haproxy.cfg: %v\n%s", err, b)
		}
		// names must resolve
		if program, err := exec.LookPath("haproxy"); err == nil &&
			!strings.Contains(peers, "example") {
			if text, err := exec.Command(program, "-c", "-f",
				haproxy).CombinedOutput(); err != nil {
				t.Errorf("%s: haproxy: %v\n%s", peers, err, text)
			}
		}
		if code := Command([]string{"--peers", peers, "--dir", dir}, &out, &errs); code != 1 ||
			!strings.Contains(errs.String(), "nothing was written") {
			t.Errorf("written over: exit %d, %s", code, errs.String())
		}
	}
}

// TestWrongCommandLines: each is refused with a reason, and nothing is written.
func TestWrongCommandLines(t *testing.T) {
	t.Parallel()
	for line, part := range map[string]string{
		"extra":                          `it takes no argument "extra"`,
		"--cluster-id=":                  `--cluster-id: "" can't be a cluster's name`,
		"--balancer=10.0.0.1":            "--balancer: 10.0.0.1 is the address of master1",
		"--balancer=fd00:0::2":           "--balancer: fd00:0::2 is the address of master3",
		"--balancer=m2.example.com":      "--balancer: m2.example.com is the address of m2.example.com",
		"--balancer=M2.Example.com":      "--balancer: M2.Example.com is the address of m2.example.com",
		"--balancer=fe80::1%eth0":        "--balancer: fe80::1%eth0 has a zone",
		"--balancer=foo bar":             `--balancer: "foo bar" is neither an address nor a host name`,
		"--balancer=":                    `--balancer: "" is neither an address nor a host name`,
		"--balancer=10.0.0.100:4505/tcp": "is neither an address nor a host name",
	} {
		dir := filepath.Join(t.TempDir(), "new")
		var out, errs strings.Builder
		code := Command([]string{"--peers", "10.0.0.1,m2.example.com,fd00::2", "--dir", dir, line}, &out, &errs)
		if code == 0 || !strings.Contains(errs.String(), part) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %q; want %q", line, code, errs.String(), part)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: something was written", line)
		}
	}
}

// TestTheBalancerGiven: what init writes and prints has the balancer's own address, in brackets
// where IPv6 needs them.
func TestTheBalancerGiven(t *testing.T) {
	t.Parallel()
	for balancer, want := range map[string][]string{
		"10.0.0.9": {"#proxy_protocol_from: ['10.0.0.9']", "root@10.0.0.9:/etc/haproxy", "master: 10.0.0.9\n", "bind 10.0.0.9:4505"},
		"fd00::9":  {"#proxy_protocol_from: ['fd00::9']", "root@[fd00::9]:/etc/haproxy", "master: 'fd00::9'\n", "bind [fd00::9]:4505"},
		"lb.example.com": {"#proxy_protocol_from: ['10.0.0.100']", "root@lb.example.com:", "master: lb.example.com\n",
			"bind lb.example.com:4505"},
		"::": {"#proxy_protocol_from: ['10.0.0.100']", "root@BALANCER:", "master: BALANCER\n", "bind [::]:4505"},
		"*":  {"#proxy_protocol_from: ['10.0.0.100']", "root@BALANCER:", "master: BALANCER\n", "bind [::]:4505"},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		var out, errs strings.Builder
		if code := Command([]string{"--peers", "10.0.0.1,fd00::2", "--dir", dir, "--balancer", balancer},
			&out, &errs); code != 0 {
			t.Fatalf("%s: exit %d, %s", balancer, code, errs.String())
		}
		all := out.String()
		for _, file := range []string{"master1/master", "haproxy.cfg"} {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			all += string(b)
		}
		for _, w := range append(want, "root@[fd00::2]:/etc/salt") {
			if !strings.Contains(all, w) {
				t.Errorf("%s: no %q in\n%s", balancer, w, all)
			}
		}
		if program, err := exec.LookPath("haproxy"); err == nil && balancer != "lb.example.com" {
			if text, err := exec.Command(program, "-c", "-f", filepath.Join(dir, "haproxy.cfg")).CombinedOutput(); err != nil {
				t.Errorf("%s: haproxy: %v\n%s", balancer, err, text)
			}
		}
	}
}

func TestBadPeers(t *testing.T) {
	t.Parallel()
	for peers, part := range map[string]string{
		"10.0.0.1,10.0.0.1": "twice", "a=10.0.0.1,a=10.0.0.2": "twice", "10.0.0.1,": "neither an address",
		"0.0.0.0": "not the address of a single", "../x=10.0.0.1": "can't be an id",
		"a b": "neither an address nor a host name", "fd00::1,[fe80::1%eth0]": "fe80::1%eth0 has a zone",
		"m1.example.com,x=M1.Example.com": "x=M1.Example.com is named twice",
	} {
		dir := filepath.Join(t.TempDir(), "new")
		var out, errs strings.Builder
		if code := Command([]string{"--peers", peers, "--dir", dir}, &out, &errs); code != 1 ||
			!strings.Contains(errs.String(), part) {
			t.Errorf("%s: exit %d, %q; want %q", peers, code, errs.String(), part)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: something was written", peers)
		}
	}
}
