package bench

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Ports of every master that --self starts; each has a loopback address of its own.
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

// benchFile is what _file_hash and _serve_file ask for; with it, the masters serve
// benchFiles small ones.
const (
	benchFile     = "bench/4k.bin"
	benchFileSize = 4 << 10
	benchFiles    = 200
	// largeFile is served in largePieces of a MiB.
	largeFile   = "bench/8m.bin"
	largePieces = 8
)

// manySLS is how many SLS files with Jinja the top file gives to minions with the grain manyGrain.
const (
	manySLS   = 40
	manyGrain = "tree"
)

// group is a set of masters as child processes, one or a cluster.
type group struct {
	product product
	dir     string
	secret  string // cluster_secret
	front   string // an address for the balancer
	masters []*masterProcess
	haproxy *masterProcess // nil if none was started
	took    time.Duration  // start to all of them ready
}

// masterProcess is a child process, a master or the balancer before them.
type masterProcess struct {
	id, host, dir string
	env           []string // beside this process's
	cmd           *exec.Cmd
	done          chan struct{} // closed when it has ended
	err           error         // of Wait; read after done
}

// profileEnv makes a master write profiles, to files of this prefix, when it ends.
const profileEnv = "CLUSTERMASTER_PROFILE"

// startGroup starts n masters, empty and with auto_accept, below dir, and waits until all are
// ready. profiles is a folder for their profiles, "" for none.
func startGroup(ctx context.Context, p product, dir string, n int, profiles string) (*group,
	error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make secret: %w", err)
	}
	o := &group{product: p, dir: dir, secret: base64.RawURLEncoding.EncodeToString(secret)}
	if err := o.address(ctx, n); err != nil {
		return nil, err
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
		if err := m.start(append(slices.Clone(p.argv), "-c", m.dir)); err != nil {
			o.stop()
			return nil, err
		}
	}
	for _, m := range o.masters {
		if err := m.await(ctx, p.ready); err != nil {
			o.stop()
			return nil, err
		}
	}
	o.took = time.Since(start)
	return o, nil
}

// address takes a free block 127.a.b.0/24.
func (o *group) address(ctx context.Context, n int) error {
	for range 50 {
		base := fmt.Sprintf("127.%d.%d.", 64+mathrand.IntN(128), 1+mathrand.IntN(254))
		o.masters, o.front = nil, base+"100"
		free := portsFree(ctx, o.front)
		for i := range n {
			id := fmt.Sprintf("m%d", i+1)
			m := &masterProcess{id: id, host: fmt.Sprintf("%s%d", base, i+1),
				dir: filepath.Join(o.dir, id)}
			o.masters = append(o.masters, m)
			free = free && portsFree(ctx, m.host)
		}
		if free {
			return nil
		}
	}
	return errors.New("find free loopback addresses: none of 50 blocks was free")
}

func portsFree(ctx context.Context, host string) bool {
	for _, port := range []int{pubPort, reqPort, poolPort, healthPort, healthPort + 1} {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("%s:%d", host, port))
		if err != nil {
			return false
		}
		ln.Close()
	}
	return true
}

// makeFiles fills a file root.
func makeFiles(root string) error {
	err := os.MkdirAll(filepath.Join(root, "bench"), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, benchFile), make([]byte, benchFileSize), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, largeFile), make([]byte, largePieces<<20), 0o644)
	}
	for i := 0; err == nil && i < benchFiles; i++ {
		err = os.WriteFile(filepath.Join(root, "bench", fmt.Sprintf("state%d.sls", i)),
			[]byte("# empty\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("make file root: %w", err)
	}
	return nil
}

// makePillar makes a pillar root with one small SLS for everybody, and manySLS for those who have
// the grain.
func makePillar(root string) error {
	err := os.MkdirAll(root, 0o755)
	top := "base:\n  '*':\n    - small\n  '" + manyGrain + ":many':\n    - match: grain\n"
	for i := 0; err == nil && i < manySLS; i++ {
		top += fmt.Sprintf("    - part%d\n", i)
		err = os.WriteFile(filepath.Join(root, fmt.Sprintf("part%d.sls", i)),
			fmt.Appendf(nil, manyText, i, i), 0o644)
	}
	for name, text := range map[string]string{
		"top.sls":   top,
		"small.sls": "bench:\n  role: web\n  ports: [80, 443]\n  owner: {name: someone, mail: someone@example.net}\n",
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name), []byte(text), 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("make pillar root: %w", err)
	}
	return nil
}

// manyText is one of the SLS files with Jinja: grains in conditions, loops and filters, as in
// formulas' pillars.
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

// rootsOf is where a master's file_roots and pillar_roots are.
func (o *group) rootsOf(m *masterProcess) (files, pillar string) {
	dir := o.dir
	if o.product.isolated {
		dir = m.dir
	}
	return filepath.Join(dir, "files"), filepath.Join(dir, "pillar")
}

// configure writes a master's config, Salt's defaults but for addresses, folders and auto_accept,
// and its roots.
func (o *group) configure(m *masterProcess) error {
	name := "root"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	id := m.id
	if o.product.sharedKeys {
		id = m.host
	}
	files, pillar := o.rootsOf(m)
	text := fmt.Sprintf("id: %s\ninterface: %s\nroot_dir: %s\nsock_dir: %s\nuser: %s\nlog_level: warning\nauto_accept: true\n"+
		"file_roots: {base: [%s]}\npillar_roots: {base: [%s]}\n%s", id, m.host, m.dir, sockFolder,
		name, files, pillar, o.product.options)
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
	err := os.MkdirAll(m.dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.dir, "master"), []byte(text), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write config of %s: %w", m.id, err)
	}
	if err := makeFiles(files); err != nil {
		return err
	}
	return makePillar(pillar)
}

// start runs the program in a process group of its own; its output goes to DIR/out.
func (m *masterProcess) start(argv []string) error {
	out, err := os.OpenFile(filepath.Join(m.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", m.id, err)
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(os.Environ(), m.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.id, err)
	}
	m.cmd, m.done = cmd, make(chan struct{})
	go func() { m.err = cmd.Wait(); close(m.done) }()
	return nil
}

func (m *masterProcess) pid() int { return m.cmd.Process.Pid }

func (m *masterProcess) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// await asks a master again and again until it is ready.
func (m *masterProcess) await(ctx context.Context,
	ready func(context.Context, *masterProcess) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyPatience,
		fmt.Errorf("not within %s", readyPatience))
	defer cancel()
	for !ready(ctx, m) {
		if m.ended() {
			return fmt.Errorf("%s ended at its start (%v); its output is %s", m.id, m.err, //nolint:errorlint // nil after exit 0
				filepath.Join(m.dir, "out"))
		}
		if !sleepUntil(ctx, time.Now().Add(10*time.Millisecond)) {
			return fmt.Errorf("wait for %s: %w; its output is %s", m.id, context.Cause(ctx),
				filepath.Join(m.dir, "out"))
		}
	}
	return nil
}

// sockDir is where its commands reach it.
func (m *masterProcess) sockDir() string { return filepath.Join(m.dir, sockFolder) }

// sockFolder is short: a long sock_dir makes a master, as Salt does, take another one.
const sockFolder = "/run"

// kill ends the master as a power cut would.
func (m *masterProcess) kill() error {
	if err := syscall.Kill(-m.pid(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", m.id, err)
	}
	<-m.done
	return nil
}

// stop ends those that still run: SIGTERM, after a grace SIGKILL.
func (o *group) stop() {
	all := o.masters
	if o.haproxy != nil {
		all = append(slices.Clone(all), o.haproxy)
	}
	for _, m := range all {
		if m.cmd != nil && !m.ended() {
			syscall.Kill(-m.pid(), syscall.SIGTERM)
		}
	}
	late := time.After(stopGrace)
	for _, m := range all {
		if m.cmd == nil {
			continue
		}
		select {
		case <-m.done:
		case <-late:
			for _, rest := range all {
				if rest.cmd != nil && !rest.ended() {
					syscall.Kill(-rest.pid(), syscall.SIGKILL)
				}
			}
			<-m.done
		}
		syscall.Kill(-m.pid(), syscall.SIGKILL) // what it left of its process group
	}
}

func (o *group) hosts() []string {
	var out []string
	for _, m := range o.masters {
		out = append(out, m.host)
	}
	return out
}

// sources are source addresses for minions of their own, of the group's block.
func (o *group) sources() []net.IP {
	out := make([]net.IP, 50)
	for i := range out {
		out[i] = net.ParseIP(o.front).To4()
		out[i][3] += byte(1 + i)
	}
	return out
}

func (o *group) requestAddrs() []string {
	var out []string
	for _, m := range o.masters {
		out = append(out, fmt.Sprintf("%s:%d", m.host, reqPort))
	}
	return out
}

func (o *group) pids() []int {
	var out []int
	for _, m := range o.masters {
		if !m.ended() {
			out = append(out, m.pid())
		}
	}
	return out
}

// memory is the PSS of each living master with its descendants, in bytes.
func (o *group) memory() ([]int64, error) { return o.each(pss) }

// workerMemory is the PSS of the template workers of each living master, in bytes.
func (o *group) workerMemory() ([]int64, error) { return o.each(pssBelow) }

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

// programOf is the binary to start: the given one, or this one.
func programOf(path string) (string, error) {
	if path == "" {
		exe, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find own program: %w", err)
		}
		return exe, nil
	}
	abs, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(abs)
	}
	if err != nil {
		return "", fmt.Errorf("find program to start: %w", err)
	}
	return strings.TrimSuffix(abs, "/"), nil
}
