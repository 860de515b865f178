package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
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
	// for masters to finish their start before their idle memory is measured
	settleTime    = 1500 * time.Millisecond
	compareSettle = 5 * time.Second
)

// benchFile is the file that _file_hash and _serve_file request; besides it, the masters serve
// benchFiles small ones.
const (
	benchFile     = "bench/4k.bin"
	benchFileSize = 4 << 10
	benchFiles    = 200
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
	front   string // a free address beside the masters'
	masters []*masterProcess
	addrs   []string      // the masters' request ports
	took    time.Duration // from the start until all are ready
	peak    []int64       // the most memory that each master used when sample was called
}

// masterProcess is a master as a child process.
type masterProcess struct {
	*dev.Child    // nil before its start
	id, host, dir string
}

// startGroup starts n masters, empty and with auto_accept, below dir, and waits until all are ready
// and idle.
func startGroup(ctx context.Context, p product, dir string, n int) (_ *group, err error) {
	o := &group{product: p, dir: dir, secret: rand.Text()}
	defer func() {
		if err != nil {
			o.stop()
		}
	}()
	hosts, front, err := dev.FreeBlock(ctx, n, pubPort, reqPort, poolPort, healthPort, healthPort+1)
	if err != nil {
		return nil, err
	}
	o.front = front
	for i, host := range hosts {
		id := fmt.Sprintf("m%d", i+1)
		m := &masterProcess{id: id, host: host, dir: filepath.Join(dir, id)}
		o.masters, o.addrs = append(o.masters, m), append(o.addrs, m.requests())
	}
	err = makeTree(dir, roots())
	for _, m := range o.masters {
		if err == nil {
			err = makeTree(m.dir, map[string]string{"master": o.config(m)})
		}
	}
	start := time.Now()
	for _, m := range o.masters {
		if err == nil {
			m.Child, err = dev.Start(m.id, filepath.Join(m.dir, "out"), nil,
				append(slices.Clone(p.argv), "-c", m.dir))
		}
	}
	for _, m := range o.masters {
		if err == nil {
			err = m.await(ctx, p.ready)
		}
	}
	o.took = time.Since(start)
	settle := settleTime
	if p.compared {
		settle = compareSettle
	}
	if err == nil && !sleepUntil(ctx, time.Now().Add(settle)) {
		err = ctx.Err()
	}
	return o, err
}

// roots are the files of the masters' file_roots and pillar_roots. All minions have one small SLS
// as pillar, and those with the grain manySLS more.
func roots() map[string]string {
	top := "base:\n  '*':\n    - small\n  '" + manyGrain + ":many':\n    - match: grain\n"
	out := map[string]string{
		"files/" + benchFile: strings.Repeat("\x00", benchFileSize),
		"pillar/small.sls": "bench:\n  role: web\n  ports: [80, 443]\n" +
			"  owner: {name: someone, mail: someone@example.net}\n",
	}
	for i := range benchFiles {
		out[fmt.Sprintf("files/bench/state%d.sls", i)] = "# empty\n"
	}
	for i := range manySLS {
		top += fmt.Sprintf("    - part%d\n", i)
		out[fmt.Sprintf("pillar/part%d.sls", i)] = fmt.Sprintf(manyText, i, i)
	}
	out["pillar/top.sls"] = top
	return out
}

// makeTree writes files below a folder, by their paths there.
func makeTree(dir string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			return fmt.Errorf("make files of the masters: %w", err)
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

// config is a master's configuration, with Salt's defaults except addresses, folders and
// auto_accept.
func (o *group) config(m *masterProcess) string {
	name := "root"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	id := m.id
	if o.product.sharedKeys {
		id = m.host
	}
	text := fmt.Sprintf("id: %s\ninterface: %s\nroot_dir: %s\nsock_dir: %s\nuser: %s\n"+
		"log_level: warning\nauto_accept: true\nfile_roots: {base: [%s/files]}\n"+
		"pillar_roots: {base: [%s/pillar]}\n%s", id, m.host, m.dir, sockFolder, name, o.dir, o.dir,
		o.product.options)
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
	}
	return text
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
			return fmt.Errorf("%s ended at its start (%v); its output is %s/out",
				m.id, m.Ended(), m.dir) //nolint:errorlint // nil after exit 0
		}
		if !sleepUntil(ctx, time.Now().Add(10*time.Millisecond)) {
			return fmt.Errorf("wait for %s: %w; its output is %s/out", m.id, context.Cause(ctx),
				m.dir)
		}
	}
	return nil
}

// sockFolder is the sock_dir below a master's folder. It is short, because a master, like Salt's,
// replaces a long one.
const sockFolder = "/run"

// requests is the address of its request port.
func (m *masterProcess) requests() string { return fmt.Sprintf("%s:%d", m.host, reqPort) }

// stop ends the masters that still run.
func (o *group) stop() {
	var children []*dev.Child
	for _, m := range o.masters {
		if m.Child != nil {
			children = append(children, m.Child)
		}
	}
	dev.Stop(stopGrace, children...)
}

// source is the source address of minion number i, from the group's block. An address has some
// 28,000 ports.
func (o *group) source(i int) net.IP {
	const minions = 2000
	ip := net.ParseIP(o.front).To4()
	ip[3] += byte(1 + i/minions)
	return ip
}

// pids are the process ids of the running masters.
func (o *group) pids() (out []int) {
	for _, m := range o.masters {
		if m.running() {
			out = append(out, m.PID())
		}
	}
	return out
}

// memory is the memory (PSS) of each running master with its descendants, in bytes.
func (o *group) memory() ([]int64, error) {
	var out []int64
	for _, pid := range o.pids() {
		n, err := pss(pid)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// sample measures the memory and keeps the larger value for each master.
func (o *group) sample() {
	now, err := o.memory()
	if err != nil {
		return // one has just ended
	}
	for i := range now {
		if len(now) == len(o.peak) {
			now[i] = max(now[i], o.peak[i])
		}
	}
	o.peak = now
}
