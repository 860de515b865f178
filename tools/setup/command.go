package setup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"clustermaster/lb"
)

// exitUsage is EX_USAGE of sysexits.h.
const exitUsage = 64

const usage = `Usage: clustermaster init [--peers A,B,C] [options]

Writes the first configuration of a new cluster: a file for each master, and one for HAProxy.
Without --peers it prints a new secret and the options that make a master one of a cluster.

Options:
%s
Examples:
  clustermaster init --peers 10.0.0.1,10.0.0.2,10.0.0.3 --balancer 10.0.0.100
  clustermaster init --peers m1=salt1.example.com,m2=salt2.example.com,m3=salt3.example.com --dir new
`

// Command is clustermaster init.
func Command(args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("init", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	peers := fs.String("peers", "",
		"addresses or host names of all masters, with commas; ID=ADDRESS gives one its id")
	id := fs.String("cluster-id", "salt", "the cluster's name (option cluster_id)")
	dir := fs.String("dir", "clustermaster-init", "folder to write to; it must not be there yet")
	balancer := fs.String("balancer", "*", "address on which HAProxy takes minions")
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, usage, fs.FlagUsages())
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "clustermaster init: %v\n", err)
		return exitUsage
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "clustermaster init: it takes no argument %q\n", fs.Arg(0))
		return exitUsage
	case !plainName.MatchString(*id):
		fmt.Fprintf(stderr, "clustermaster init: --cluster-id: %q can't be a cluster's name; use letters, digits, dots and dashes\n", *id)
		return exitUsage
	}
	secret, err := NewSecret()
	if err != nil {
		fmt.Fprintln(stderr, "clustermaster init:", err)
		return 1
	}
	if *peers == "" {
		fmt.Fprintf(stdout, lines, *id, secret)
		return 0
	}
	c := Cluster{ID: *id, Secret: secret, Balancer: strings.Trim(*balancer, "[]")}
	if c.Masters, err = ParseMasters(*peers); err == nil {
		err = c.Write(*dir)
	}
	if err != nil {
		fmt.Fprintln(stderr, "clustermaster init:", err)
		return 1
	}
	c.next(stdout, *dir)
	return 0
}

// lines are the options alone, for masters that are already configured.
const lines = `# The same on all masters: a file of /etc/salt/master.d with mode 0600, out of sight of others. With the option user:
# mode 0640, and the group of that user.
cluster_id: %s
cluster_secret: %s
cluster_isolated_filesystem: True
# The other masters' addresses; this one's is its interface.
cluster_peers:
  - 10.0.0.2
  - 10.0.0.3
`

func (c Cluster) next(w io.Writer, dir string) {
	fmt.Fprintf(w,
		"Written to %s: a configuration for each of %d masters, and haproxy.cfg. Next:\n\n", dir,
		len(c.Masters))
	for _, m := range c.Masters {
		fmt.Fprintf(w, "  scp -pr %s %s root@%s:/etc/salt/\n", filepath.Join(dir, m.Name, "master"),
			filepath.Join(dir, m.Name, "master.d"), lb.Bracketed(m.Addr))
	}
	balancer := c.single("BALANCER")
	fmt.Fprintf(w, "  scp %s root@%s:/etc/haproxy/haproxy.cfg\n", filepath.Join(dir, "haproxy.cfg"),
		lb.Bracketed(balancer))
	fmt.Fprintf(w, "\nA box that has a master already keeps its /etc/salt/master: copy only master.d to it, see that its interface\n"+
		"(or cluster_advertise) is the address above, and restart it:\n\n  systemctl restart --no-block salt-master\n")
	if strings.Contains(balancer, ":") {
		balancer = quoted(balancer)
	}
	fmt.Fprintf(w, "\nOpen these TCP ports:\n\n  masters: 4505, 4506 and 4521 to the balancer, 4520 to the other masters\n"+
		"  balancer: 4505 and 4506 to minions\n")
	fmt.Fprintf(w, "\nOn each master; a start is complete only when all masters run, so don't wait for it:\n\n"+
		"  clustermaster config check\n  systemctl enable --now --no-block salt-master\n")
	fmt.Fprintf(w, "\nOn the balancer:\n\n  haproxy -c -f /etc/haproxy/haproxy.cfg\n"+
		"  systemctl restart haproxy\n")
	fmt.Fprintf(w, "\nOn each minion, in /etc/salt/minion:\n\n  master: %s\n", balancer)
	fmt.Fprintf(w,
		"\nOn any master, once all are up:\n\n  salt-run cluster.members\n  salt-key -L\n"+
			"  salt-key -A\n")
	switch n := len(c.Masters); {
	case n == 1:
		fmt.Fprintf(w, "\nOne master alone starts its cluster with `salt-master --found`, once.\n")
	case n == 2:
		fmt.Fprintf(w,
			"\nTwo masters: the death of either stops changes of keys and members. Three are recommended.\n")
	}
	if _, err := os.Stat("/etc/salt/pki/master/minions"); err == nil {
		fmt.Fprintf(w,
			"\nThis box has keys of a Salt master: the cluster takes them over from it, whichever master starts first.\n")
	}
}
