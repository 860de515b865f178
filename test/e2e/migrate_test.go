package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// daemonCommands are the shell commands that start and stop a master in the background.
func daemonCommands(m *Master, p Programs) (start, stop string) {
	return fmt.Sprintf("%s -c %s -d >/dev/null 2>&1", p.Master, m.ConfDir),
		fmt.Sprintf("kill $(cat %s)", filepath.Join(m.Dir, "master.pid"))
}

// endDaemon ends the master named by the pidfile.
func (m *Master) endDaemon(t *testing.T) {
	t.Helper()
	endNamed(filepath.Join(m.Dir, "master.pid"))
}

// endNamed ends the master named by a pidfile, if there is one.
func endNamed(pidfile string) {
	b, err := os.ReadFile(pidfile)
	if err != nil {
		return
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		for range 100 {
			if syscall.Kill(pid, 0) != nil {
				return
			}
			<-time.After(100 * time.Millisecond)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// pinger pings a minion repeatedly, a second after each answer, with the command that is
// installed on the box of one master.
type pinger struct {
	choose func() *Master // from which a ping is sent; nil: from

	mu           sync.Mutex // guards the fields below
	from         *Master
	good, missed int
	last         time.Time // of the last answer
	gap          time.Duration
	failed       []string // what the missed pings printed
	end          chan struct{}
	ended        chan struct{}
}

func startPinger(t *testing.T, from *Master, choose func() *Master, id string) *pinger {
	p := &pinger{choose: choose, from: from, end: make(chan struct{}), ended: make(chan struct{}),
		last: time.Now()}
	go func() {
		defer close(p.ended)
		for {
			p.mu.Lock()
			m := p.from
			p.mu.Unlock()
			if p.choose != nil {
				m = p.choose()
			}
			began := time.Now()
			// Without --static, which has Salt's command ping twice. One minion gives one document.
			r, err := run("", m.programs.Salt, "-c", m.ConfDir, "--out=json", "-t", "5", id,
				"test.ping")
			p.mu.Lock()
			if err == nil && slices.Contains(answered(r), id) {
				p.good++
				p.gap, p.last = max(p.gap, time.Since(p.last)), time.Now()
			} else {
				p.missed++
				p.failed = append(p.failed, fmt.Sprintf("%s %s: %v %v", began.Format("15:04:05.0"),
					m.ID, r, err))
			}
			p.mu.Unlock()
			select {
			case <-p.end:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	t.Cleanup(p.stop)
	return p
}

func (p *pinger) stop() {
	select {
	case <-p.end:
	default:
		close(p.end)
	}
	<-p.ended
}

// use takes the commands of another master from the next ping on.
func (p *pinger) use(m *Master) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from = m
}

// answer waits for an answer to a ping that begins after the call, and returns how many were missed
// since the last call.
func (p *pinger) answer(t *testing.T, after string) (missed int) {
	t.Helper()
	p.mu.Lock()
	before := p.good
	p.mu.Unlock()
	Eventually(t, 90*time.Second, "the minion answers "+after, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.good < before+2 { // the first may have begun earlier
			return fmt.Errorf("not yet; missed: %v", p.failed)
		}
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%s: %d pings answered, %d missed, longest time without an answer %v\n%s", after, p.good,
		p.missed, p.gap.Round(100*time.Millisecond), strings.Join(p.failed, "\n"))
	missed = p.missed
	p.good, p.missed, p.gap, p.failed = 0, 0, 0, nil
	return missed
}

// site is a set-up of Salt's masters that is migrated.
type site struct {
	setup    string
	masters  int
	release  string
	shared   bool // the masters have one folder of keys; else a copy each
	cluster  bool // a cluster of Salt's, with cluster_pki_dir
	failover bool // the minion knows the masters as a list to fail over in; else it has all at once
	fails    bool // an apply that fails comes first
}

func (s site) name() string { return s.release[:4] + "_" + s.setup }

var sites = []site{
	{setup: "single", masters: 1, release: "3006.28"},
	{setup: "single", masters: 1, release: "3007.15"},
	{setup: "single", masters: 1, release: "3008.3", fails: true},
	{setup: "copied", masters: 2, release: "3006.28"},
	{setup: "copied", masters: 2, release: "3007.15"},
	{setup: "copied", masters: 2, release: "3008.3"},
	{setup: "shared", masters: 2, release: "3006.28", shared: true},
	{setup: "shared", masters: 2, release: "3007.15", shared: true},
	{setup: "shared", masters: 2, release: "3008.3", shared: true},
	{setup: "failover", masters: 2, release: "3006.28", failover: true},
	{setup: "failover", masters: 2, release: "3007.15", failover: true},
	{setup: "failover", masters: 2, release: "3008.3", failover: true},
	{setup: "cluster", masters: 2, release: "3007.15", shared: true, cluster: true},
	{setup: "cluster", masters: 2, release: "3008.3", cluster: true},
}

// TestMigration takes each set-up of Salt's masters with a real minion to this master and back,
// under pings. The minion keeps its key and is not restarted.
func TestMigration(t *testing.T) {
	t.Parallel()
	long(t)
	for _, s := range sites {
		t.Run(s.name(), func(t *testing.T) { s.migrate(t) })
	}
}

// TestMigrationSteps applies and rolls back without Salt: a folder of keys as Salt leaves it, and
// a program that listens in the place of Salt's master.
func TestMigrationSteps(t *testing.T) {
	t.Parallel()
	ours := Ours(t)
	c := NewCluster(t, ClusterOptions{Masters: 1, Plain: true, Programs: ours})
	m := c.Masters[0]
	pki := filepath.Join(m.Dir, "pki")
	for _, name := range []string{"master", "minions/web1", "minions_pre/web2"} {
		if r := m.Key(t, "--gen-keys", filepath.Base(name), "--gen-keys-dir", m.Dir); r.Code != 0 {
			t.Fatal(r)
		}
		if err := os.MkdirAll(filepath.Join(pki, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		from, to := filepath.Join(m.Dir, filepath.Base(name)), filepath.Join(pki, name)
		if name == "master" {
			if err := os.Rename(from+".pem", to+".pem"); err != nil {
				t.Fatal(err)
			}
			to += ".pub"
		}
		if err := os.Rename(from+".pub", to); err != nil {
			t.Fatal(err)
		}
	}
	start, stop := daemonCommands(m, ours)
	t.Cleanup(func() { m.endDaemon(t) })
	tool := func(args ...string) Result {
		return Command(t, filepath.Join(filepath.Dir(ours.Master), "clustermaster"),
			append([]string{"migrate", "-c", m.ConfDir}, args...)...)
	}
	if r := tool("plan"); r.Code == 1 ||
		!strings.Contains(r.Stdout, "Keys: 1 accepted, 1 pending") {
		t.Errorf("plan: %v", r)
	}
	theirs := standIn(m)
	if r := tool("apply", "--stop", "true", "--start", "true"); r.Code != 64 ||
		!strings.Contains(r.Stderr, "give --undo too") {
		t.Errorf("apply without --undo: %v", r)
	}
	fails := func(undo string) Result {
		return tool("apply", "--stop", "true", "--start", "echo no such package; exit 1", "--undo", undo)
	}
	if r := fails(theirs); r.Code != 1 || !strings.Contains(r.Stderr,
		"Salt's master was restored") {
		t.Fatalf("apply that fails: %v", r)
	}
	m.endDaemon(t)
	// The unit still starts this master.
	const wrong = "clustermaster was started, not Salt's master"
	if r := fails(start); r.Code != 1 || !strings.Contains(r.Stderr, wrong) ||
		strings.Contains(r.Stderr, "was restored") {
		t.Fatalf("apply that fails and starts this master again: %v", r)
	}
	if r := fails(theirs); r.Code != 1 || !strings.Contains(r.Stderr, "was interrupted") {
		t.Errorf("apply after one that could not restore: %v", r)
	}
	if r := tool("rollback", "--stop", stop, "--start", start); r.Code != 1 ||
		!strings.Contains(r.Stderr, wrong) {
		t.Errorf("rollback that starts this master again: %v", r)
	}
	if r := tool("rollback", "--stop", stop, "--start", theirs); r.Code != 0 {
		t.Fatalf("rollback: %v", r)
	}
	m.endDaemon(t)
	if r := tool("apply", "--stop", "true", "--start", start, "--undo", "true"); r.Code != 0 ||
		!strings.Contains(r.Stdout, "compared 2 keys") {
		t.Fatalf("apply: %v", r)
	}
	if r := m.Key(t, "-y", "-a", "web2"); r.Code != 0 {
		t.Fatal(r)
	}
	if r := tool("rollback", "--stop", stop, "--start", theirs); r.Code != 0 ||
		!strings.Contains(r.Stdout, "wrote    files of caches") {
		t.Fatalf("rollback: %v", r)
	}
	for path, there := range map[string]bool{
		filepath.Join(pki, "minions", "web2"):                      true,
		filepath.Join(pki, "minions_pre", "web2"):                  false,
		filepath.Join(m.ConfDir, "master.d", "clustermaster.conf"): false,
	} {
		if _, err := os.Stat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	m.endDaemon(t)
	if r := Command(t, "/bin/sh", "-c", start); r.Code != 0 {
		t.Fatal(r)
	}
	Eventually(t, 60*time.Second, "plan finds data of this master", func() error {
		if r := tool("plan"); r.Code != 1 ||
			!strings.Contains(r.Stdout, "it already holds data of this master") {
			return errors.New(r.String())
		}
		return nil
	})
}

// standIn is a shell command that starts a program in the place of Salt's master: it listens on the
// request port.
func standIn(m *Master) string {
	return fmt.Sprintf("python3 -c 'import signal, socket\n"+
		"s = socket.create_server((\"%s\", %d))\nsignal.pause()' & echo $! > %s", m.Addr, RequestPort,
		filepath.Join(m.Dir, "master.pid"))
}

// box is the machine of one master: bin leads to the programs that are installed.
type box struct {
	*Master
	bin          string
	ours, theirs string // commands that start; theirs installs first
	// to stop Salt's master, with ours installed before, and to stop ours
	stopTheirs, stopOurs string
	options              string // file for --options; "" without
	tool                 string
}

// moving is a migration under way.
type moving struct {
	site
	*Cluster
	boxes  []*box
	minion *Minion
	pings  *pinger
}

func (s site) migrate(t *testing.T) {
	c := NewCluster(t, ClusterOptions{Masters: s.masters, Plain: true, Programs: Theirs(t, s.release),
		Extra: "auto_accept: True\nworker_threads: 3\nsharedsecret: open sesame\n" +
			"external_auth: {sharedsecret: {carol: [test.*]}}\n"})
	v := &moving{site: s, Cluster: c}
	for i, m := range c.Masters {
		v.boxes = append(v.boxes, v.newBox(t, m))
		v.configure(t, i)
	}
	v.startTheirs(t)
	addrs := c.Masters[0].Addr
	extra := ""
	switch {
	case s.failover:
		extra = "master_type: failover\nmaster_alive_interval: 5\nretry_dns: 0\n"
	case s.masters > 1:
		// With the default, 0, Salt's minion starts a process for each master every second, once a
		// connection has ended.
		extra = "master_alive_interval: 30\n"
	}
	if s.masters > 1 && s.release == "3007.15" {
		// With the default, 3, the minion may hang once a master has stopped (TestClosedChannel).
		extra += "return_retry_tries: 1\n"
	}
	if s.masters > 1 {
		addrs = "[" + strings.Join(c.Addrs(), ", ") + "]"
	}
	minionOptions := func(id string) MinionOptions {
		return MinionOptions{ID: id, Release: s.release, Master: addrs, Extra: extra}
	}
	v.minion = v.newMinion(t, minionOptions("kept"))
	var choose func() *Master
	if s.failover {
		choose = v.chosen(t)
	}
	if !s.failover {
		for _, b := range v.boxes {
			Eventually(t, 90*time.Second, "the minion answers "+b.ID, func() error {
				if ids := answered(b.Salt(t, "--out=json", "kept", "test.ping")); len(ids) != 1 {
					return errors.New("no answer yet")
				}
				return nil
			})
		}
	}
	v.pings = startPinger(t, v.boxes[0].Master, choose, v.minion.ID)
	v.pings.answer(t, "before")
	pid := v.minion.PID()
	jid := v.before(t)
	if s.fails {
		v.applyFails(t)
	}
	for i, b := range v.boxes {
		v.apply(t, i)
		v.tookIn(t, b, jid)
	}
	v.newMinion(t, minionOptions("fresh"))
	last := v.boxes[len(v.boxes)-1]
	Eventually(t, 60*time.Second, "a new minion is accepted and answers", func() error {
		if ids := answered(last.Salt(t, "--out=json", "fresh", "test.ping")); len(ids) != 1 {
			return errors.New("no answer yet")
		}
		return nil
	})
	if r := last.Key(t, "-y", "-a", "web2"); r.Code != 0 {
		t.Error(r)
	}
	jid = v.echo(t, last, "from ours")
	for i := range slices.Backward(v.boxes) {
		v.rollback(t, i)
	}
	v.pings.stop()
	for _, b := range v.boxes {
		v.returned(t, b, jid)
	}
	if !v.minion.Running() || v.minion.PID() != pid {
		t.Error("the minion was restarted")
	}
	if r := last.migrate(t, "rollback", "--stop", "true"); r.Code != 1 ||
		!strings.Contains(r.Stderr, "no migration is recorded") {
		t.Errorf("a second rollback: %v", r)
	}
}

// newMinion starts a minion that knows the masters' key. Without it a minion that signs in to two
// masters at once may fail for ever at one of them: each sign-in writes the file and reads it.
func (v *moving) newMinion(t *testing.T, o MinionOptions) *Minion {
	t.Helper()
	pub := filepath.Join(v.pki(v.boxes[0]), "cluster.pub")
	if !v.cluster {
		pub = filepath.Join(v.pki(v.boxes[0]), "master.pub")
	}
	b, err := os.ReadFile(pub)
	if err != nil {
		t.Fatal(err)
	}
	m := NewMinion(t, v.Dir, o)
	put(t, filepath.Join(m.Dir, "pki"), map[string]string{"minion_master.pub": string(b)})
	m.Run(t)
	return m
}

func (v *moving) newBox(t *testing.T, m *Master) *box {
	ours, theirs := filepath.Dir(Ours(t).Master), filepath.Dir(Theirs(t, v.release).Master)
	b := &box{Master: m, bin: filepath.Join(m.Dir, "bin"), tool: filepath.Join(ours, "clustermaster")}
	install := func(dir string) string {
		return fmt.Sprintf("ln -s %s %[2]s.new && mv -T %[2]s.new %[2]s", dir, b.bin)
	}
	m.Use(programs(b.bin))
	start, stop := daemonCommands(m, programs(b.bin))
	b.ours, b.stopTheirs = start, install(ours)+" && "+stop
	b.theirs, b.stopOurs = install(theirs)+" && "+start, stop
	t.Cleanup(func() { m.endDaemon(t) })
	return b
}

// configure writes the options of Salt's set-up, and the file of those that ours needs in addition.
func (v *moving) configure(t *testing.T, i int) {
	b := v.boxes[i]
	if v.masters == 1 {
		return
	}
	peer := v.Masters[1-i].Addr
	text := b.Config(t)
	id := fmt.Sprintf("cluster_id: e2e\ncluster_peers: [%s]\n", peer)
	options := fmt.Sprintf("cluster_secret: %s\n", v.Secret) // new in 3008
	if !v.cluster || !v.shared {
		options += "cluster_isolated_filesystem: True\n"
	}
	switch {
	case v.cluster:
		b.Configure(t, strings.Replace(text, "id: "+b.ID, "id: "+b.Addr, 1)+id+
			"cluster_pki_dir: "+v.pki(b)+"\n")
		b.ID = b.Addr
	case v.shared:
		b.Configure(t, strings.NewReplacer("root_dir: "+b.Dir, "root_dir: /",
			"pki_dir: "+filepath.Join(b.Dir, "pki"), "pki_dir: "+v.pki(b)).Replace(text))
		options = id + options
	default:
		options = id + options
	}
	if v.cluster && !v.shared {
		b.Configure(t, b.Config(t)+options+"keys.cache_driver: localfs_key\n")
		return
	}
	b.options = filepath.Join(b.Dir, "cluster.conf")
	if err := os.WriteFile(b.options, []byte(options), 0o600); err != nil {
		t.Fatal(err)
	}
}

// pki is the folder of the master's minion keys.
func (v *moving) pki(b *box) string {
	switch {
	case v.shared:
		return filepath.Join(v.Dir, "pki")
	case v.cluster:
		return filepath.Join(b.Dir, "cluster_pki")
	}
	return filepath.Join(b.Dir, "pki")
}

// startTheirs starts Salt's masters one after the other, with one key. In pki_dir are keys in all
// states before the first begins.
func (v *moving) startTheirs(t *testing.T) {
	if r := v.boxes[0].migrate(t, "plan"); r.Code != 1 ||
		!strings.Contains(r.Stdout, "is this the box of the Salt master?") {
		t.Errorf("plan without a key: %v", r)
	}
	_, pending := keyPair(t)
	_, rejected := keyPair(t)
	for i, b := range v.boxes {
		if err := os.MkdirAll(v.pki(b), 0o700); err != nil {
			t.Fatal(err)
		}
		if i > 0 && !v.shared && !v.cluster {
			v.copyKeys(t, v.boxes[0], b)
		}
		if i > 0 && !v.cluster && v.release == "3008.3" {
			v.nameKey(t, v.boxes[0], b)
		}
		put(t, v.pki(b), map[string]string{"minions_pre/web2": pending,
			"minions_rejected/web3": rejected})
		if r := Command(t, "/bin/sh", "-c", b.theirs); r.Code != 0 {
			t.Fatal(r)
		}
		listens := func() {
			Eventually(t, 60*time.Second, "Salt's "+b.ID+" listens",
				func() error { return dial(b.Addr, RequestPort) })
		}
		listens()
		if i > 0 && v.cluster && !v.shared {
			v.commonKey(t, v.boxes[0], b)
			listens()
		}
	}
}

// commonKey waits until a master of Salt 3008 has got the cluster's key, and starts it again.
// Workers that began before have the key that it had made for itself, and minions refuse them.
func (v *moving) commonKey(t *testing.T, first, b *box) {
	t.Helper()
	read := func(of *box) string {
		text, _ := os.ReadFile(filepath.Join(v.pki(of), "cluster.pub")) // missing at first
		return string(text)
	}
	Eventually(t, 60*time.Second, "Salt's "+b.ID+" has the cluster's key", func() error {
		if key := read(first); key == "" || read(b) != key {
			return errors.New("not yet")
		}
		return nil
	})
	b.endDaemon(t)
	if r := Command(t, "/bin/sh", "-c", b.theirs); r.Code != 0 {
		t.Fatal(r)
	}
}

// copyKeys copies a folder of keys as rsync -a does between two machines. Salt 3008's links, such
// as master.pem, lead to the same path on the other machine.
func (v *moving) copyKeys(t *testing.T, from, to *box) {
	t.Helper()
	if r := Command(t, "cp", "-a", v.pki(from)+"/.", v.pki(to)); r.Code != 0 {
		t.Fatal(r)
	}
	list, err := os.ReadDir(v.pki(to))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		link := filepath.Join(v.pki(to), f.Name())
		target, err := os.Readlink(link)
		if err != nil {
			continue // a file or folder
		}
		target = strings.Replace(target, v.pki(from), v.pki(to), 1)
		if err := errors.Join(os.Remove(link), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
	}
}

// nameKey gives a master of Salt 3008 the common key under its own id. Without that name it makes a
// key of its own, and the minion refuses it.
func (v *moving) nameKey(t *testing.T, first, b *box) {
	t.Helper()
	for _, end := range []string{".pem", ".pub"} {
		from := filepath.Join(v.pki(first), first.ID+end)
		if r := Command(t, "cp", "-p", from, filepath.Join(v.pki(b), b.ID+end)); r.Code != 0 {
			t.Fatal(r)
		}
	}
}

// migrate runs the tool.
func (b *box) migrate(t *testing.T, args ...string) Result {
	t.Helper()
	return Command(t, b.tool, append([]string{"migrate", "-c", b.ConfDir, "--salt-master",
		filepath.Join(b.bin, "salt-master")}, args...)...)
}

// echo runs a job on the minion and returns its jid.
func (v *moving) echo(t *testing.T, b *box, text string) (jid string) {
	r := b.Salt(t, "--out=json", "--show-jid", v.minion.ID, "test.echo", text)
	if _, after, ok := strings.Cut(r.Stdout, "jid: "); ok {
		jid, _, _ = strings.Cut(after, "\n")
	}
	if jid == "" || !strings.Contains(r.Stdout, `"`+text+`"`) {
		t.Fatal(r)
	}
	return jid
}

// before leaves a job and mine data with Salt's master, and looks at the plan.
func (v *moving) before(t *testing.T) (jid string) {
	first := v.boxes[0]
	jid = v.echo(t, first, "from before")
	if r := first.Salt(t, "--out=json", v.minion.ID, "mine.send", "test.ping"); !slices.Contains(
		answered(r), v.minion.ID) {
		t.Errorf("mine.send: %v", r)
	}
	if r := first.Runner(t, "auth.mk_token", "username=carol", "password=open sesame",
		"eauth=sharedsecret"); !strings.Contains(r.Stdout, "carol") {
		t.Errorf("make a token: %v", r)
	}
	plan := []string{"plan", "--json"}
	if first.options != "" {
		plan = append(plan, "--options", first.options)
	}
	r := first.migrate(t, plan...)
	var p struct {
		Release  string `json:"salt_release"`
		Keys     map[string]int
		Blockers []string
	}
	if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil || r.Code == 1 ||
		p.Keys["minions"] != 1 || p.Keys["minions_pre"] != 1 || p.Keys["minions_rejected"] != 1 ||
		!strings.Contains(p.Release, v.release) || len(p.Blockers) > 0 {
		t.Fatalf("plan: %v\n%v", err, r)
	}
	return jid
}

// chosen tells which master the minion is with, as an operator knows it, else the last one.
func (v *moving) chosen(t *testing.T) func() *Master {
	last := v.boxes[0].Master
	return func() *Master {
		for _, b := range v.boxes {
			if connected(t, v.minion.PID(), b.Addr, PublishPort) {
				last = b.Master
			}
		}
		return last
	}
}

// other is the box whose commands are used while one is worked on.
func (v *moving) other(i int) *Master { return v.boxes[(i+1)%len(v.boxes)].Master }

// applyFails has a master that can't start: Salt's is put back, with nothing changed.
func (v *moving) applyFails(t *testing.T) {
	b := v.boxes[0]
	r := b.migrate(t, "apply", "--stop", b.stopTheirs, "--start", "echo there is no such package; exit 1",
		"--undo", b.theirs)
	if r.Code != 1 || !strings.Contains(r.Stderr,
		"there is no such package; Salt's master was restored") {
		t.Fatalf("apply that fails: %v", r)
	}
	if _, err := os.Stat(filepath.Join(b.ConfDir, "master.d", "clustermaster.conf")); err == nil {
		t.Error("an apply that failed left its options")
	}
	v.pings.answer(t, "apply that failed")
}

func (v *moving) apply(t *testing.T, i int) {
	b := v.boxes[i]
	args := []string{"apply", "--stop", b.stopTheirs, "--start", b.ours, "--undo", b.theirs}
	if b.options != "" {
		args = append(args, "--options", b.options)
	}
	if v.masters > 1 && i == 0 {
		args = append(args, "--found")
	}
	v.pings.use(v.other(i))
	r := b.migrate(t, args...)
	if r.Code != 0 {
		t.Fatalf("apply: %v", r)
	}
	t.Logf("%s\n%v", b.ID, r)
	if i == 0 && !strings.Contains(r.Stdout, "took in  1 tokens (0 had expired, 0 files") {
		t.Errorf("the token was not taken in: %v", r)
	}
	v.few(t, "apply on "+b.ID)
	if r := b.migrate(t, "apply", "--stop", "true", "--start", "true", "--undo", "true"); r.Code != 1 ||
		!strings.Contains(r.Stderr, "it is applied already") {
		t.Errorf("a second apply: %v", r)
	}
}

// few allows one missed ping.
func (v *moving) few(t *testing.T, after string) {
	t.Helper()
	if missed := v.pings.answer(t, after); missed > 1 {
		t.Errorf("%s: %d pings missed an answer, more than one", after, missed)
	}
}

// tookIn looks for what Salt's master had.
func (v *moving) tookIn(t *testing.T, b *box, jid string) {
	// In a cluster of Salt's, a minion may have sent its return to the other box.
	if all := b == v.boxes[len(v.boxes)-1]; all || !v.cluster {
		if r := b.Runner(t, "jobs.lookup_jid", jid); !strings.Contains(r.Stdout, "from before") {
			t.Errorf("a job of before: %v", r)
		}
	}
	if r := b.Runner(t, "mine.get", v.minion.ID, "test.ping"); !strings.Contains(r.Stdout, "True") {
		t.Errorf("mine data of before: %v", r)
	}
	if r := b.Salt(t, "--preview-target", "-G", "e2e:"+v.release); !strings.Contains(r.Stdout,
		v.minion.ID) {
		t.Errorf("grains of before: %v", r)
	}
	keys, err := b.Keys(t)
	if err != nil || !slices.Equal(keys["minions"], []string{"kept"}) ||
		!slices.Equal(keys["minions_pre"], []string{"web2"}) ||
		!slices.Equal(keys["minions_rejected"], []string{"web3"}) {
		t.Errorf("keys of before: %v %v", keys, err)
	}
}

func (v *moving) rollback(t *testing.T, i int) {
	b := v.boxes[i]
	v.pings.use(v.other(i))
	r := b.migrate(t, "rollback", "--stop", b.stopOurs, "--start", b.theirs)
	if r.Code != 0 {
		t.Fatalf("rollback: %v", r)
	}
	t.Logf("%s\n%v", b.ID, r)
	v.few(t, "rollback on "+b.ID)
}

// returned looks at Salt's master: it has the keys, jobs and caches of the meantime.
func (v *moving) returned(t *testing.T, b *box, jid string) {
	if r := b.Runner(t, "jobs.lookup_jid", jid); !strings.Contains(r.Stdout, "from ours") {
		t.Errorf("a job of the meantime: %v", r)
	}
	if r := b.Runner(t, "cache.grains", "fresh"); !strings.Contains(r.Stdout, v.release) {
		t.Errorf("grains of the minion that was accepted meanwhile: %v", r)
	}
	if r := b.Runner(t, "cache.mine", v.minion.ID); !strings.Contains(r.Stdout, "test.ping") {
		t.Errorf("mine data: %v", r)
	}
	keys, err := b.Keys(t)
	if err != nil || !slices.Equal(keys["minions"], []string{"fresh", "kept", "web2"}) ||
		len(keys["minions_pre"]) > 0 || !slices.Equal(keys["minions_rejected"], []string{"web3"}) {
		t.Errorf("keys after the return: %v %v", keys, err)
	}
	if v.failover {
		return // each minion is with one master only
	}
	Eventually(t, 60*time.Second, "the minion that was accepted meanwhile answers Salt's "+b.ID,
		func() error {
			if ids := answered(b.Salt(t, "--out=json", "fresh", "test.ping")); len(ids) != 1 {
				return errors.New("not yet")
			}
			return nil
		})
}
