package bench

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
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
	readyPatience = 60 * time.Second
	stopGrace     = 6 * time.Second // SIGTERM to SIGKILL
)

// benchFile is what _file_hash and _serve_file ask for; with it, the masters serve
// benchFiles small ones.
const (
	benchFile     = "bench/64k.bin"
	benchFileSize = 64 << 10
	benchFiles    = 200
)

// own is a set of our masters as child processes.
type own struct {
	dir     string
	front   string // an address for the balancer
	masters []*ownMaster
	took    time.Duration // start to all of them ready
}

type ownMaster struct {
	id, host, dir string
	env           []string // beside this process's
	cmd           *exec.Cmd
	done          chan struct{} // closed when it has ended
	err           error         // of Wait; read after done
}

// profileEnv makes a master write profiles, to files of this prefix, when it ends.
const profileEnv = "CLUSTERMASTER_PROFILE"

// startOwn starts n masters of the program, empty and with auto_accept, below dir, and waits until
// all are ready. profiles is a folder for their profiles, "" for none.
func startOwn(ctx context.Context, program, dir string, n int, profiles string) (*own, error) {
	o := &own{dir: dir}
	if err := o.address(ctx, n); err != nil {
		return nil, err
	}
	files := filepath.Join(dir, "files")
	if err := makeFiles(files); err != nil {
		return nil, err
	}
	if err := o.configure(files); err != nil {
		return nil, err
	}
	start := time.Now()
	for _, m := range o.masters {
		if profiles != "" {
			m.env = append(m.env, profileEnv+"="+filepath.Join(profiles, fmt.Sprintf("%s-of-%d", m.id, n)))
		}
		if err := m.start(program); err != nil {
			o.stop()
			return nil, err
		}
	}
	for _, m := range o.masters {
		if err := m.waitReady(ctx); err != nil {
			o.stop()
			return nil, err
		}
	}
	o.took = time.Since(start)
	return o, nil
}

// address takes a free block 127.a.b.0/24.
func (o *own) address(ctx context.Context, n int) error {
	for range 50 {
		base := fmt.Sprintf("127.%d.%d.", 64+mathrand.IntN(128), 1+mathrand.IntN(254))
		o.masters, o.front = nil, base+"100"
		free := portsFree(ctx, o.front)
		for i := range n {
			id := fmt.Sprintf("m%d", i+1)
			m := &ownMaster{id: id, host: fmt.Sprintf("%s%d", base, i+1), dir: filepath.Join(o.dir, id)}
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
	for i := 0; err == nil && i < benchFiles; i++ {
		err = os.WriteFile(filepath.Join(root, "bench", fmt.Sprintf("state%d.sls", i)), []byte("# empty\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("make file root: %w", err)
	}
	return nil
}

// configure writes the masters' configs: Salt's defaults but for addresses, folders and auto_accept.
func (o *own) configure(files string) error {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("make secret: %w", err)
	}
	name := "root"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	pillar := filepath.Join(o.dir, "pillar")
	if err := os.MkdirAll(pillar, 0o755); err != nil {
		return fmt.Errorf("make pillar root: %w", err)
	}
	for _, m := range o.masters {
		text := fmt.Sprintf("id: %s\ninterface: %s\nroot_dir: %s\nsock_dir: %s\nuser: %s\nlog_level: warning\nauto_accept: true\n"+
			"file_roots: {base: [%s]}\npillar_roots: {base: [%s]}\n", m.id, m.host, m.dir, sockFolder, name, files, pillar)
		if len(o.masters) > 1 {
			text += fmt.Sprintf("cluster_id: bench\ncluster_secret: %s\ncluster_peers:\n", base64.RawURLEncoding.EncodeToString(secret))
			for _, p := range o.masters {
				if p != m {
					text += "  - " + p.host + "\n"
				}
			}
		}
		err := os.MkdirAll(m.dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(m.dir, "master"), []byte(text), 0o600)
		}
		if err != nil {
			return fmt.Errorf("write config of %s: %w", m.id, err)
		}
	}
	return nil
}

// start runs the master in a process group of its own; its output goes to DIR/out.
func (m *ownMaster) start(program string) error {
	out, err := os.OpenFile(filepath.Join(m.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", m.id, err)
	}
	defer out.Close()
	cmd := exec.Command(program, "salt-master", "-c", m.dir)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(os.Environ(), m.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.id, err)
	}
	m.cmd, m.done = cmd, make(chan struct{})
	go func() { m.err = cmd.Wait(); close(m.done) }()
	return nil
}

func (m *ownMaster) pid() int { return m.cmd.Process.Pid }

func (m *ownMaster) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// waitReady asks /readyz until it says yes.
func (m *ownMaster) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyPatience, fmt.Errorf("not within %s", readyPatience))
	defer cancel()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	url := fmt.Sprintf("http://%s:%d/readyz", m.host, healthPort)
	for {
		if m.ended() {
			return fmt.Errorf("master %s ended at its start (%v); its output is %s", m.id, m.err, filepath.Join(m.dir, "out"))
		}
		if req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil); err == nil {
			if r, err := client.Do(req); err == nil {
				r.Body.Close()
				if r.StatusCode == http.StatusOK {
					return nil
				}
			}
		}
		if !sleepUntil(ctx, time.Now().Add(10*time.Millisecond)) {
			return fmt.Errorf("wait for master %s: %w; its output is %s", m.id, context.Cause(ctx), filepath.Join(m.dir, "out"))
		}
	}
}

// sockDir is where its commands reach it.
func (m *ownMaster) sockDir() string { return filepath.Join(m.dir, sockFolder) }

// sockFolder is short: a long sock_dir makes a master, as Salt does, take another one.
const sockFolder = "/run"

// kill ends the master as a power cut would.
func (m *ownMaster) kill() error {
	if err := syscall.Kill(-m.pid(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", m.id, err)
	}
	<-m.done
	return nil
}

// stop ends those masters that still run: SIGTERM, after a grace SIGKILL.
func (o *own) stop() {
	for _, m := range o.masters {
		if m.cmd != nil && !m.ended() {
			syscall.Kill(-m.pid(), syscall.SIGTERM)
		}
	}
	late := time.After(stopGrace)
	for _, m := range o.masters {
		if m.cmd == nil {
			continue
		}
		select {
		case <-m.done:
		case <-late:
			for _, rest := range o.masters {
				if rest.cmd != nil && !rest.ended() {
					syscall.Kill(-rest.pid(), syscall.SIGKILL)
				}
			}
			<-m.done
		}
	}
}

func (o *own) hosts() []string {
	var out []string
	for _, m := range o.masters {
		out = append(out, m.host)
	}
	return out
}

func (o *own) requestAddrs() []string {
	var out []string
	for _, m := range o.masters {
		out = append(out, fmt.Sprintf("%s:%d", m.host, reqPort))
	}
	return out
}

func (o *own) pids() []int {
	var out []int
	for _, m := range o.masters {
		if !m.ended() {
			out = append(out, m.pid())
		}
	}
	return out
}

// memory is the PSS of each living master in bytes.
func (o *own) memory() ([]int64, error) {
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
