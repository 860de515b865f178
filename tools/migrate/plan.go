package migrate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clustermaster/config"
	"clustermaster/keystore"
	"clustermaster/value"
	"clustermaster/value/yaml11"
	"clustermaster/wire"
)

// Plan describes a Salt master before it is replaced.
type Plan struct {
	Master    string           `json:"master"` // its id
	ConfFile  string           `json:"conf_file"`
	Release   string           `json:"salt_release,omitempty"` // as salt-master --version prints it
	Setup     string           `json:"setup"`
	Options   []config.Verdict `json:"options"`
	Modules   []Module         `json:"modules"`
	Keys      map[string]int   `json:"keys"` // state to number
	Conflicts []Conflict       `json:"key_conflicts"`
	MasterKey string           `json:"master_key"` // fingerprint
	Founder   string           `json:"founder"`
	Ports     []Port           `json:"ports"`
	Disk      Disk             `json:"disk"`
	Caches    Caches           `json:"caches"`
	Minions   []Finding        `json:"minions"`
	Packages  []Package        `json:"packages"`
	Errors    []string         `json:"errors"` // other reasons why apply can't begin

	options  *config.Options
	accepted map[string]bool // ids of minions
}

// Finding is what to know about minions of some releases.
type Finding struct {
	Fate   config.Fate `json:"fate"`
	Count  int         `json:"count"` // minions, as their cached grains say
	Text   string      `json:"text"`
	Remedy string      `json:"remedy"`
}

// Package is one of Salt's that can't stay beside clustermaster's.
type Package struct {
	Name   string `json:"name"`
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

// Module is a file of the site's own code, or a use of one in a template.
type Module struct {
	Path string      `json:"path"`
	Line int         `json:"line,omitempty"` // from 1
	Fate config.Fate `json:"fate"`
	Text string      `json:"text"`
}

// Conflict is an id whose keys differ between masters.
type Conflict struct {
	ID     string `json:"id"`
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

// Port is a port that this master needs.
type Port struct {
	Option string `json:"option"`
	Addr   string `json:"addr"`
	Free   bool   `json:"free"`
	Text   string `json:"text,omitempty"`
}

// Disk is the space at cachedir, in bytes.
type Disk struct {
	Path string `json:"path"`
	Free uint64 `json:"free"`
	Need uint64 `json:"need"` // three times the jobs and caches to import
}

// Caches counts the data to import.
type Caches struct {
	Jobs    int `json:"jobs"`
	Minions int `json:"minions"` // with grains, pillar or mine
	Tokens  int `json:"tokens"`
	Stubs   int `json:"autosign_stubs"`
}

// look makes a plan. names are the functions that templates have here.
func look(ctx context.Context, f flags, names []string, getenv func(string) string) (*Plan, error) {
	o, verdicts, err := config.Inspect(f.dir, getenv)
	if err != nil {
		return nil, err
	}
	if err := willSet(verdicts, f.extra); err != nil {
		return nil, err
	}
	p := &Plan{Master: o.ID, ConfFile: o.ConfFile, Options: verdicts, Keys: map[string]int{},
		options: o, Modules: []Module{}, Conflicts: []Conflict{}, Errors: []string{},
		Minions: []Finding{}, Packages: packages("/usr/bin"), accepted: map[string]bool{}}
	p.Release = release(ctx, f.salt)
	p.modules(names)
	p.keys(f.others)
	p.ports(ctx)
	p.caches()
	p.setup(len(f.others))
	return p, nil
}

// packages finds those of Salt's packages that depend on the very release of its salt-master, by
// their programs in bin. The program itself belongs to salt-common (deb) or salt (rpm).
func packages(bin string) []Package {
	list := []Package{}
	for _, name := range []string{"salt-api", "salt-cloud", "salt-syndic"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			continue
		}
		list = append(list, Package{Name: name,
			Text: "it depends on Salt's own package salt-master: dpkg and rpm refuse clustermaster beside it, and apt removes it",
			Remedy: "remove the package, keep salt-common (rpm: salt), and run /opt/saltstack/salt/" +
				name + "; install.md shows how"})
	}
	return list
}

// willSet changes the verdicts on missing options that the file of --options sets. Salt 3007's
// clusters have no cluster_secret, for example.
func willSet(verdicts []config.Verdict, path string) error {
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--options: %w", err)
	}
	v, err := yaml11.Load(b)
	if err != nil {
		return fmt.Errorf("--options %s: %w", path, err)
	}
	set, _ := v.(value.Map)
	for i, v := range verdicts {
		if _, given := set.Get(v.Option); given && v.Fate == config.Refused && v.Line == 0 {
			verdicts[i] = config.Verdict{Option: v.Option, Fate: config.Works, Text: "is set by --options"}
		}
	}
	return nil
}

// release asks the installed Salt for its release; "" if there is none.
func release(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

func (p *Plan) setup(others int) {
	o := p.options
	switch {
	case o.ClusterID != "" && o.SharedKeys():
		p.Setup = "a cluster of Salt with a shared cluster_pki_dir"
	case o.ClusterID != "":
		p.Setup = "a cluster of Salt"
	case others > 0:
		p.Setup = fmt.Sprintf("one of %d masters with keys of their own or copied ones", others+1)
	default:
		p.Setup = "a single master"
	}
	accepted := p.Keys[keystore.Accepted.String()]
	switch {
	case p.MasterKey == "":
		p.Founder = "this master has no key yet: it would make one, and every minion would have to learn it"
	case o.ClusterID == "":
		p.Founder = fmt.Sprintf("this master keeps its key and %d accepted minions; in a cluster to come start it first, so that it is the founder", accepted)
	default:
		p.Founder = fmt.Sprintf("the master with the former master's key and minions; this one has the key and %d accepted minions", accepted)
	}
}

// Folders of file_roots whose Python files a Salt master loads, and those that only minions load.
var (
	masterCode = []string{"_runners", "_engines", "_pillar", "_returners", "_wheel", "_tops",
		"_output", "_queues", "_renderers", "_roster", "_sdb", "_auth", "_tokens", "_fileserver",
		"_netapi", "_cache", "_executors"}
	pipes = []string{"jinja", "yaml", "json", "gpg", "py"}
)

var called = regexp.MustCompile(`(?:__salt__|salt)\[['"]([a-z_0-9]+\.[a-z_0-9]+)['"]\]|\bsalt\.([a-z_0-9]+\.[a-z_0-9]+)\(`)

// maxFiles bounds the files of roots that are read.
const maxFiles = 20000

// modules finds code that the master runs: its own modules, renderers and functions of templates.
func (p *Plan) modules(names []string) {
	o := p.options
	for _, env := range o.FileRoots {
		for _, dir := range env.Dirs {
			for _, sub := range masterCode {
				found, _ := filepath.Glob(filepath.Join(dir, sub, "*.py"))
				for _, path := range found {
					p.Modules = append(p.Modules,
						Module{Path: path, Fate: config.Python,
							Text: "code of the master's; minions do not need it"})
				}
			}
		}
	}
	if ext, _ := o.Extra["extension_modules"].(string); ext != "" {
		found, _ := filepath.Glob(filepath.Join(ext, "*", "*.py"))
		for _, path := range found {
			p.Modules = append(p.Modules,
				Module{Path: path, Fate: config.Python, Text: "code in extension_modules"})
		}
	}
	files := 0
	for _, env := range o.PillarRoots {
		for _, dir := range env.Dirs {
			// With the slash a link to the folder is followed.
			_ = filepath.WalkDir(dir+"/", func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return nil
				}
				if files++; files > maxFiles {
					return fs.SkipAll
				}
				p.template(path, names)
				return nil
			})
		}
	}
}

// template examines one file of pillar_roots.
func (p *Plan) template(path string, names []string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for line := 1; sc.Scan(); line++ {
		text := sc.Text()
		if pipe, ok := strings.CutPrefix(text, "#!"); ok && line == 1 &&
			strings.HasSuffix(path, ".sls") {
			for _, r := range strings.Split(pipe, "|") {
				if name, _, _ := strings.Cut(strings.TrimSpace(r), " "); name != "" &&
					!slices.Contains(pipes, name) {
					p.Modules = append(p.Modules,
						Module{Path: path, Line: line, Fate: config.Refused,
							Text: "the renderer " + name +
								" is not built in: write it in jinja or py"})
				}
			}
		}
		for _, m := range called.FindAllStringSubmatch(text, -1) {
			if name := m[1] + m[2]; !slices.Contains(names, name) {
				p.Modules = append(p.Modules, Module{Path: path, Line: line, Fate: config.Python,
					Text: "the function " + name +
						" is not native: it needs Salt's Python on this machine"})
			}
		}
	}
}

// keys counts this master's keys and compares them with those of others.
func (p *Plan) keys(others []string) {
	own, ok := p.read(p.options.KeysDir())
	if !ok {
		return
	}
	for id, k := range own {
		p.Keys[k.State.String()]++
		p.accepted[id] = k.State == keystore.Accepted
	}
	p.MasterKey = fingerprint(p.options)
	for _, dir := range others {
		theirs, ok := p.read(dir)
		if !ok {
			continue
		}
		for id, k := range theirs {
			mine, both := own[id]
			switch {
			case !both && k.State == keystore.Accepted:
				p.conflict(id, fmt.Sprintf("it is accepted in %s and not known here", dir),
					"a master that joins brings it; else copy "+filepath.Join(dir, "minions", id)+
						" into the folder minions here")
			case !both && k.State == keystore.Rejected:
				p.conflict(id, fmt.Sprintf("it is rejected in %s and not known here", dir),
					"reject it on the founder: a master that joins brings only accepted keys")
			case both && mine.Pub != k.Pub:
				p.conflict(id, fmt.Sprintf("its key here differs from that in %s", dir),
					"find out which the minion has (salt-call --local key.finger there), and delete the other")
			case both && mine.State != k.State:
				p.conflict(id, fmt.Sprintf("it is in %s here and in %s in %s", mine.State, k.State,
					dir), "decide, and make both the same; in a cluster, what the founder has counts")
			}
		}
		if a, b := masterPub(p.options.PkiDir), masterPub(dir); a != "" && b != "" && a != b {
			p.conflict("master key",
				fmt.Sprintf("the master in %s has another key; minions that know only that one will refuse this master's", dir),
				"decide whose key the cluster keeps (the founder's), and delete minion_master.pub on minions that know only the other")
		}
	}
	slices.SortFunc(p.Conflicts, func(a, b Conflict) int { return strings.Compare(a.ID, b.ID) })
}

func (p *Plan) conflict(id, text, remedy string) {
	p.Conflicts = append(p.Conflicts, Conflict{ID: id, Text: text, Remedy: remedy})
}

// read maps ids to the keys in a pki folder; if an id has a denied key and another one, the other
// one counts.
func (p *Plan) read(dir string) (map[string]keystore.Key, bool) {
	list, err := keystore.ReadDir(dir)
	if err != nil {
		p.Errors = append(p.Errors, fmt.Sprintf("the keys in %s can't be read: %v", dir, err))
		return nil, false
	}
	out := make(map[string]keystore.Key)
	for _, k := range list {
		if before, ok := out[k.ID]; ok &&
			(k.State == keystore.Denied || before.State != keystore.Denied) {
			continue
		}
		out[k.ID] = k
	}
	return out, true
}

// masterPub returns the text of a folder's master.pub, "" if there is none.
func masterPub(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "master.pub"))
	if err != nil {
		if b, err = keystore.ReadMmapMaster(dir, "master.pub"); err != nil {
			return ""
		}
	}
	return strings.TrimSpace(string(b))
}

// fingerprint returns that of the key by which minions identify this master; "" if there is none.
func fingerprint(o *config.Options) string {
	text := masterPub(o.PkiDir)
	if o.ClusterID != "" {
		if b, err := os.ReadFile(filepath.Join(o.ClusterPkiDir, "cluster.pub")); err == nil {
			text = string(b)
		}
	}
	if text == "" {
		return ""
	}
	f, err := wire.Fingerprint(text, "sha256")
	if err != nil {
		return ""
	}
	return f
}

func (p *Plan) ports(ctx context.Context) {
	o := p.options
	runs := process(o.PidFile) > 0
	for _, n := range []struct {
		option, addr string
		salts        bool
	}{
		{"publish_port", o.ListenAddr(o.PublishPort), true},
		{"ret_port", o.ListenAddr(o.RetPort), true},
		{"cluster_pool_port", o.ListenAddr(o.ClusterPoolPort), o.ClusterID != ""},
		{"health_listen", o.ResolveHealthListen(), false},
		{"metrics_listen", o.ResolveMetricsListen(), false},
	} {
		port := Port{Option: n.option, Addr: n.addr, Free: true}
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", n.addr)
		switch {
		case err == nil:
			ln.Close()
		case errors.Is(err, syscall.EADDRINUSE) && n.salts && runs:
			port.Text = "Salt's master has it, and is stopped first"
		case errors.Is(err, syscall.EADDRINUSE) && n.salts:
			port.Text = "taken, likely by Salt's master, which is stopped first"
		default:
			port.Free, port.Text = false,
				fmt.Sprintf("%v; set %s otherwise, or stop the program that has it", err, n.option)
		}
		p.Ports = append(p.Ports, port)
	}
}

// process returns the running process of a pidfile, 0 if there is none.
func process(pidfile string) int {
	b, err := os.ReadFile(pidfile)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 || syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

// spare is the space needed besides imported data: the Raft log, snapshots, journals.
const spare = 512 << 20

func (p *Plan) caches() {
	o := p.options
	p.Disk.Path = o.CacheDir
	var bytes uint64
	count := func(sub string, each func(path string, d fs.DirEntry)) {
		_ = filepath.WalkDir(filepath.Join(o.CacheDir, sub),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return nil
				}
				if info, err := d.Info(); err == nil {
					bytes += uint64(info.Size())
				}
				each(path, d)
				return nil
			})
	}
	count("jobs", func(_ string, d fs.DirEntry) {
		if d.Name() == "jid" {
			p.Caches.Jobs++
		}
	})
	hanging := make(map[string]bool) // ids
	hangs := func(id string, grains value.Map) {
		if p.accepted[id] && strings.HasPrefix(grains.String("saltversion"), "3007.") {
			hanging[id] = true
		}
	}
	count("minions", func(path string, d fs.DirEntry) {
		if d.Name() == "data.p" {
			p.Caches.Minions++
			grains, _ := cached(path).Get("grains")
			m, _ := grains.(value.Map)
			hangs(filepath.Base(filepath.Dir(path)), m)
		}
	})
	count("grains", func(path string, d fs.DirEntry) {
		p.Caches.Minions++
		hangs(strings.TrimSuffix(d.Name(), ".p"), cached(path))
	})
	if len(hanging) > 0 {
		p.Minions = append(p.Minions, Finding{
			Fate: config.Differently, Count: len(hanging),
			Text: "run Salt 3007: those that name several masters may hang once one of these has stopped",
			Remedy: "set return_retry_tries: 1 in their configuration and restart them before you migrate; " +
				"minions that have the option, or name one address, need nothing",
		})
	}
	count("pillar", func(string, fs.DirEntry) {})
	count("mine", func(string, fs.DirEntry) {})
	count("tokens", func(string, fs.DirEntry) { p.Caches.Tokens++ })
	if stubs, err := os.ReadDir(filepath.Join(o.KeysDir(), "minions_autosign")); err == nil {
		p.Caches.Stubs = len(stubs)
	}
	p.Disk.Need = 3*bytes + spare
	var s syscall.Statfs_t
	dir := o.CacheDir
	for dir != "/" && syscall.Statfs(dir, &s) != nil {
		dir = filepath.Dir(dir)
	}
	p.Disk.Free = s.Bavail * uint64(s.Bsize)
}

// maxCached bounds one file of Salt's cache, in bytes.
const maxCached = 64 << 20

// cached reads a map of Salt's cache; nil if that can't be read.
func cached(path string) value.Map {
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxCached {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	v, _ := value.Unpack(b)
	m, _ := v.(value.Map)
	return m
}

// Exit codes.
const (
	exitGood        = 0
	exitBlocked     = 1 // apply can't begin
	exitDifferently = 3 // apply can begin, and something will differ
	exitUsage       = 64
)

// blockers lists the reasons why apply can't begin.
func (p *Plan) blockers() (list []string) {
	list = append(list, p.Errors...)
	for _, v := range p.Options {
		if v.Fate == config.Refused || v.Fate == config.Python && v.Text != "" &&
			!strings.HasPrefix(v.Text, "is not used") {
			list = append(list, fmt.Sprintf("%s: %s: %s", place(v), v.Option, v.Text))
		}
	}
	for _, port := range p.Ports {
		if !port.Free {
			list = append(list, port.Option+" "+port.Addr+": "+port.Text)
		}
	}
	if p.Disk.Free < p.Disk.Need {
		list = append(list,
			fmt.Sprintf("cachedir %s: %d MiB are free, and %d MiB are needed: free space there, or set cachedir elsewhere", p.Disk.Path, p.Disk.Free>>20, p.Disk.Need>>20))
	}
	if dir := p.options.DataDir(); holds(dir) {
		list = append(list,
			dir+
				": it already holds data of this master, which would count instead of Salt's keys; move the "+
				"folder away")
	}
	if p.MasterKey == "" {
		list = append(list, "there is no master key in "+p.options.PkiDir+
			": is this the box of the Salt master? -c names its configuration")
	}
	return list
}

// holds reports whether a folder is not empty.
func holds(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

func place(v config.Verdict) string {
	if v.Line > 0 {
		return fmt.Sprintf("%s:%d", v.File, v.Line)
	}
	return v.File
}

func (p *Plan) code() int {
	if len(p.blockers()) > 0 {
		return exitBlocked
	}
	for _, v := range p.Options {
		if v.Fate != config.Works {
			return exitDifferently
		}
	}
	if len(p.Modules) > 0 || len(p.Conflicts) > 0 || len(p.Minions) > 0 || len(p.Packages) > 0 {
		return exitDifferently
	}
	return exitGood
}
