package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// minSecret is the least number of characters of cluster_secret.
const minSecret = 16

// leastElection is the least cluster_election_min: Raft sends ten heartbeats in that time.
const leastElection = 100 * time.Millisecond

// DefaultHealthPort is the port of /livez and /readyz unless health_listen sets another; /metrics
// is on the next port.
const DefaultHealthPort = 4521

func (l *loader) checkCluster() {
	o := l.o
	if o.ClusterID == "" {
		for _, name := range []string{"cluster_peers", "cluster_pki_dir", "cluster_secret"} {
			if !isEmpty(o.Extra[name]) {
				l.warn(name, "not used: there is no cluster_id, so this master stands alone")
			}
		}
		o.ClusterSecret = ""
		return
	}
	if strings.ContainsAny(o.ClusterID, "\x00\n\r") || len(o.ClusterID) > 255 {
		l.refuse("cluster_id", "has more than 255 characters or a line break; choose a short name")
	}
	if !l.command {
		l.checkSecret()
	}
	for _, p := range o.ClusterPeers {
		if _, _, err := splitPeer(p, o.ClusterPoolPort); err != nil {
			l.refuse("cluster_peers",
				"%v; write each master as an address, a name, or address:port", err)
		}
	}
	if fp := o.ClusterPubFingerprint; fp != "" {
		if b, err := hex.DecodeString(strings.ReplaceAll(fp, ":", "")); err != nil || len(b) != 32 {
			l.refuse("cluster_pub_fingerprint",
				"is not a SHA-256 in hexadecimal (64 digits); `salt-key -F master` on a member shows it")
		}
	}
	switch {
	case o.ClusterMinVoters <= o.ClusterMaxVoters:
	case !l.given("cluster_min_voters"):
		o.ClusterMinVoters = o.ClusterMaxVoters
	case !l.given("cluster_max_voters"):
		o.ClusterMaxVoters = o.ClusterMinVoters
	default:
		l.refuse("cluster_max_voters",
			"is %d, less than cluster_min_voters (%d); raise the one or lower the other",
			o.ClusterMaxVoters, o.ClusterMinVoters)
	}
	if d := o.ClusterElectionMin; d != 0 && d < leastElection {
		l.refuse("cluster_election_min",
			"is %d ms; at least %d ms are needed, else busy masters elect all the time",
			d.Milliseconds(), leastElection.Milliseconds())
	}
	if d := o.ClusterElectionMax; d != 0 && d < max(o.ClusterElectionMin, 2*leastElection) {
		l.refuse("cluster_election_max",
			"is %d ms; at least cluster_election_min and %d ms are needed", d.Milliseconds(),
			2*leastElection.Milliseconds())
	}
	if _, err := o.ResolveAdvertise(); err != nil {
		option := "interface"
		if o.ClusterAdvertise != "" {
			option = "cluster_advertise"
		}
		l.refuse(option, "%v", err)
	}
}

func (l *loader) checkSecret() {
	secret := l.o.ClusterSecret.Reveal()
	switch n := len([]rune(secret)); {
	case n == 0:
		l.refuse("cluster_secret",
			"is not set, so any machine could join; set the same random text of at least %d characters on all masters (`clustermaster init` makes one)", minSecret)
	case n < minSecret:
		l.refuse("cluster_secret",
			"has %d characters, at least %d are needed; set the same random text on all masters (`clustermaster init` makes one)", n, minSecret)
	case strings.TrimSpace(secret) == "":
		l.refuse("cluster_secret",
			"is blank; set the same random text of at least %d characters on all masters (`clustermaster init` makes one)", minSecret)
	}
}

func (l *loader) given(name string) bool {
	_, ok := l.o.origins[name]
	return ok
}

// KeysDir is the folder that contains minions, minions_pre and so on.
func (o *Options) KeysDir() string {
	if o.ClusterPkiDir != "" {
		return o.ClusterPkiDir
	}
	return o.PkiDir
}

// SharedKeys reports whether cluster_pki_dir is a folder that all masters mount, as in Salt's
// clusters without cluster_isolated_filesystem: a founding master reads it, and no master writes
// its copies of keys there.
func (o *Options) SharedKeys() bool {
	return o.ClusterID != "" && o.ClusterPkiDir != "" && o.ClusterPkiDir != o.PkiDir &&
		!o.ClusterIsolatedFilesystem
}

// OpenSecret says that every user of this machine can read cluster_secret; "" if that is not so.
func (o *Options) OpenSecret() string {
	at := o.origins["cluster_secret"]
	if v, err := o.Now("cluster_secret"); o.ClusterSecret == "" || err != nil || isSDB(v) {
		return ""
	}
	info, err := os.Stat(at.file)
	if err != nil || info.Mode().Perm()&0o004 == 0 {
		return ""
	}
	return place(at.file, at.line, "cluster_secret") + fmt.Sprintf("every user of this machine can read it "+
		"(mode %04o); put it into a file of master.d that only the master's user can read", info.Mode().Perm())
}

// CheckFirst is what refuses the start of a master without state: a file that is left out, because
// it may have the options of a cluster, and unless found (salt-master --found) a cluster without
// another master to ask.
func (o *Options) CheckFirst(found bool) error {
	if o.leftOut != nil {
		return fmt.Errorf("a master without state does not start with options missing, because it could found "+
			"a cluster of its own: %s", strings.ReplaceAll(o.leftOut.Error(), "\n", "; "))
	}
	if o.ClusterID == "" || len(o.PeerAddrs()) > 0 || found {
		return nil
	}
	at := o.origins["cluster_id"]
	return &Problem{File: at.file, Line: at.line, Option: "cluster_peers",
		Text: "names no other master, but cluster_id is set; list the other masters' addresses there, or start this one once with `salt-master --found` to found the cluster alone"}
}

// ResolveAdvertise is the host:port at which other masters reach this one's
// peer port: cluster_advertise, else interface. It is empty without cluster_id.
func (o *Options) ResolveAdvertise() (string, error) {
	if o.ClusterID == "" {
		return "", nil
	}
	from := o.ClusterAdvertise
	if from == "" {
		from = o.Interface
	}
	host, port, err := splitPeer(from, o.ClusterPoolPort)
	if err != nil {
		return "",
			fmt.Errorf("%w; give an address or a name that the other masters can reach", err)
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		return "",
			fmt.Errorf("is %s, which no other master can reach; set interface to this machine's address, or cluster_advertise beside it", host)
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// PeerAddrs lists the peer ports of the other masters as host:port, sorted and distinct, without
// this one.
func (o *Options) PeerAddrs() []string {
	self, _ := o.ResolveAdvertise()
	var list []string
	for _, p := range o.ClusterPeers {
		host, port, err := splitPeer(p, o.ClusterPoolPort)
		if err != nil {
			continue // Load has refused this value
		}
		if addr := net.JoinHostPort(host, strconv.Itoa(port)); addr != self {
			list = append(list, addr)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// ListenAddr is address:port of this master for one of its ports.
func (o *Options) ListenAddr(port int) string {
	return net.JoinHostPort(strings.Trim(o.Interface, "[]"), strconv.Itoa(port))
}

// ResolveHealthListen is the address of /livez and /readyz.
func (o *Options) ResolveHealthListen() string {
	if o.HealthListen != "" {
		return o.HealthListen
	}
	return o.ListenAddr(DefaultHealthPort)
}

// ResolveMetricsListen is the address of /metrics: loopback, on the port after the health port. A
// master whose interface is itself a loopback address uses that one, so that several can run on one
// machine.
func (o *Options) ResolveMetricsListen() string {
	if o.MetricsListen != "" {
		return o.MetricsListen
	}
	if a, err := netip.ParseAddr(strings.Trim(o.Interface, "[]")); err == nil && a.IsLoopback() {
		return o.ListenAddr(DefaultHealthPort + 1)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(DefaultHealthPort+1))
}

// splitPeer reads host, host:port, v6 address or [v6]:port.
func splitPeer(s string, port int) (host string, p int, err error) {
	s = strings.TrimSpace(s)
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return a.String(), port, nil
	}
	if !strings.Contains(s, ":") {
		if err := checkHost(s); err != nil {
			return "", 0, err
		}
		return s, port, nil
	}
	return splitHostPort(s)
}

func splitHostPort(s string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not an address with a port", s)
	}
	if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("%q has no port between 1 and 65535", s)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.String(), port, nil
	}
	if err := checkHost(host); err != nil {
		return "", 0, err
	}
	return host, port, nil
}

var errNoHost = errors.New("is empty")

func checkHost(s string) error {
	if s == "" {
		return errNoHost
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' &&
			r != '.' && r != '_' {
			return fmt.Errorf("%q is neither an address nor a host name", s)
		}
	}
	if len(s) > 253 {
		return fmt.Errorf("a host name of %d characters is too long", len(s))
	}
	return nil
}
