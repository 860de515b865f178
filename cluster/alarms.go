package cluster

import (
	"fmt"
	"strings"
	"time"
)

// Bounds on what a member reports about itself, applied before it is stored.
const (
	maxAlarms    = 16
	maxAlarmText = 500 // bytes
	maxDigest    = 64  // bytes
)

// Alarms lists what needs an operator's attention on this master, one line each.
func (n *Node) Alarms() []string {
	all := n.cutLines()
	if n.cfg.Alarms != nil {
		all = append(all, n.cfg.Alarms()...)
	}
	return boundAlarms(all)
}

// cutLines names the members that this one reaches only through another one.
func (n *Node) cutLines() []string {
	if n.port == nil {
		return nil
	}
	var out []string
	for _, m := range n.state.Members() {
		if through := n.port.Through(m.Node); through != "" {
			relay, _, _ := strings.Cut(through, "/")
			out = append(out, fmt.Sprintf("the line to %s is cut, and %s relays; check firewalls, routes and MTU between "+
				"%s and %s", m.ID, relay, n.self.ID, m.ID))
		}
	}
	return out
}

func boundAlarms(all []string) []string {
	out := make([]string, 0, min(len(all), maxAlarms))
	for _, a := range all[:min(len(all), maxAlarms)] {
		out = append(out, a[:min(len(a), maxAlarmText)])
	}
	return out
}

// extensions returns the digest of this master's extension_modules; "" without any.
func (n *Node) extensions() string {
	if n.cfg.Extensions == nil {
		return ""
	}
	return boundDigest(n.cfg.Extensions())
}

func boundDigest(s string) string { return s[:min(len(s), maxDigest)] }

// LastBackup returns the time of the last good scheduled backup on this master or on one that
// reported one; zero if this master knows of none.
func (n *Node) LastBackup() time.Time {
	var last time.Time
	until := n.Now().Add(n.cfg.ClockLimit) // a later time comes from a wrong clock
	if n.cfg.LastBackup != nil {
		last = n.cfg.LastBackup(until)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.contacts {
		if c.backup.After(last) && !c.backup.After(until) {
			last = c.backup
		}
	}
	return last
}

func toSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func fromSeconds(s int64) time.Time {
	if s <= 0 {
		return time.Time{}
	}
	return time.Unix(s, 0)
}
