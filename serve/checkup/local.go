package checkup

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"clustermaster/cluster"
	"clustermaster/config"
)

// checker collects findings.
type checker struct {
	o     *config.Options
	found []Finding
}

func (c *checker) say(check string, level Level, remedy, format string, args ...any) {
	c.found = append(c.found, Finding{Check: check, Level: level,
		Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Local checks this machine. running tells that a master with these options runs here, whose ports
// are taken by itself.
func Local(ctx context.Context, o *config.Options, running bool) []Finding {
	c := &checker{o: o}
	for _, check := range []func(context.Context, bool){c.ports, c.names, c.peers, c.clock, c.disk,
		c.limits, c.memory, c.folders, c.roots, c.certificates} {
		check(ctx, running)
		if ctx.Err() != nil {
			c.say("all", Warning, "run it again with a longer timeout", "the checks were cut short")
			break
		}
	}
	return c.found
}

// dialTime bounds one connection that is tried.
const dialTime = 2 * time.Second

func (c *checker) ports(ctx context.Context, running bool) {
	ports := c.o.Listeners()
	bad := false
	for _, p := range ports {
		if running {
			if err := try(ctx, reachable(p.Addr)); err != nil {
				bad = true
				c.say("ports", Error,
					"look into the log of the master why it does not listen; it opens minion ports once it serves",
					"%s: %s does not answer: %v", p.Option, p.Addr, err)
			}
			continue
		}
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", p.Addr)
		if err != nil {
			bad = true
			fact, remedy := p.Fault(err)
			c.say("ports", Error, remedy, "%s", fact)
			continue
		}
		ln.Close()
	}
	if !bad {
		c.say("ports", Good, "", "%d ports are as they should be", len(ports))
	}
	if running {
		c.ready(ctx)
	}
}

// reachable is an address for a connection to a listener that may be at a wildcard.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || host == "0.0.0.0" || host == "::") {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}

func try(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// ready asks the health port what a balancer would ask.
func (c *checker) ready(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+reachable(c.o.ResolveHealthListen())+"/readyz", nil)
	if err != nil {
		return
	}
	// A balancer has no proxy and follows nothing.
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return // ports has told
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.say("ready", Error, "salt-run cluster.health tells why",
			"the master is not ready (%s): a balancer sends it no minions", resp.Status)
		return
	}
	c.say("ready", Good, "", "the master is ready")
}

func (c *checker) names(ctx context.Context, _ bool) {
	o := c.o
	if o.ClusterID == "" {
		c.say("names", Good, "", "no cluster_id: this master needs no names of others")
		return
	}
	bad := false
	advertise, err := o.ResolveAdvertise()
	if err != nil {
		bad = true
		c.say("names", Error, "", "interface %v", err)
	}
	for _, addr := range append(o.PeerAddrs(), advertise) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil || net.ParseIP(host) != nil {
			continue
		}
		look, cancel := context.WithTimeout(ctx, dialTime)
		ips, err := net.DefaultResolver.LookupHost(look, host)
		cancel()
		switch {
		case err != nil:
			bad = true
			c.say("names", Error,
				"write addresses into cluster_peers, or the name into /etc/hosts of every master",
				"the name %s is not found: %v", host, err)
		case len(ips) > 1:
			c.say("names", Notice, "",
				"the name %s has %d addresses (%s); all of them must be one master's", host,
				len(ips), strings.Join(ips, " "))
		}
		for _, ip := range ips {
			if a := net.ParseIP(ip); a != nil && a.IsLoopback() && host != "localhost" {
				bad = true
				c.say("names", Warning,
					"take the name off the line of 127.0.0.1 or 127.0.1.1 in /etc/hosts",
					"the name %s means %s here, which other masters can't reach", host, ip)
			}
		}
	}
	if !bad {
		c.say("names", Good, "", "all names of masters are found")
	}
}

func (c *checker) peers(ctx context.Context, _ bool) {
	peers := c.o.PeerAddrs()
	away := 0
	for _, addr := range peers {
		start := time.Now()
		if err := try(ctx, addr); err != nil {
			away++
			c.say("peers", Warning, "start that master, and let TCP port "+portOf(addr)+
				" through every firewall between the masters",
				"the master at %s does not answer: %v", addr, err)
		} else if took := time.Since(start); took > 100*time.Millisecond {
			c.say("peers", Warning,
				"put masters of one cluster near each other, or raise cluster_election_min and cluster_election_max",
				"a connection to %s takes %v; commits of keys and returns wait for that", addr,
				took.Round(time.Millisecond))
		}
	}
	if len(peers) > 0 && away == 0 {
		c.say("peers", Good, "", "%d other masters answer on their peer ports", len(peers))
	}
	if n := len(peers) + 1; c.o.ClusterID != "" && n == 2 {
		c.say("peers", Notice, "add a third master",
			"with two masters the death of either stops changes of keys and members")
	}
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// unsynchronised is STA_UNSYNC of adjtimex(2).
const unsynchronised = 0x40

func (c *checker) clock(context.Context, bool) {
	var t syscall.Timex
	if _, err := syscall.Adjtimex(&t); err != nil {
		c.say("clock", Notice, "",
			"the kernel does not tell whether the clock is synchronised: %v", err)
		return
	}
	if t.Status&unsynchronised != 0 {
		c.say("clock", Warning,
			"run chrony or systemd-timesyncd; masters whose clocks are more than cluster_clock_limit apart are reported as wrong",
			"nothing synchronises the clock of this machine")
		return
	}
	c.say("clock", Good, "", "the clock is synchronised")
}

// spaceWarning is the share of a disk below which free space is too little, whatever disk_reserve
// is.
const spaceWarning = 10 // percent

func (c *checker) disk(context.Context, bool) {
	dir := existing(c.o.DataDir())
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		c.say("disk", Error, "", "cachedir: %s can't be read: %v", dir, err)
		return
	}
	free, total := s.Bavail*uint64(s.Bsize), s.Blocks*uint64(s.Bsize)
	size, err := c.o.DiskReserveSize()
	if err == nil {
		err = size.Check(dir)
	}
	switch {
	case err != nil:
		c.say("disk", Error,
			"make room there; below its reserve a master takes no data",
			"cachedir: %v", err)
	case total > 0 && free*100/total < spaceWarning:
		c.say("disk", Warning, "free space there, or lower keep_jobs_seconds",
			"cachedir: %d MiB (%d %%) are free at %s", free>>20, free*100/total, dir)
	default:
		c.say("disk", Good, "", "cachedir: %d MiB (%d %%) are free at %s", free>>20,
			free*100/max(1, total), dir)
	}
	if err == nil && s.Files > 0 && s.Ffree*100/s.Files < spaceWarning {
		c.say("disk", Warning, "remove small files on that file system",
			"cachedir: only %d of %d inodes are free at %s", s.Ffree, s.Files, dir)
	}
	const tmpfs = 0x01021994
	if s.Type == tmpfs {
		c.say("disk", Error,
			"put cachedir on a disk: what a majority acknowledged must be there after a loss of power", "cachedir: %s is kept in memory (tmpfs)", dir)
	}
}

// existing is the deepest folder of a path that exists.
func existing(path string) string {
	for path != "/" {
		if _, err := os.Stat(path); err == nil {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}

// Least limits for a few hundred minions: two connections each, and a thousand files of the master
// itself.
const leastFiles = 4096

func (c *checker) limits(context.Context, bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return
	}
	files := l.Max
	keys, _ := os.ReadDir(filepath.Join(c.o.KeysDir(), "minions"))
	need := max(leastFiles, uint64(2*len(keys)+1000))
	if files < need {
		c.say("limits", Warning,
			"set LimitNOFILE of the service (systemctl edit salt-master), or ulimit -Hn",
			"%d open files are allowed, and %d minions need %d", files, len(keys), need)
	} else {
		c.say("limits", Good, "", "%d open files are allowed, %d minions need %d", files,
			len(keys), need)
	}
	if n, ok := kernelNumber("/proc/sys/net/core/somaxconn"); ok && n < c.o.ZmqBacklog {
		c.say("limits", Notice, "sysctl -w net.core.somaxconn="+strconv.Itoa(c.o.ZmqBacklog)+
			", and in /etc/sysctl.d",
			"net.core.somaxconn is %d, less than zmq_backlog %d: more minions that connect at a time have to try again", n, c.o.ZmqBacklog)
	}
	if n, ok := kernelNumber("/proc/sys/net/netfilter/nf_conntrack_max"); ok &&
		n < 4*len(keys)+10000 {
		c.say("limits", Warning, "raise net.netfilter.nf_conntrack_max in /etc/sysctl.d",
			"net.netfilter.nf_conntrack_max is %d, little for %d minions", n, len(keys))
	}
}

func kernelNumber(path string) (int, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}

// leastMemory is what a master with few minions and some render workers takes.
const leastMemory = 512 // MiB

func (c *checker) memory(context.Context, bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return
	}
	read := func(name string) int {
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == name+":" {
				n, _ := strconv.Atoi(f[1])
				return n >> 10
			}
		}
		return -1
	}
	available, total := read("MemAvailable"), read("MemTotal")
	if available < 0 {
		return
	}
	if group, err := memlimit.FromCgroup(); err == nil && int(group>>20) < total {
		available, total = min(available, int(group>>20)), int(group>>20)
	}
	if available < leastMemory {
		c.say("memory", Warning,
			"stop other programs, or give the machine more memory; docs/growth.md has figures",
			"%d of %d MiB are available", available, total)
		return
	}
	c.say("memory", Good, "", "%d of %d MiB are available", available, total)
}

func (c *checker) folders(context.Context, bool) {
	o := c.o
	bad := false
	for _, d := range []struct {
		option, path string
		secret       bool
	}{{"pki_dir", o.PkiDir, true}, {"cluster_pki_dir", o.ClusterPkiDir, true}, {"cachedir",
		o.CacheDir, false}, {"sock_dir", o.SockDir, false}, {"cachedir", o.DataDir(), true}} {
		if d.path == "" {
			continue
		}
		info, err := os.Stat(d.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // made at the start
		case err != nil:
			bad = true
			c.say("folders", Error, "run it as root or as the master's user", "%s: %v",
				d.option, err)
		case !info.IsDir():
			bad = true
			c.say("folders", Error, "move it away", "%s: %s is not a folder", d.option, d.path)
		case d.secret && info.Mode().Perm()&0o027 != 0 && !o.PermissivePkiAccess:
			bad = true
			c.say("folders", Warning, "chmod 700 "+d.path, "%s: others may look into %s (mode %#o)",
				d.option, d.path, info.Mode().Perm())
		}
	}
	if !bad {
		c.say("folders", Good, "", "folders and their modes are as they should be")
	}
}

func (c *checker) roots(context.Context, bool) {
	bad := false
	for _, r := range []struct {
		option string
		roots  config.Roots
	}{{"file_roots", c.o.FileRoots}, {"pillar_roots", c.o.PillarRoots}} {
		if _, given := c.o.Extra[r.option]; !given {
			continue // nobody chose the folders of the default
		}
		for _, env := range r.roots {
			for _, dir := range env.Dirs {
				if strings.Contains(dir, "__env__") {
					continue
				}
				f, err := os.Open(dir)
				if err != nil {
					bad = true
					c.say("roots", Warning, "make it, or remove it from "+r.option, "%s %s: %v",
						r.option, env.Name, err)
					continue
				}
				f.Close()
			}
		}
	}
	if !bad {
		c.say("roots", Good, "", "all folders that file_roots and pillar_roots name are there")
	}
}

// certificateDays is how long before its end a certificate is worth a warning.
const certificateDays = 30

func (c *checker) certificates(context.Context, bool) {
	o := c.o
	bad := false
	if o.ClusterID != "" && cluster.HasState(filepath.Join(o.DataDir(), "cluster")) {
		switch info, err := os.Stat(filepath.Join(o.DataDir(), "node.key")); {
		case err != nil:
			bad = true
			c.say("certificates", Error,
				"take this master out with salt-run cluster.remove on another one, empty "+
					o.DataDir()+", and let it join again",
				"the key by which other masters know this one can't be read: %v", err)
		case info.Mode().Perm()&0o077 != 0:
			bad = true
			c.say("certificates", Error, "chmod 600 "+filepath.Join(o.DataDir(), "node.key"),
				"others may read the key by which other masters know this one")
		}
	}
	for _, api := range []string{"rest_cherrypy", "rest_tornado"} {
		for _, e := range o.Values() {
			if e.Key != api {
				continue
			}
			for _, path := range certificatesIn(e.Value) {
				bad = c.certificate(api, path) || bad
			}
		}
	}
	if !bad {
		c.say("certificates", Good, "", "no certificate ends soon")
	}
}

// certificate looks at a file of certificates and reports whether something is wrong.
func (c *checker) certificate(option, path string) bool {
	b, err := os.ReadFile(path)
	if err != nil {
		c.say("certificates", Error, "", "%s: %v", option, err)
		return true
	}
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return false
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			c.say("certificates", Error, "replace the file", "%s: %s: %v", option, path, err)
			return true
		}
		if left := time.Until(cert.NotAfter); left < certificateDays*24*time.Hour {
			level, text := Warning, "ends"
			if left < 0 {
				level, text = Error, "ended"
			}
			c.say("certificates", level, "renew it", "%s: the certificate in %s %s on %s", option,
				path, text, cert.NotAfter.UTC().Format(time.DateOnly))
			return true
		}
	}
}
