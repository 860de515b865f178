package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/value"
)

var update = flag.Bool("update", false, "rewrite the messages in testdata")

// loadText loads one main file without includes on a machine called box. The
// folder's name is taken out of what is returned.
func loadText(t *testing.T, text string) (*Options, string) {
	t.Helper()
	path := writeTree(t, map[string]string{"master": text})
	o, warnings, err := load(path, host{name: "box", user: "root", home: "/root"})
	var b strings.Builder
	if err != nil {
		if o != nil {
			t.Error("options beside an error")
		}
		fmt.Fprintln(&b, err)
	}
	for _, w := range warnings {
		fmt.Fprintf(&b, "warning: %v\n", w)
	}
	return o, strings.ReplaceAll(b.String(), filepath.Dir(path)+"/", "")
}

// Each testdata/*.bad.yml is refused with exactly the text beside it, each
// *.good.yml is taken with exactly the warnings beside it.
func TestMessages(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yml")
	if err != nil || len(files) < 10 {
		t.Fatalf("files: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o, got := loadText(t, string(b))
			if bad := strings.HasSuffix(file, ".bad.yml"); bad != (o == nil) {
				t.Errorf("refused = %t, want %t\n%s", o == nil, bad, got)
			}
			golden := strings.TrimSuffix(file, ".yml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// all.good.yml gives every option another value than its default.
func TestEveryOptionIsRead(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/all.good.yml")
	if err != nil {
		t.Fatal(err)
	}
	o, text := loadText(t, string(b))
	if o == nil {
		t.Fatal(text)
	}
	plain, _ := loadText(t, "")
	fields, defaults := reflect.ValueOf(o).Elem(), reflect.ValueOf(plain).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Tag.Get("opt")
		if name == "" || name == "transport" {
			continue // it has one possible value so far
		}
		if reflect.DeepEqual(fields.Field(i).Interface(), defaults.Field(i).Interface()) {
			t.Errorf("%s still has its default %v", name, defaults.Field(i))
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	o, text := loadText(t, "")
	if text != "" {
		t.Fatalf("an empty file gives %s", text)
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"id", o.ID, "box_master"}, {"user", o.User, "root"}, {"interface", o.Interface, "0.0.0.0"},
		{"publish_port", o.PublishPort, 4505}, {"ret_port", o.RetPort, 4506},
		{"timeout", o.Timeout, 5 * time.Second},
		{"gather_job_timeout", o.GatherJobTimeout, 10 * time.Second},
		{"publish_session", o.PublishSession, 24 * time.Hour},
		{"keysize", o.KeySize, 2048}, {"hash_type", o.HashType, "sha256"},
		{"minimum_auth_version", o.MinimumAuthVersion, 3},
		{"sign_pub_messages", o.SignPubMessages, true},
		{"keep_jobs_seconds", o.KeepJobsSeconds, 86400},
		{"cluster_pool_port", o.ClusterPoolPort, 4520},
		{"cluster_max_voters", o.ClusterMaxVoters, 5},
		{"cluster_min_voters", o.ClusterMinVoters, 3},
		{"cluster_join_timeout", o.ClusterJoinTimeout, 30 * time.Second},
		{"cluster_stale_limit", o.ClusterStaleLimit, 10 * time.Second},
		{"autosign_timeout", o.AutosignTimeout, 2 * time.Hour},
		{"pki_dir", o.PkiDir, "/etc/salt/pki/master"},
		{"cachedir", o.CacheDir, "/var/cache/salt/master"},
		{"sock_dir", o.SockDir, "/var/run/salt/master"},
		{"log_level_logfile", o.LogLevelLogfile, "warning"},
		{"max_frame_size", o.MaxFrameSize, 128 << 20}, {"publish_retry", o.PublishRetry, true},
		{"ring_dead_after", o.RingDeadAfter, 10 * time.Minute},
		{"data", o.DataDir(), "/var/cache/salt/master/clustermaster"},
		{"socket", o.OperatorSocket(), "/var/run/salt/master/clustermaster.sock"},
		{"file_roots", o.FileRoots.Dirs("base"), []string{"/srv/salt", "/srv/spm/salt"}},
		{"health", o.ResolveHealthListen(), "0.0.0.0:4521"},
		{"metrics", o.ResolveMetricsListen(), "127.0.0.1:4522"},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	path := writeTree(t, map[string]string{
		"master":          "id: m1\npublish_port: x\n",
		"master.d/a.conf": "# head\nret_port: y\n",
		"master.d/b.conf": "broken: [\n",
	})
	_, warnings, err := load(path, host{})
	dir := filepath.Dir(path)
	want := []Problem{
		{path, 2, "publish_port", `is the text "x"; a whole number is needed`},
		{filepath.Join(dir, "master.d/a.conf"), 2, "ret_port",
			`is the text "y"; a whole number is needed`},
	}
	got := Problems(err)
	if len(got) != len(want) {
		t.Fatalf("got %v", err)
	}
	for i := range want {
		if *got[i] != want[i] {
			t.Errorf("got  %v\nwant %v", got[i], &want[i])
		}
	}
	if len(warnings) != 1 || !warnings[0].Severe ||
		warnings[0].File != filepath.Join(dir, "master.d/b.conf") {
		t.Errorf("warnings = %v", warnings)
	}
}

func TestDomainAndLogFolder(t *testing.T) {
	o, text := loadText(t, "append_domain: example.org\nlog_dir: /logs\n")
	if o == nil || text != "" {
		t.Fatal(text)
	}
	if o.ID != "box.example.org_master" || o.LogFile != "/logs/master" {
		t.Errorf("id %q and log file %q; want box.example.org_master and /logs/master", o.ID, o.LogFile)
	}
}

func TestBrokenMainFile(t *testing.T) {
	t.Parallel()
	_, _, err := load(writeTree(t, map[string]string{"master": "a: 1\na: 2\n"}), host{})
	var fe *FileError
	if !errors.As(err, &fe) || !strings.HasPrefix(err.Error(), "Error parsing configuration file: "+
		fe.Path+" - line 2, column 1: found conflicting ID 'a'") {
		t.Errorf("got %v", err)
	}
}

func TestWhichFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(writeTree(t, map[string]string{"master": "", "other": ""}))
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir string
		env       map[string]string
		want      string
	}{
		{"folder given", dir, map[string]string{"SALT_CONFIG_DIR": "/x",
			"SALT_MASTER_CONFIG": dir + "/other"}, dir + "/master"},
		{"folder of the environment", "", map[string]string{"SALT_CONFIG_DIR": dir},
			dir + "/master"},
		{"file of the environment", "", map[string]string{"SALT_MASTER_CONFIG": dir + "/other"},
			dir + "/other"},
		{"file that isn't there", "", map[string]string{"SALT_MASTER_CONFIG": dir + "/none"},
			"/etc/salt/master"},
		{"nothing", "", nil, "/etc/salt/master"},
		{"folder below home", "~/x", map[string]string{"HOME": "/home/c"}, "/home/c/x/master"},
		{"folder of a user", "~" + me.Username + "/x", map[string]string{"HOME": "/home/c"}, me.HomeDir + "/x/master"},
		{"folder of no user", "~no one", nil, "~no one/master"},
	} {
		if got := mainFile(c.dir, func(k string) string { return c.env[k] }); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTemplateIsCopied(t *testing.T) {
	t.Parallel()
	path := writeTree(t, map[string]string{"master.template": "# header\nid: made\n"})
	o, _, err := load(path, host{name: "box"})
	if err != nil || o.ID != "made" {
		t.Fatalf("got %v, %v", o, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "id: made\n" {
		t.Errorf("copy = %q, %v", b, err)
	}
}

func TestIncludeCircle(t *testing.T) {
	t.Parallel()
	_, _, err := load(writeTree(t, map[string]string{"master": "include: a.conf\n",
		"a.conf": "include: a.conf\n"}), host{})
	if err == nil || !strings.Contains(err.Error(), "take the circle out") {
		t.Errorf("got %v", err)
	}
}

const clusterText = "id: m1\ninterface: 127.0.0.1\ncluster_id: c\ncluster_secret: 0123456789abcdef0123456789abcdef\n"

func TestPeers(t *testing.T) {
	t.Parallel()
	o, text := loadText(t,
		clusterText+
			"cluster_peers: [127.0.0.3, '127.0.0.2:4999', 127.0.0.1, 127.0.0.3, '::1', '[::2]:5']\n")
	if o == nil {
		t.Fatal(text)
	}
	if want := []string{"127.0.0.2:4999", "127.0.0.3:4520", "[::1]:4520",
		"[::2]:5"}; !reflect.DeepEqual(o.PeerAddrs(), want) {
		t.Errorf("peers = %v, want %v", o.PeerAddrs(), want)
	}
	if a, err := o.ResolveAdvertise(); a != "127.0.0.1:4520" || err != nil {
		t.Errorf("advertise = %s, %v", a, err)
	}
	if err := o.CheckFirst(false); err != nil {
		t.Error(err)
	}
	alone, _ := loadText(t, clusterText+"cluster_peers: [127.0.0.1]\n")
	if err := alone.CheckFirst(false); err == nil ||
		!strings.HasSuffix(err.Error(),
			"master:3: cluster_peers: names no other master, but cluster_id is set; list the other masters' addresses there, or start this one once with `salt-master --found` to found the cluster alone") {
		t.Errorf("got %v", err)
	}
	if err := alone.CheckFirst(true); err != nil {
		t.Errorf("ordered: %v", err)
	}
	if m := o.ResolveMetricsListen(); m != "127.0.0.1:4522" {
		t.Errorf("metrics = %s", m)
	}
	wide, text := loadText(t, strings.Replace(clusterText, "127.0.0.1", "0.0.0.0", 1)+
		"cluster_advertise: m1.example\ncluster_peers: [m2.example]\n")
	if wide == nil {
		t.Fatal(text)
	}
	if a, err := wide.ResolveAdvertise(); a != "m1.example:4520" || err != nil {
		t.Errorf("advertise = %s, %v", a, err)
	}
}

func TestSecretNeverPrints(t *testing.T) {
	t.Parallel()
	const text = "0123456789abcdef0123456789abcdef"
	o, _ := loadText(t, clusterText+"cluster_peers: [127.0.0.2]\nkey_pass: "+text+"\n")
	if o.ClusterSecret.Reveal() != text {
		t.Fatal("the secret isn't the one of the file")
	}
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, nil))
	log.Info("x", "a", o.ClusterSecret, "b", o.Extra["cluster_secret"], "c", o.Extra)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "a", o.ClusterSecret, "c", o.Extra)
	fmt.Fprintf(&b, "%v %+v %#v %s %q %x %X %d %v %+v %#v", o.ClusterSecret, o.ClusterSecret,
		o.ClusterSecret, o.ClusterSecret, o.ClusterSecret, o.ClusterSecret, o.ClusterSecret,
		o.ClusterSecret, o, *o, o)
	if err := json.NewEncoder(&b).Encode(struct{ A any }{o.ClusterSecret}); err != nil {
		t.Fatal(err)
	}
	for _, trace := range []string{text, fmt.Sprintf("%x", text)} {
		if strings.Contains(strings.ToLower(b.String()), trace) {
			t.Errorf("the secret shows in %s", b.String())
		}
	}
}

func TestProxyFrom(t *testing.T) {
	t.Parallel()
	o, text := loadText(t,
		"proxy_protocol: True\nproxy_protocol_from: [10.0.0.5, 10.1.0.0/16, '::1']\n")
	if o == nil {
		t.Fatal(text)
	}
	if got := fmt.Sprint(o.ProxyFrom()); got != "[10.0.0.5/32 10.1.0.0/16 ::1/128]" {
		t.Errorf("got %s", got)
	}
}

func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yml")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parse("master", b)
		if err != nil {
			return
		}
		p.values = p.values.Set("default_include", []any{}).Set("include", []any{})
		o := &Options{ConfFile: "master", Extra: map[string]any{}, origins: p.origins}
		l := &loader{o: o}
		s := source{values: value.Recurse(p.values, p.values, true), origins: p.origins}
		l.aliases(&s)
		l.fill(s.values)
		o.paths(host{name: "box", user: "root"})
		l.check()
	})
}

// TestDifferencesPage: docs/differences.md lists what is refused and what is warned of as this
// package does.
func TestDifferencesPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Configuration\n")
	section, _, _ = strings.Cut(section, "\n#")
	read := func(names ...string) (all string) {
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			all += string(b)
		}
		return all
	}
	for title, said := range map[string]string{
		"Options that would silently have no effect are refused": read("class_r.bad.txt"),
		"Options without effect cause a warning":                 read("all.good.txt", "warned.good.txt"),
	} {
		_, entry, found := strings.Cut(section, "**"+title+"**")
		entry, _, _ = strings.Cut(entry, "\n- ")
		names := regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(entry, -1)
		if !found || len(names) < 5 {
			t.Fatalf("%q names %q", title, names)
		}
		for _, name := range names {
			if !strings.Contains(said, ": "+name[1]+": ") {
				t.Errorf("%s: %s is not said at the start", title, name[1])
			}
		}
		if title == "Options without effect cause a warning" {
			for name := range unusedTexts {
				if strings.ContainsAny(name, "._") && !strings.Contains(entry, "`"+name+"`") {
					t.Errorf("%s lacks %s", title, name)
				}
			}
		}
	}
}

// TestSaltrc: the user's file replaces options of the master's for Salt's own commands alone.
func TestSaltrc(t *testing.T) {
	t.Parallel()
	files := map[string]string{"master": "id: m\noutput: json\ntimeout: 9\nnodegroups: {a: x}\n",
		"home/.saltrc": "output: yaml\nnodegroups: {b: y}\ninclude: more\n", "home/more": "timeout: 2\n",
		"xdg/salt/saltrc": "output: txt\n", "home2/.config/salt/saltrc": "output: raw\n",
		"home2/.saltrc": "output: yaml\n", "client": "output: key\n", "bad": "a: [\n", "odd": "[1]\n",
		"typed": "timeout: soon\n"}
	dir := filepath.Dir(writeTree(t, files))
	for _, c := range []struct {
		name   string
		env    map[string]string
		output string
		err    string
	}{
		{"none", map[string]string{"HOME": dir}, "json", ""},
		{"no home", nil, "json", ""},
		{"of the home", map[string]string{"HOME": dir + "/home"}, "yaml", ""},
		{"below .config", map[string]string{"HOME": dir + "/home2"}, "raw", ""},
		{"of XDG", map[string]string{"HOME": dir + "/home", "XDG_CONFIG_HOME": dir + "/xdg"}, "txt", ""},
		{"named", map[string]string{"HOME": dir + "/home", "SALT_CLIENT_CONFIG": dir + "/client"}, "key",
			""},
		{"named and missing", map[string]string{"HOME": dir + "/home",
			"SALT_CLIENT_CONFIG": dir + "/none"}, "yaml", ""},
		{"not YAML", map[string]string{"SALT_CLIENT_CONFIG": dir + "/bad"}, "",
			"Error parsing configuration file: " + dir + "/bad"},
		{"no mapping", map[string]string{"SALT_CLIENT_CONFIG": dir + "/odd"}, "",
			"Error parsing configuration file: " + dir + "/odd"},
		{"wrong type", map[string]string{"SALT_CLIENT_CONFIG": dir + "/typed"}, "", dir + "/typed:1: timeout"},
	} {
		getenv := func(name string) string { return c.env[name] }
		o, _, err := LoadForClient(dir, getenv)
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil || o.Output != c.output || o.Timeout != 9*time.Second {
			t.Errorf("%s: %+v, %v", c.name, o, err)
		}
		if _, kept := o.Nodegroups.Get("a"); kept != (c.output != "yaml") {
			t.Errorf("%s: nodegroups %v", c.name, o.Nodegroups)
		}
		if o, _, err := LoadForCommand(dir, getenv); err != nil || o.Output != "json" {
			t.Errorf("%s: another command has %v, %v", c.name, o, err)
		}
	}
}

// TestHiddenSecret: users of commands need not read the file of cluster_secret; a master must.
func TestHiddenSecret(t *testing.T) {
	t.Parallel()
	path := writeTree(t, map[string]string{
		"master": "interface: 127.0.0.1\ncluster_id: c\ncluster_peers: [127.0.0.2]\n"})
	none := func(string) string { return "" }
	if o, _, err := LoadForCommand(filepath.Dir(path), none); err != nil || o.ClusterID != "c" {
		t.Errorf("a command has %v, %v", o, err)
	}
	if _, _, err := Load(filepath.Dir(path), none); err == nil ||
		!strings.Contains(err.Error(), "cluster_secret: is not set") {
		t.Errorf("the master has %v", err)
	}
}

// TestUnreadableFolder: a folder whose files the user may not list is named, not taken for an empty
// one.
func TestUnreadableFolder(t *testing.T) {
	path := writeTree(t, map[string]string{
		"master":            "include: closed/extra.conf\n",
		"master.d/a.conf":   "worker_threads: 9\n",
		"closed/extra.conf": "worker_threads: 8\n",
		"elsewhere/master":  "default_include: none.d/*.conf\n",
	})
	dir := filepath.Dir(path)
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, closed := range []string{"master.d", "closed"} {
		if err := os.Chmod(filepath.Join(dir, closed), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, closed), 0o755) })
	}
	warnings, err := loadAsOther(path)
	if err != nil {
		t.Fatal(err)
	}
	broken := Broken(warnings)
	for _, name := range []string{"master.d/*.conf", "closed/extra.conf"} {
		if broken == nil || !strings.Contains(broken.Error(),
			filepath.Join(dir, name)+": nothing of this file is used: ") {
			t.Errorf("%s is not named: %v", name, broken)
		}
	}
	if warnings, err := loadAsOther(filepath.Join(dir, "elsewhere/master")); err != nil || Broken(warnings) != nil {
		t.Errorf("a folder that does not exist: %v, %v", warnings, err)
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := loadAsOther(path); err == nil || !strings.Contains(err.Error(),
		path+": permission denied; let users who run commands read it (mode 0644), with cluster_secret") {
		t.Errorf("the main file: %v", err)
	}
}

// loadAsOther loads without root's right to read everything.
func loadAsOther(path string) (warnings []Warning, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Getuid() == 0 {
			runtime.LockOSThread() // never unlocked: the thread ends here, with its user
			if err = syscall.Setfsuid(65534); err != nil {
				return
			}
		}
		_, warnings, err = load(path, host{})
	}()
	<-done
	return warnings, err
}
