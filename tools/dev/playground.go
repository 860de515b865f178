package dev

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Ports of every master; each has its own address.
const (
	pubPort    = 4505
	reqPort    = 4506
	poolPort   = 4520
	healthPort = 4521
)

const (
	startTime = 60 * time.Second // for masters to serve, and for minions to connect
	stopGrace = 5 * time.Second  // for children to end on SIGTERM
)

// Config says what the playground consists of.
type Config struct {
	Binary  string // clustermaster itself
	Dir     string // "" makes a temporary one, removed at the end
	Masters int
	// HAProxy is the program and Template the config (lb/haproxy.cfg) that balance; empty: the
	// built-in balancer.
	HAProxy, Template string
	// Venvs is a folder with virtual environments salt-<release>, one real minion each; empty:
	// simulated minions.
	Venvs     string
	Simulated int  // number of simulated minions where Venvs is empty
	Leave     bool // end after the tour instead of waiting for Ctrl-C

	Stdout, Stderr io.Writer
	Log            *slog.Logger
}

// Playground is a running cluster on loopback addresses.
type Playground struct {
	cfg     Config
	dir     string
	front   string   // address of the balancer
	hosts   []string // addresses of the masters
	minions []string // ids
	end     context.CancelFunc

	mu       sync.Mutex // guards children
	children []*Child
	wg       sync.WaitGroup
}

// Run starts everything, shows what a cluster does, and waits until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	p := &Playground{cfg: cfg, dir: cfg.Dir}
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "clustermaster-dev-")
		if err != nil {
			return fmt.Errorf("make playground folder: %w", err)
		}
		defer os.RemoveAll(dir)
		p.dir = dir
	}
	ctx, cancel := context.WithCancel(ctx)
	defer p.wg.Wait()
	defer cancel()
	p.end = cancel
	defer p.stopAll()
	if err := p.tour(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if cfg.Leave {
		return nil
	}
	p.say("Go on playing, in another terminal:\n"+
		"  %s -c %s '*' test.ping\n  %s -c %s state.event pretty=True\n  %s -c %s -L\nlogs are in %s. Ctrl-C here stops all of it.",
		p.link("salt"), p.configDir(p.alive()), p.link("salt-run"), p.configDir(p.alive()),
		p.link("salt-key"), p.configDir(p.alive()), p.dir)
	<-ctx.Done()
	return nil
}

// tour shows what a cluster does.
func (p *Playground) tour(ctx context.Context) error {
	steps := []func(context.Context) error{
		p.address, p.startMasters, p.startBalancer, p.startMinions, p.acceptKeys, p.ping,
		p.showCluster, p.killLeader, p.ping, p.bringBack,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *Playground) say(format string, args ...any) {
	p.print("\n\033[1m# "+format+"\033[0m\n", args...)
}

// print writes to standard output. All ends if nobody reads that any more.
func (p *Playground) print(format string, args ...any) {
	if _, err := fmt.Fprintf(p.cfg.Stdout, format, args...); err != nil {
		p.end()
	}
}

func (p *Playground) address(ctx context.Context) (err error) {
	p.hosts, p.front, err = FreeBlock(ctx, p.cfg.Masters, pubPort, reqPort, poolPort, healthPort)
	return err
}

// FreeBlock finds a block 127.a.b.0/24 for n masters on its first addresses and a balancer on the
// hundredth one, with all the ports free.
func FreeBlock(ctx context.Context, n int, ports ...int) (hosts []string, front string, err error) {
	for range 50 {
		base := fmt.Sprintf("127.%d.%d.", 64+mathrand.IntN(128), 1+mathrand.IntN(254))
		hosts, front = nil, base+"100"
		for i := range n {
			hosts = append(hosts, fmt.Sprintf("%s%d", base, i+1))
		}
		if free(ctx, append(hosts, front), ports...) {
			return hosts, front, nil
		}
	}
	return nil, "", errors.New("find free loopback addresses: none of 50 blocks was free")
}

// free reports whether all the ports of the hosts are free.
func free(ctx context.Context, hosts []string, ports ...int) bool {
	for _, h := range hosts {
		for _, port := range ports {
			ln, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("%s:%d", h, port))
			if err != nil {
				return false
			}
			ln.Close()
		}
	}
	return true
}

func (p *Playground) configDir(i int) string {
	return filepath.Join(p.dir,
		fmt.Sprintf("m%d", i+1))
}
func (p *Playground) link(name string) string {
	return filepath.Join(filepath.Dir(p.cfg.Binary), name)
}

func (p *Playground) startMasters(ctx context.Context) error {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("make secret: %w", err)
	}
	p.say("%d masters on %s: each with its own folders, nothing shared but cluster_secret",
		p.cfg.Masters, strings.Join(p.hosts, " "))
	for i, host := range p.hosts {
		var peers []string
		for _, h := range p.hosts {
			if h != host {
				peers = append(peers, "  - "+h)
			}
		}
		dir := p.configDir(i)
		text := fmt.Sprintf("id: m%d\ninterface: %s\nroot_dir: %s\nuser: %s\nlog_file: log\nlog_level_logfile: info\n"+
			"cluster_id: dev\ncluster_secret: %s\ncluster_peers:\n%s\nmax_pending_keys_per_source: 0\n"+
			"file_roots: {base: [%s]}\npillar_roots: {base: [%s]}\n",
			i+1, host, dir, userName(), base64.RawURLEncoding.EncodeToString(secret),
			strings.Join(peers, "\n"),
			filepath.Join(dir, "srv/salt"), filepath.Join(dir, "srv/pillar"))
		if p.cfg.Masters == 1 {
			text = strings.Replace(text, "cluster_peers:\n\n", "", 1)
		}
		for _, sub := range []string{"", "srv/salt", "srv/pillar"} {
			if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
				return fmt.Errorf("make playground folder: %w", err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write config: %w", err)
		}
		if err := p.startMaster(i); err != nil {
			return err
		}
	}
	began := time.Now()
	for _, h := range p.hosts {
		if err := p.waitReady(ctx, h); err != nil {
			return err
		}
	}
	p.print("all ready after %.1f s\n", time.Since(began).Seconds())
	return nil
}

func (p *Playground) startMaster(i int) error {
	args := []string{"salt-master", "-c", p.configDir(i)}
	if p.cfg.Masters == 1 {
		args = append(args, "--found")
	}
	return p.start(fmt.Sprintf("m%d", i+1), p.cfg.Binary, args...)
}

// start runs a program until the playground ends; its output goes to DIR/NAME.out.
func (p *Playground) start(name, program string, args ...string) error {
	c, err := Start(name, filepath.Join(p.dir, name+".out"), nil, append([]string{program}, args...))
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.children = append(p.children, c)
	p.mu.Unlock()
	return nil
}

// running finds a running child; nil if there is none.
func (p *Playground) running(name string) *Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.children {
		if c.Name == name && c.Running() {
			return c
		}
	}
	return nil
}

// stopAll ends every child's process group.
func (p *Playground) stopAll() {
	p.mu.Lock()
	children := p.children
	p.mu.Unlock()
	Stop(stopGrace, children...)
}

func (p *Playground) waitReady(ctx context.Context, host string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy
	err := p.until(ctx, func() bool {
		r, err := client.Get(fmt.Sprintf("http://%s:%d/readyz", host, healthPort))
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	if err != nil {
		return fmt.Errorf("master %s does not become ready: %w; see the logs in %s", host,
			err, p.dir)
	}
	return nil
}

// until calls ok repeatedly until it returns true, ctx ends, or startTime has passed.
func (p *Playground) until(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("not within %s", startTime))
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// alive is the index of the first running master.
func (p *Playground) alive() int {
	for i := range p.hosts {
		if p.running(fmt.Sprintf("m%d", i+1)) != nil {
			return i
		}
	}
	return 0
}

// show prints a command as an operator would type it, and its output.
func (p *Playground) show(ctx context.Context, master int, name string, args ...string) error {
	full := append([]string{"-c", p.configDir(master)}, args...)
	p.print("$ %s %s\n", name, quoted(full))
	cmd := exec.CommandContext(ctx, p.cfg.Binary, append([]string{name}, full...)...)
	cmd.Stdout, cmd.Stderr = p.cfg.Stdout, p.cfg.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s on m%d: %w", name, master+1, err)
	}
	return nil
}

func quoted(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if strings.ContainsAny(a, "*?[] '\"$") {
			a = "'" + a + "'"
		}
		out[i] = a
	}
	return strings.Join(out, " ")
}

// capture runs a command with --out=json and decodes its one document.
func (p *Playground) capture(ctx context.Context, master int, v any, name string,
	args ...string) error {
	full := append([]string{name, "-c", p.configDir(master), "--out=json"}, args...)
	b, err := exec.CommandContext(ctx, p.cfg.Binary, full...).Output()
	if err != nil {
		return fmt.Errorf("%s %s: %w", name, quoted(args), err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read output of %s %s: %w", name, quoted(args), err)
	}
	return nil
}

func (p *Playground) acceptKeys(ctx context.Context) error {
	p.say("The minions' keys wait on every master, whichever they arrived at")
	err := p.until(ctx, func() bool {
		var lists map[string][]string
		return p.capture(ctx, 0, &lists, "salt-key", "-L") == nil &&
			len(lists["minions_pre"])+len(lists["minions"]) >= len(p.minions)
	})
	if err != nil {
		return fmt.Errorf("the minions' keys do not arrive: %w; see the logs in %s", err, p.dir)
	}
	last := len(p.hosts) - 1
	if err := p.show(ctx, last, "salt-key", "-L"); err != nil {
		return err
	}
	if err := p.show(ctx, 0, "salt-key", "-A", "-y"); err != nil {
		return err
	}
	p.say("Accepted once, accepted everywhere; the minions sign in")
	return p.until(ctx, func() bool {
		var up []string
		return p.capture(ctx, last, &up, "salt-run", "manage.up", "timeout=1",
			"gather_job_timeout=1") == nil && len(up) >= len(p.minions)
	})
}

func (p *Playground) ping(ctx context.Context) error {
	for i := range p.hosts {
		if p.running(fmt.Sprintf("m%d", i+1)) == nil {
			continue
		}
		if err := p.show(ctx, i, "salt", "*", "test.ping"); err != nil {
			return err
		}
	}
	return nil
}

func (p *Playground) showCluster(ctx context.Context) error {
	p.say("What the cluster knows of itself")
	if err := p.show(ctx, 0, "salt-run", "cluster.members"); err != nil {
		return err
	}
	return p.show(ctx, 0, "salt-run", "cluster.ring_info")
}

func (p *Playground) killLeader(ctx context.Context) error {
	if len(p.hosts) < 3 {
		return nil
	}
	var members struct {
		LeaderID string `json:"leader_id"`
	}
	if err := p.capture(ctx, 0, &members, "salt-run", "cluster.members"); err != nil {
		return err
	}
	c := p.running(members.LeaderID)
	if c == nil {
		return fmt.Errorf("the leader %q is not one of the playground's masters", members.LeaderID)
	}
	p.say("kill -9 of the leader, %s; the others go on", members.LeaderID)
	c.Kill()
	return nil
}

// bringBack starts masters that were killed.
func (p *Playground) bringBack(ctx context.Context) error {
	for i, h := range p.hosts {
		name := fmt.Sprintf("m%d", i+1)
		if p.running(name) != nil {
			continue
		}
		p.say("%s comes back and heals itself", name)
		if err := p.startMaster(i); err != nil {
			return err
		}
		if err := p.waitReady(ctx, h); err != nil {
			return err
		}
		if err := p.show(ctx, i, "salt", "*", "test.ping"); err != nil {
			return err
		}
	}
	return nil
}
