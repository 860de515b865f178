package config

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// Listener is a TCP address at which a master listens.
type Listener struct {
	Option string // that sets the port
	From   string // the option that sets the host
	Addr   string // host:port
	Minion bool   // Salt's master listens there too
}

// Listeners lists the ports of a master.
func (o *Options) Listeners() []Listener {
	list := []Listener{
		{"publish_port", "interface", o.ListenAddr(o.PublishPort), true},
		{"ret_port", "interface", o.ListenAddr(o.RetPort), true},
	}
	if o.ClusterID != "" {
		list = append(list,
			Listener{"cluster_pool_port", "interface", o.ListenAddr(o.ClusterPoolPort), false})
	}
	for _, l := range []struct{ option, set, addr string }{
		{"health_listen", o.HealthListen, o.ResolveHealthListen()},
		{"metrics_listen", o.MetricsListen, o.ResolveMetricsListen()},
	} {
		from := l.option
		if l.set == "" {
			from = "interface"
		}
		list = append(list, Listener{l.option, from, l.addr, false})
	}
	return list
}

// Fault says, for an operator, why nothing can listen there, and what to change.
func (l Listener) Fault(err error) (fact, remedy string) {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("%s: %s is taken by another program", l.Option, l.Addr),
			"stop the other program (ss -ltnp shows it), or set " + l.Option + " to another port"
	case errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("%s: %s can't be listened at: %v", l.Option, l.Addr, err),
			"set it to a port of 1024 or more, or let root start the master"
	}
	return fmt.Sprintf("%s: %s can't be listened at: %v", l.From, l.Addr, err),
		"set " + l.From + " to an address of this machine (ip address shows them)"
}

// overlaps reports whether two listeners can't both be opened.
func (l Listener) overlaps(other Listener) bool {
	host, port, err := net.SplitHostPort(l.Addr)
	otherHost, otherPort, otherErr := net.SplitHostPort(other.Addr)
	return err == nil && otherErr == nil && port == otherPort &&
		(host == otherHost || everyHost(host) || everyHost(otherHost))
}

// everyHost reports whether a listener at this host takes connections to all addresses.
func everyHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// checkListeners refuses two listeners at one address.
func (l *loader) checkListeners() {
	list := l.o.Listeners()
	for i, p := range list {
		for _, q := range list[:i] {
			if !p.overlaps(q) {
				continue
			}
			at := p.Addr
			if !strings.HasSuffix(p.Option, "_listen") {
				at = at[strings.LastIndex(at, ":")+1:]
			}
			l.refuse(p.Option, "is %s, the same as %s; give each its own port", at, q.Option)
			break
		}
	}
}

// Anywhere is the listener's host with a port that the kernel chooses: it can be tried beside a
// master that runs.
func (l Listener) Anywhere() string {
	host, _, err := net.SplitHostPort(l.Addr)
	if err != nil {
		return l.Addr
	}
	return net.JoinHostPort(host, "0")
}
