package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clustermaster/tools/dev"
)

// Ports of every master that is started here; each has its own loopback address.
const (
	pubPort    = 4505
	reqPort    = 4506
	poolPort   = 4520
	healthPort = 4521
)

const (
	readyPatience = 120 * time.Second
	stopGrace     = 6 * time.Second // SIGTERM to SIGKILL
)

// benchFile is the file that _file_hash and _serve_file request; besides it, the masters serve
// benchFiles small ones.
const (
	benchFile     = "bench/4k.bin"
	benchFileSize = 4 << 10
	benchFiles    = 200
	// largeFile is served in largePieces of a MiB.
	largeFile   = "bench/8m.bin"
	largePieces = 8
)

// manySLS is the number of SLS files with Jinja that the top file gives to minions with the grain
// manyGrain.
const (
	manySLS   = 40
	manyGrain = "tree"
)

// group is a set of masters as child processes, one or a cluster.
type group struct {
	product product
	dir     string
	secret  string // cluster_secret
	front   string // the balancer's address
	masters []*masterProcess
	haproxy *masterProcess // nil if not started
	took    time.Duration  // from the start until all are ready
}

// masterProcess is a child process, a master or the balancer before them.
type masterProcess struct {
	*dev.Child    // nil before its start
	id, host, dir string
	env           []string // besides this process's
}

// profileEnv makes a master write profiles, to files with this prefix, when it ends.
const profileEnv = "CLUSTERMASTER_PROFILE"

// startGroup starts n masters, empty and with auto_accept, below dir, and waits until all are
// ready. profiles is a folder for their profiles, "" for none.
func startGroup(ctx context.Context, p product, dir string, n int, profiles string) (*group,
	error) {
	o := &group{product: p, dir: dir, secret: rand.Text()}
	hosts, front, err := dev.FreeBlock(ctx, n, ports...)
	if err != nil {
		return nil, err
	}
	o.front = front
	for _, host := range hosts {
		o.member(host)
	}
	for _, m := range o.masters {
		if err := o.configure(m); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	for _, m := range o.masters {
		if profiles != "" {
			m.env = append(m.env, profileEnv+"="+filepath.Join(profiles,
				fmt.Sprintf("%s-of-%d", m.id, n)))
		}
		if err == nil {
			err = m.start(append(slices.Clone(p.argv), "-c", m.dir))
		}
	}
	for _, m := range o.masters {
		if err == nil {
			err = m.await(ctx, p.ready)
		}
	}
	if err != nil {
		o.stop()
		return nil, err
	}
	o.took = time.Since(start)
	return o, nil
}

var ports = []int{pubPort, reqPort, poolPort, healthPort, healthPort + 1}

// member adds a master, still without configuration.
func (o *group) member(host string) *masterProcess {
	id := fmt.Sprintf("m%d", len(o.masters)+1)
	m := &masterProcess{id: id, host: host, dir: filepath.Join(o.dir, id)}
	o.masters = append(o.masters, m)
	return m
}

// makeFiles fills a file root.
func makeFiles(root string) error {
	files := map[string]string{benchFile: strings.Repeat("\x00", benchFileSize),
		largeFile: strings.Repeat("\x00", largePieces<<20)}
	for i := range benchFiles {
		files[fmt.Sprintf("bench/state%d.sls", i)] = "# empty\n"
	}
	return makeRoot(root, files)
}

// makePillar makes a pillar root with one small SLS for all minions, and manySLS for those with the
// grain.
func makePillar(root string) error {
	top := "base:\n  '*':\n    - small\n  '" + manyGrain + ":many':\n    - match: grain\n"
	files := map[string]string{
		"small.sls": "bench:\n  role: web\n  ports: [80, 443]\n  owner: {name: someone, mail: someone@example.net}\n"}
	for i := range manySLS {
		top += fmt.Sprintf("    - part%d\n", i)
		files[fmt.Sprintf("part%d.sls", i)] = fmt.Sprintf(manyText, i, i)
	}
	files["top.sls"] = top
	return makeRoot(root, files)
}

func makeRoot(root string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			return fmt.Errorf("make root: %w", err)
		}
	}
	return nil
}

// manyText is one of the SLS files with Jinja: grains in conditions, loops and filters, as in the
// pillars of formulas.
const manyText = `{%% set n = %d %%}
part%d:
  host: {{ grains['id'] }}
  family: {{ grains['os_family'] | lower }}
{%% if grains['os'] == 'Debian' %%}
  packages:
{%% for i in range(5) %%}
    - name: package-{{ n }}-{{ i }}
      version: {{ '%%d.%%d' | format(n, i) }}
{%% endfor %%}
{%% endif %%}
  limits: {memory: {{ grains['mem_total'] // 2 }}, cpus: {{ grains['num_cpus'] }}}
`

// rootsOf returns the folder of a master's file_roots and pillar_roots, named files and pillar.
func (o *group) rootsOf(m *masterProcess) string {
	if o.product.isolated {
		return m.dir
	}
	return o.dir
}

// configure writes a master's config, with Salt's defaults except addresses, folders and
// auto_accept, and its roots.
func (o *group) configure(m *masterProcess) error {
	name := "root"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	id, roots := m.id, o.rootsOf(m)
	if o.product.sharedKeys {
		id = m.host
	}
	text := fmt.Sprintf("id: %s\ninterface: %s\nroot_dir: %s\nsock_dir: %s\nuser: %s\nlog_level: warning\nauto_accept: true\n"+
		"file_roots: {base: [%s/files]}\npillar_roots: {base: [%s/pillar]}\n%s", id, m.host, m.dir,
		sockFolder, name, roots, roots, o.product.options)
	if len(o.masters) > 1 {
		text += fmt.Sprintf("cluster_id: bench\ncluster_secret: %s\ncluster_peers:\n", o.secret)
		for _, p := range o.masters {
			if p != m {
				text += "  - " + p.host + "\n"
			}
		}
		if o.product.sharedKeys {
			text += fmt.Sprintf("cluster_pki_dir: %s\n", filepath.Join(o.dir, "pki"))
		}
		if o.product.isolated {
			text += "cluster_isolated_filesystem: true\n"
		}
	}
	return errors.Join(makeRoot(m.dir, map[string]string{"master": text}),
		makeFiles(filepath.Join(roots, "files")), makePillar(filepath.Join(roots, "pillar")))
}

// balance starts HAProxy at o.front, as Salt's documentation describes it: TCP sessions to the
// masters in turn.
func (o *group) balance(ctx context.Context) error {
	program, err := exec.LookPath("haproxy")
	if err != nil {
		return fmt.Errorf("find HAProxy: %w; apt-get install haproxy", err)
	}
	text := "defaults\n  mode tcp\n  balance roundrobin\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"
	for _, port := range []int{pubPort, reqPort} {
		text += fmt.Sprintf("listen port%d\n  bind %s:%d\n", port, o.front, port)
		for _, m := range o.masters {
			text += fmt.Sprintf("  server %s %s:%d check inter 500\n", m.id, m.host, port)
		}
	}
	h := &masterProcess{id: "haproxy", host: o.front, dir: filepath.Join(o.dir, "haproxy")}
	if err := makeRoot(h.dir, map[string]string{"haproxy.cfg": text}); err != nil {
		return err
	}
	if err := h.start([]string{program, "-db", "-f", filepath.Join(h.dir, "haproxy.cfg")}); err != nil {
		return err
	}
	o.haproxy = h
	return h.await(ctx, func(ctx context.Context, h *masterProcess) bool {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", h.requests())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// start runs the program; its output goes to DIR/out.
func (m *masterProcess) start(argv []string) (err error) {
	m.Child, err = dev.Start(m.id, filepath.Join(m.dir, "out"), m.env, argv)
	return err
}

func (m *masterProcess) running() bool { return m.Child != nil && m.Running() }

// await checks a master repeatedly until it is ready.
func (m *masterProcess) await(ctx context.Context,
	ready func(context.Context, *masterProcess) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyPatience,
		fmt.Errorf("not within %s", readyPatience))
	defer cancel()
	for !ready(ctx, m) {
		if !m.running() {
			return fmt.Errorf("%s ended at its start (%v); its output is %s/out", m.id, m.Ended(), m.dir) //nolint:errorlint // nil after exit 0
		}
		if !sleepUntil(ctx, time.Now().Add(10*time.Millisecond)) {
			return fmt.Errorf("wait for %s: %w; its output is %s/out", m.id, context.Cause(ctx),
				m.dir)
		}
	}
	return nil
}

// sockDir is the folder of its commands' socket.
func (m *masterProcess) sockDir() string { return filepath.Join(m.dir, sockFolder) }

// sockFolder is short, because a master, like Salt's, replaces a long sock_dir.
const sockFolder = "/run"

// requests is the address of its request port.
func (m *masterProcess) requests() string { return fmt.Sprintf("%s:%d", m.host, reqPort) }

// get fetches a page of our own master's health port or the one above it.
func (m *masterProcess) get(ctx context.Context, port int, path string) (string, error) {
	client := &http.Client{Timeout: RequestPatience,
		Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://%s:%d%s", m.host, port, path), nil)
	if err != nil {
		return "", err
	}
	r, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = errors.New(r.Status)
	}
	return string(text), err
}

// stop ends the masters that still run.
func (o *group) stop() {
	var children []*dev.Child
	for _, m := range append(slices.Clone(o.masters), o.haproxy) {
		if m != nil && m.Child != nil {
			children = append(children, m.Child)
		}
	}
	dev.Stop(stopGrace, children...)
}

// sources returns source addresses for minions, from the group's block.
func (o *group) sources() []net.IP {
	out := make([]net.IP, 50)
	for i := range out {
		out[i] = net.ParseIP(o.front).To4()
		out[i][3] += byte(1 + i)
	}
	return out
}

func (o *group) requestAddrs() (out []string) {
	for _, m := range o.masters {
		out = append(out, m.requests())
	}
	return out
}

// living lists the running masters.
func (o *group) living() (out []*masterProcess) {
	for _, m := range o.masters {
		if m.running() {
			out = append(out, m)
		}
	}
	return out
}

func (o *group) pids() (out []int) {
	for _, m := range o.living() {
		out = append(out, m.PID())
	}
	return out
}

// each measures memory of the living masters in bytes: pss with their descendants, pssBelow only of
// their template workers.
func (o *group) each(measure func(pid int) (int64, error)) ([]int64, error) {
	var out []int64
	for _, pid := range o.pids() {
		n, err := measure(pid)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// programOf is the program to start: the given one, or this one.
func programOf(path string) (string, error) {
	abs, err := os.Executable()
	if path != "" {
		abs, err = filepath.Abs(path)
	}
	if err == nil {
		_, err = os.Stat(abs)
	}
	if err != nil {
		return "", fmt.Errorf("find program to start: %w", err)
	}
	return abs, nil
}
