package settings

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/config"
	"clustermaster/value"
)

// load reads a configuration from a folder of its own.
func load(t *testing.T, text string) *config.Options {
	t.Helper()
	return loadWhole(t, "root_dir: "+t.TempDir()+"\nid: m1\n"+text)
}

// TestPubkeySignature: the signature has the name of 3008, or else the one of 3006 and 3007.
func TestPubkeySignature(t *testing.T) {
	t.Parallel()
	const use = "master_sign_pubkey: true\nmaster_use_pubkey_signature: true\n"
	for _, c := range []struct {
		option string
		files  []string
		want   string // "": the master does not start
	}{
		{"", []string{"m1_pubkey_signature", "master_pubkey_signature"}, "m1_pubkey_signature"},
		{"", []string{"master_pubkey_signature"}, "master_pubkey_signature"},
		{"", nil, ""},
		{"master_pubkey_signature: other\n", []string{"other", "m1_pubkey_signature"}, "other"},
		{"master_pubkey_signature: other\n",
			[]string{"m1_pubkey_signature", "master_pubkey_signature"}, ""},
	} {
		o := load(t, use+c.option)
		for _, name := range c.files {
			if err := errors.Join(os.MkdirAll(o.PkiDir, 0o700), os.WriteFile(
				filepath.Join(o.PkiDir, name), []byte(name+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		m, err := Master(o)
		if m.PubkeySignature != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q with %q: %q, %v", c.option, c.files, m.PubkeySignature, err)
		}
	}
}

// TestPython tells Salt the options that this master computes, and where a site's modules are.
func TestPython(t *testing.T) {
	t.Parallel()
	o := load(t, "module_dirs: [/srv/modules]\npillar_dirs: [/srv/pillars]\npython_timeout: 7\n")
	got := Python(o)
	if got.Timeout != 7*time.Second || got.ConfFile != o.ConfFile {
		t.Errorf("timeout %v, conf_file %q", got.Timeout, got.ConfFile)
	}
	for name, want := range map[string]string{"id": "m1", "cachedir": o.CacheDir,
		"sock_dir": o.SockDir} {
		if got.Opts.String(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Opts.String(name), want)
		}
	}
	folders := Modules(o)
	if folders.ExtensionModules != filepath.Join(o.RootDir, "/var/cache/salt/master/extmods") ||
		!slices.Equal(folders.ModuleDirs, []string{"/srv/modules"}) ||
		!slices.Equal(folders.Own["pillar"], []string{"/srv/pillars"}) {
		t.Errorf("folders %+v", folders)
	}
}

// TestGit reads remotes with their secrets, and shows them without.
func TestGit(t *testing.T) {
	t.Parallel()
	if _, some := Git(load(t, "gitfs_remotes: [https://a.example/r]\n")); some {
		t.Error("gitfs_remotes counts without the back end gitfs")
	}
	got, some := Git(load(t, `
fileserver_backend: [roots, gitfs]
gitfs_remotes: [https://a.example/r]
gitfs_base: trunk
ext_pillar:
  - cmd_yaml: "true"
  - git: master https://one.example/r
  - git:
    - master https://two.example/r:
      - user: ada
      - password: secretword
`))
	if !some || len(got.Files.Remotes) != 1 || got.Files.Global("base") != "trunk" {
		t.Errorf("got %v, %v", some, got.Files.Remotes)
	}
	if len(got.Pillars) != 2 {
		t.Fatalf("got %d entries of git_pillar, want 2", len(got.Pillars))
	}
	password := func(remotes []any) any {
		m, _ := remotes[0].(value.Map)
		options, _ := m[0].Value.([]any)
		last, _ := options[1].(value.Map)
		v, _ := last.Get("password")
		return v
	}
	two := got.Pillars[1]
	if password(two.Remotes) != "secretword" || password(two.Shown) != "[redacted]" {
		t.Errorf("remotes %v, shown as %v", two.Remotes, two.Shown)
	}
}

// TestCheck finds what a start would refuse, and doubts what would not work after it.
func TestCheck(t *testing.T) {
	t.Parallel()
	const clustered = "cluster_id: c\ncluster_secret: a secret of some length\ninterface: 127.0.0.1\n"
	alone := load(t, clustered)
	if _, err := Check(alone); err == nil || !strings.Contains(err.Error(), "cluster_peers: names no other master") {
		t.Errorf("no peers: %v", err)
	}
	identity := filepath.Join(Cluster(alone).DataDir, "identity.json")
	if err := os.MkdirAll(filepath.Dir(identity), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(identity, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, open := range map[os.FileMode]bool{0o644: true, 0o640: false} {
		if err := os.Chmod(alone.ConfFile, mode); err != nil {
			t.Fatal(err)
		}
		doubts, err := Check(alone)
		if err != nil || strings.Contains(strings.Join(doubts, ""), "cluster_secret: every user of this machine can read it (mode 0644)") != open {
			t.Errorf("mode %v, no peers, but a cluster's state: %q, %v", mode, doubts, err)
		}
	}
	for text, want := range map[string]string{
		"publisher_acl: {ada: [test.*]}\n":                              "",
		"python_host: /nowhere/python3\n":                               "python_host /nowhere/python3",
		"backup_dir: /srv/b\nbackup_passphrase_file: /nowhere/phrase\n": "/nowhere/phrase",
	} {
		o := load(t, text)
		if err := os.Chmod(o.ConfFile, 0o600); err != nil {
			t.Fatal(err)
		}
		doubts, err := Check(o)
		if err != nil || len(doubts) > 0 != (want != "") || !strings.Contains(strings.Join(doubts, ""), want) {
			t.Errorf("%q: %q, %v", text, doubts, err)
		}
	}
	for text, want := range map[string]string{
		"metrics_tls_cert: /nowhere/cert\nmetrics_tls_key: /nowhere/key\n": "/nowhere/cert",
		"master_sign_pubkey: true\nmaster_use_pubkey_signature: true\n" +
			"pki_dir: /nowhere\n": "/nowhere",
		"seal_key: file:/nowhere/seal\n": "seal_key: read key: open /nowhere/seal",
	} {
		if _, err := Check(load(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRootsOfPatterns: files are served from what matches now, and statesync gets the list itself.
func TestRootsOfPatterns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/b", 0o755), os.Mkdir(dir+"/a", 0o755)); err != nil {
		t.Fatal(err)
	}
	o := load(t, "file_roots: {base: ['"+dir+"/*', /srv/last]}\n")
	if got := Files(o).Roots[0].Roots; !slices.Equal(got,
		[]string{dir + "/a", dir + "/b", "/srv/last"}) {
		t.Errorf("served from %q", got)
	}
	if got := Roots(o).File[0].Dirs; !slices.Equal(got, []string{dir + "/*", "/srv/last"}) {
		t.Errorf("synced as %q", got)
	}
}
