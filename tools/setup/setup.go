package setup

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"clustermaster/lb"
)

// Cluster describes a new cluster.
type Cluster struct {
	ID       string // cluster_id
	Secret   string // cluster_secret
	Masters  []lb.Server
	Balancer string // address on which the balancer listens; "*" for all of its machine
}

// NewSecret makes a cluster_secret of 256 random bits.
func NewSecret() (string, error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make a secret: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b[:]), nil
}

var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	hostName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
)

// ParseMasters reads addresses or host names, separated by commas, each with or without an id
// before it, as in m1=10.0.0.1. Missing ids become host names, or master1, master2, ... for
// addresses.
func ParseMasters(list string) ([]lb.Server, error) {
	var masters []lb.Server
	names, addrs := make(map[string]bool), make(map[string]bool)
	for i, word := range strings.Split(list, ",") {
		name, addr, named := strings.Cut(strings.TrimSpace(word), "=")
		if !named {
			name, addr = "", name
		}
		addr = strings.Trim(addr, "[]")
		ip, err := netip.ParseAddr(addr)
		switch {
		case err == nil && ip.IsUnspecified():
			return nil, fmt.Errorf("--peers: %s is not the address of a single machine", addr)
		case ip.Zone() != "":
			return nil, fmt.Errorf("--peers: %s has a zone, which means something on its own machine only; "+
				"give an address that all machines reach, or a host name", addr)
		case err == nil:
			addr = ip.String()
		case !hostName.MatchString(addr):
			return nil,
				fmt.Errorf("--peers: %q is neither an address nor a host name; write them with commas, like "+
					"10.0.0.1,10.0.0.2,10.0.0.3", addr)
		}
		if name == "" {
			if name = addr; err == nil {
				name = fmt.Sprintf("master%d", i+1)
			}
		}
		if !plainName.MatchString(name) {
			return nil,
				fmt.Errorf("--peers: %q can't be an id; use letters, digits, dots and dashes", name)
		}
		machine := strings.ToLower(addr) // names of machines are the same in any case
		if names[name] || addrs[machine] {
			return nil, fmt.Errorf("--peers: %s is named twice; name each master once", word)
		}
		names[name], addrs[machine] = true, true
		masters = append(masters, lb.Server{Name: name, Addr: addr})
	}
	return masters, nil
}

// checkBalancer refuses what no balancer beside the masters can listen at.
func (c Cluster) checkBalancer() error {
	host := c.Balancer
	ip, err := netip.ParseAddr(host)
	if host != "*" && err != nil && !hostName.MatchString(host) {
		return fmt.Errorf("--balancer: %q is neither an address nor a host name, nor * for all addresses of its machine", host)
	}
	if ip.Zone() != "" {
		return fmt.Errorf("--balancer: %s has a zone, which means something on its own machine only; "+
			"give an address that minions reach", host)
	}
	for _, m := range c.Masters {
		at, err2 := netip.ParseAddr(m.Addr)
		if strings.EqualFold(m.Addr, host) || err == nil && err2 == nil && at == ip {
			return fmt.Errorf("--balancer: %s is the address of %s, and both listen on ports 4505 and 4506; "+
				"give the balancer an address of its own", host, m.Name)
		}
	}
	return nil
}

// single is the balancer's address if it has one that minions can be told, else the word.
func (c Cluster) single(word string) string {
	if ip, err := netip.ParseAddr(c.Balancer); c.Balancer == "*" || err == nil && ip.IsUnspecified() {
		return word
	}
	return c.Balancer
}

// bind is the address at which the balancer listens. To HAProxy, * is IPv4 alone, and :: is both.
func (c Cluster) bind() string {
	if c.Balancer == "*" && slices.ContainsFunc(c.Masters,
		func(m lb.Server) bool { return strings.Contains(m.Addr, ":") }) {
		return "::"
	}
	return c.Balancer
}

// Write makes dir with ID/master for each master, mode 0644, ID/master.d/cluster.conf, mode 0600,
// and haproxy.cfg. It refuses an existing folder.
func (c Cluster) Write(dir string) error {
	if err := c.checkBalancer(); err != nil {
		return err
	}
	balancer, err := lb.FillIn(lb.HAProxy, c.bind(), c.Masters)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists already; nothing was written. Name another folder with --dir", dir)
	} else if err != nil {
		return fmt.Errorf("make folder: %w; nothing was written", err)
	}
	for _, m := range c.Masters {
		sub := filepath.Join(dir, m.Name)
		if err := os.MkdirAll(filepath.Join(sub, "master.d"), 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		for _, f := range []struct {
			name, text string
			mode       os.FileMode
		}{{"master", c.Config(m), 0o644}, {"master.d/cluster.conf", c.Secrets(m), 0o600}} {
			if err := os.WriteFile(filepath.Join(sub, f.name), []byte(f.text), f.mode); err != nil {
				return fmt.Errorf("write configuration: %w", err)
			}
			if err := os.Chmod(filepath.Join(sub, f.name), f.mode); err != nil { // the umask took bits away
				return fmt.Errorf("write configuration: %w", err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "haproxy.cfg"), []byte(balancer), 0o644); err != nil {
		return fmt.Errorf("write balancer's configuration: %w", err)
	}
	return nil
}

// Config is the file /etc/salt/master of one of the masters.
func (c Cluster) Config(m lb.Server) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s, one of %d masters of the cluster %s. Copy to /etc/salt/master. Every user may read it, so that", m.Name,
		len(c.Masters), c.ID)
	line("# those of publisher_acl can run commands. What makes it a cluster is in master.d/cluster.conf.")
	line("")
	line("# This master: a name of its own, and the address of its ports.")
	line("id: %s", quoted(m.Name))
	if _, err := netip.ParseAddr(m.Addr); err == nil {
		line("interface: %s", quoted(m.Addr))
	} else {
		line("interface: '::'")
		line("# Other masters find it by this name, also after its address has changed.")
		line("cluster_advertise: %s", m.Addr)
	}
	line("")
	line("# States and pillars: edit them on one master, then run salt-run cluster.sync_roots there.")
	line("file_roots:")
	line("  base:")
	line("    - /srv/salt")
	line("pillar_roots:")
	line("  base:")
	line("    - /srv/pillar")
	line("")
	line("# Show masters the minions' own addresses: add send-proxy-v2 to the servers in haproxy.cfg at the same time.")
	line("# proxy_protocol_from lists the addresses from which the balancer connects.")
	line("#proxy_protocol: True")
	from := c.single("10.0.0.100")
	if _, err := netip.ParseAddr(from); err != nil {
		from = "10.0.0.100" // the option takes no names
	}
	line("#proxy_protocol_from: [%s]", quoted(from))
	return b.String()
}

// Secrets is the file /etc/salt/master.d/cluster.conf of one of the masters.
func (c Cluster) Secrets(m lb.Server) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Copy to /etc/salt/master.d/cluster.conf, mode 0600. With the option user: mode 0640, and the group of that user.")
	line("# The cluster: the same id and secret on all masters. Keep the secret out of sight: it lets a machine join.")
	line("cluster_id: %s", quoted(c.ID))
	line("cluster_secret: %s", quoted(c.Secret))
	line("cluster_peers:")
	for _, p := range c.Masters {
		if p.Name != m.Name {
			line("  - %s", quoted(p.Addr))
		}
	}
	line("")
	line("# Each master has folders of its own; keys and synced roots travel inside the cluster.")
	line("cluster_isolated_filesystem: True")
	return b.String()
}

// quoted quotes a text for YAML.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
