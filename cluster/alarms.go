package cluster

import "time"

// What a member tells of itself is bounded before it is kept.
const (
	maxAlarms    = 16
	maxAlarmText = 500 // bytes
	maxDigest    = 64  // bytes
)

// Alarms lists what the operator is to look into on this master, one line each.
func (n *Node) Alarms() []string {
	if n.cfg.Alarms == nil {
		return nil
	}
	return boundAlarms(n.cfg.Alarms())
}

func boundAlarms(all []string) []string {
	out := make([]string, 0, min(len(all), maxAlarms))
	for _, a := range all[:min(len(all), maxAlarms)] {
		out = append(out, a[:min(len(a), maxAlarmText)])
	}
	return out
}

// extensions is the digest of this master's extension_modules; "" while there is none.
func (n *Node) extensions() string {
	if n.cfg.Extensions == nil {
		return ""
	}
	return boundDigest(n.cfg.Extensions())
}

func boundDigest(s string) string { return s[:min(len(s), maxDigest)] }

// LastBackup is when the last good scheduled backup was made, on this master or by one that told of
// it; zero: none that this master knows of.
func (n *Node) LastBackup() time.Time {
	var last time.Time
	if n.cfg.LastBackup != nil {
		last = n.cfg.LastBackup()
	}
	future := n.Now().Add(n.cfg.ClockLimit)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.contacts {
		if c.backup.After(last) && c.backup.Before(future) {
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
