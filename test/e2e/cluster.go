package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Cluster is a set of masters behind a balancer, with minions.
type Cluster struct {
	Base     Base
	Dir      string
	Masters  []*Master
	Balancer *Balancer
	Minions  []*Minion
	Secret   string

	programs Programs
	options  ClusterOptions
}

// ClusterOptions choose the shape of a cluster.
type ClusterOptions struct {
	Masters  int      // default 3
	Programs Programs // default Ours
	Balancer BalancerOptions
	// Plain makes masters without clusters (the real Salt's).
	Plain bool
	// Network gives the masters addresses outside the loopback network.
	Network Network
	Extra   string // YAML for every master
}

// Network gives masters addresses outside the loopback network and may interfere with their
// traffic. Masters count from 1.
type Network interface {
	Host(n int) string // the address of a master's ports
	Peer(n int) string // where other masters reach it
	// Command returns the command that runs a program at the place of master n.
	Command(n int, path string, args []string) (string, []string)
}

// NewCluster makes folders and configuration; Start or StartMasters runs the cluster. The folder's
// path is short, for unix sockets. It is kept if the test fails and CLUSTERMASTER_KEEP is set.
func NewCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	if o.Masters == 0 {
		o.Masters = 3
	}
	if o.Programs == (Programs{}) {
		o.Programs = Ours(t)
	}
	c := &Cluster{Base: FreeBase(t, o.Masters+1), Dir: Folder(t),
		Secret: "e2e-secret-0123456789abcdef", programs: o.Programs, options: o}
	for n := 1; n <= o.Masters; n++ {
		c.Masters = append(c.Masters, c.newMaster(t, n))
	}
	return c
}

// Folder makes a folder with a short name for the test. The name always has the same length,
// because texts are wrapped and sockets moved according to it.
func Folder(t testing.TB) string {
	t.Helper()
	takeTurn(t)
	dir, err := "", os.ErrExist
	for errors.Is(err, os.ErrExist) {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("cm%010d", rand.Uint32()))
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("CLUSTERMASTER_KEEP") != "" {
			t.Logf("kept %s", dir)
			return
		}
		// A process just killed may still be writing its last file.
		for range 20 {
			if os.RemoveAll(dir) == nil {
				return
			}
			<-time.After(50 * time.Millisecond)
		}
	})
	return dir
}

// Stranger makes a master that is not in the cluster, on the next address and with a changed
// configuration.
func (c *Cluster) Stranger(t testing.TB, change func(config string) string) *Master {
	t.Helper()
	m := c.newMaster(t, len(c.Masters)+1)
	m.Configure(t, change(m.Config(t)))
	return m
}

// Addrs are the masters' addresses.
func (c *Cluster) Addrs() []string {
	var list []string
	for _, m := range c.Masters {
		list = append(list, m.Addr)
	}
	return list
}

// Start runs masters and balancer and waits until the balancer sees all masters.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	c.StartBalancer(t)
	c.StartMasters(t)
}

// StartBalancer runs HAProxy in front of the masters, which need not run yet.
func (c *Cluster) StartBalancer(t testing.TB) {
	t.Helper()
	c.Balancer = StartBalancer(t, c.Dir, c.Base.Balancer(), c.Addrs(), c.options.Balancer)
}

// StartMasters runs all masters at once and waits until each is ready.
func (c *Cluster) StartMasters(t testing.TB) {
	t.Helper()
	for _, m := range c.Masters {
		m.Run(t)
	}
	c.WaitReady(t, 60*time.Second, c.Masters...)
}

// WaitReady waits until these masters are ready and the balancer sees them and no others.
func (c *Cluster) WaitReady(t testing.TB, limit time.Duration, masters ...*Master) {
	t.Helper()
	for _, m := range masters {
		Eventually(t, limit, m.ID+" is ready", m.Ready)
	}
	if c.Balancer != nil {
		Eventually(t, limit, "the balancer sees the ready masters",
			func() error { return c.balancerSees(masters) })
	}
}

func (c *Cluster) balancerSees(masters []*Master) error {
	up, err := c.Balancer.Up("")
	if err != nil {
		return err
	}
	for name, list := range up {
		for _, m := range masters {
			if !slices.Contains(list, m.Number) {
				return fmt.Errorf("%s has %v up", name, list)
			}
		}
	}
	return nil
}

// AddMinions starts a minion of each release behind the balancer. Their ids start with prefix;
// extra is YAML for all of them.
func (c *Cluster) AddMinions(t testing.TB, prefix, extra string, releases ...string) []*Minion {
	t.Helper()
	var list []*Minion
	for _, r := range releases {
		id := prefix + "-" + strings.ReplaceAll(r, ".", "-")
		list = append(list, NewMinion(t, c.Dir,
			MinionOptions{ID: id, Release: r, Master: c.Base.Balancer(), Extra: extra}))
	}
	for _, m := range list {
		m.Run(t)
	}
	c.Minions = append(c.Minions, list...)
	return list
}

// IDs are the minions' ids, sorted.
func (c *Cluster) IDs() []string {
	var list []string
	for _, m := range c.Minions {
		list = append(list, m.ID)
	}
	slices.Sort(list)
	return list
}

// Running are the masters whose process is alive.
func (c *Cluster) Running() []*Master {
	var list []*Master
	for _, m := range c.Masters {
		if m.Running() {
			list = append(list, m)
		}
	}
	return list
}

// Others are all masters except one.
func (c *Cluster) Others(not *Master) []*Master {
	return slices.DeleteFunc(slices.Clone(c.Masters), func(m *Master) bool { return m == not })
}

// Leader asks a master who leads.
func (c *Cluster) Leader(t testing.TB, asked *Master) *Master {
	t.Helper()
	var leader *Master
	Eventually(t, 30*time.Second, asked.ID+" knows the leader", func() error {
		v, err := asked.Members(t)
		if err != nil {
			return err
		}
		for _, m := range c.Masters {
			if m.ID == v.Leader {
				leader = m
				return nil
			}
		}
		return fmt.Errorf("leader is %q", v.Leader)
	})
	return leader
}

// Master is a master process with its own folders.
type Master struct {
	Process
	ID, Addr string
	Number   int // from 1
	Dir      string
	ConfDir  string
	Log      string

	programs Programs
	plain    bool
	network  Network
}

func (c *Cluster) newMaster(t testing.TB, n int) *Master {
	t.Helper()
	id := fmt.Sprintf("master%d", n)
	m := &Master{ID: id, Number: n, Addr: c.Base.Master(n), Dir: filepath.Join(c.Dir, id),
		programs: c.programs, plain: c.options.Plain, network: c.options.Network}
	if m.network != nil {
		m.Addr = m.network.Host(n)
	}
	m.ConfDir = filepath.Join(m.Dir, "etc")
	m.Log = filepath.Join(m.Dir, "master.log")
	m.Process = Process{Name: id, Output: filepath.Join(m.Dir, "output.log")}
	for _, d := range []string{m.ConfDir, filepath.Join(m.Dir, "run"), filepath.Join(m.Dir, "srv"),
		filepath.Join(m.Dir, "pillar")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.Configure(t, c.masterConfig(m)+c.options.Extra)
	ShowOnFailure(t, m.Log, m.Output)
	t.Cleanup(func() { m.judge(t) })
	return m
}

// defect matches what a master writes when it has a defect that its callers may not notice: a panic
// is one error for a request that is repeated, and masters whose states differ go on.
var defect = regexp.MustCompile("(?m)^(panic: |fatal error: ).*|" +
	"^.*(panicked; please report this|the replicated state of a member differs).*")

// judge fails the test if the master had a defect, or did not end well when the test ended it.
func (m *Master) judge(t testing.TB) {
	for _, file := range []string{m.Log, m.Output} {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if found := defect.Find(text); found != nil {
			t.Errorf("%s in %s: %s", m.ID, file, found)
		}
	}
	if m.asked && m.code > 0 {
		t.Errorf("%s ended with %d", m.ID, m.code)
	}
}

// masterConfig is what an operator writes for one of several masters.
func (c *Cluster) masterConfig(m *Master) string {
	login := "root"
	if u, err := user.Current(); err == nil {
		login = u.Username
	}
	text := fmt.Sprintf(`id: %s
interface: %s
user: %s
root_dir: %s
pki_dir: %[4]s/pki
cachedir: %[4]s/cache
sock_dir: %[4]s/run
pidfile: %[4]s/master.pid
log_file: %[4]s/master.log
log_level: error
log_level_logfile: debug
file_roots: {base: [%[4]s/srv]}
pillar_roots: {base: [%[4]s/pillar]}
`, m.ID, m.Addr, login, m.Dir)
	if m.plain {
		return strings.Replace(text, "log_level_logfile: debug", "log_level_logfile: info", 1)
	}
	var peers []string
	for n := 1; n <= c.options.Masters; n++ {
		if n != m.Number {
			peers = append(peers, c.peer(n))
		}
	}
	if m.network != nil {
		text += fmt.Sprintf("cluster_advertise: %s\nmetrics_listen: '%s'\n", c.peer(m.Number),
			m.port(MetricsPort))
	}
	return text + fmt.Sprintf("cluster_id: e2e\ncluster_peers: [%s]\ncluster_secret: %s\n",
		strings.Join(peers, ", "), c.Secret)
}

// peer is the address under which other masters reach master n.
func (c *Cluster) peer(n int) string {
	if c.options.Network != nil {
		return c.options.Network.Peer(n)
	}
	return c.Base.Master(n)
}

// Configure writes the master's configuration file. It takes effect at the next start.
func (m *Master) Configure(t testing.TB, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.ConfDir, "master"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Config is the text of the master's file.
func (m *Master) Config(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.ConfDir, "master"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Use sets the programs for the next starts.
func (m *Master) Use(p Programs) { m.programs = p }

// Run starts the master. Ready reports when it can be used.
func (m *Master) Run(t testing.TB, flags ...string) {
	t.Helper()
	path, args := m.programs.Master, append([]string{"-c", m.ConfDir}, flags...)
	if m.network != nil {
		path, args = m.network.Command(m.Number, path, args)
	}
	m.Start(t, path, args...)
}

// Wipe deletes everything the stopped master stored, except its configuration.
func (m *Master) Wipe(t testing.TB) {
	t.Helper()
	if m.Running() {
		t.Fatalf("%s runs", m.ID)
	}
	for _, d := range []string{"cache", "pki", "run"} {
		if err := os.RemoveAll(filepath.Join(m.Dir, d)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(m.Dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// port is a port of the master, as HOST:PORT.
func (m *Master) port(n int) string { return net.JoinHostPort(m.Addr, strconv.Itoa(n)) }

// Probe asks the master's health port. The error holds the answer; without one it is a *url.Error.
// After a second without an answer Probe asks once more: the machine may have stood still.
func (m *Master) Probe(path string) error {
	err := m.probe(path, time.Second)
	if late := (*url.Error)(nil); errors.As(err, &late) && late.Timeout() {
		err = m.probe(path, 3*time.Second)
	}
	return err
}

func (m *Master) probe(path string, limit time.Duration) error {
	client := http.Client{Timeout: Within(limit),
		Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + m.port(HealthPort) + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// Metrics is what the master's metrics port answers. It asks again for a while: a master that gets
// no processor for two seconds ends the connection as if no request had come.
func (m *Master) Metrics(t testing.TB) string {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	var text []byte
	Eventually(t, 15*time.Second, "metrics of "+m.ID, func() error {
		resp, err := client.Get("http://" + m.port(MetricsPort) + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		text, err = io.ReadAll(resp.Body)
		return err
	})
	return string(text)
}

// Ready returns nil once the master serves minions and is in contact with its leader. For a master
// that has ended the error holds the exit code.
func (m *Master) Ready() error {
	if !m.Running() {
		code, _ := m.Wait(0)
		return fmt.Errorf("%s has ended with exit code %d", m.ID, code)
	}
	if m.plain {
		return dial(m.Addr, RequestPort)
	}
	return m.Probe("/readyz")
}

// Salt runs `salt` against this master.
func (m *Master) Salt(t testing.TB, args ...string) Result {
	t.Helper()
	return Command(t, m.programs.Salt, append([]string{"-c", m.ConfDir}, args...)...)
}

// Key runs `salt-key` against this master.
func (m *Master) Key(t testing.TB, args ...string) Result {
	t.Helper()
	return Command(t, m.programs.Key, append([]string{"-c", m.ConfDir}, args...)...)
}

// Runner runs `salt-run` against this master.
func (m *Master) Runner(t testing.TB, args ...string) Result {
	t.Helper()
	return Command(t, m.programs.Run, append([]string{"-c", m.ConfDir}, args...)...)
}

// Members is the answer of cluster.members on this master.
type Members struct {
	Node     string   `json:"node_id"`
	Leader   string   `json:"leader_id"`
	Voters   []string `json:"voters"`
	Learners []string `json:"learners"`
}

// Members asks this master for the members of its cluster.
func (m *Master) Members(t testing.TB) (Members, error) {
	t.Helper()
	var v Members
	return v, m.RunnerJSON(t, &v, "cluster.members")
}

// RunnerJSON runs a runner function with --out=json and reads its answer.
func (m *Master) RunnerJSON(t testing.TB, v any, args ...string) error {
	t.Helper()
	r := m.Runner(t, append([]string{"--out=json"}, args...)...)
	if r.Code != 0 {
		return fmt.Errorf("%v", r)
	}
	if err := json.Unmarshal([]byte(r.Stdout), v); err != nil {
		return fmt.Errorf("%w in\n%v", err, r)
	}
	return nil
}

// Keys are the ids of each list of `salt-key -L` (minions, minions_pre, ...).
func (m *Master) Keys(t testing.TB) (map[string][]string, error) {
	t.Helper()
	r := m.Key(t, "-L", "--out=json")
	lists := map[string][]string{}
	if r.Code != 0 {
		return nil, fmt.Errorf("%v", r)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &lists); err != nil {
		return nil, fmt.Errorf("%w in\n%v", err, r)
	}
	for _, ids := range lists {
		slices.Sort(ids)
	}
	return lists, nil
}

// Ping runs test.ping on '*' and returns the ids that answered True.
func (m *Master) Ping(t testing.TB, flags ...string) ([]string, Result) {
	t.Helper()
	r := m.Salt(t, append(flags, "--out=json", "--static", "*", "test.ping")...)
	return answered(r), r
}

// answered are the ids with the value True in the output of
// `salt --out=json --static`.
func answered(r Result) []string {
	answers := map[string]any{}
	if err := json.Unmarshal([]byte(r.Stdout), &answers); err != nil {
		return nil
	}
	var ids []string
	for id, v := range answers {
		if v == true {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Pinged is how one master's ping ended.
type Pinged struct {
	From *Master
	IDs  []string
	Result
	Err error
}

// PingFrom pings a target from several masters at the same time.
func PingFrom(masters []*Master, target string) []Pinged {
	list := make([]Pinged, len(masters))
	var wg sync.WaitGroup
	for i, m := range masters {
		wg.Go(func() {
			r, err := run(m.test, m.programs.Salt, "-c", m.ConfDir, "--out=json", "--static",
				target, "test.ping")
			list[i] = Pinged{From: m, IDs: answered(r), Result: r, Err: err}
		})
	}
	wg.Wait()
	return list
}
