package master

import (
	"sync"
	"time"

	"clustermaster/wire"
)

// jids makes job ids that this master never made before: a jid is a time in microseconds, so two of one moment are set apart.
type jids struct {
	mu   sync.Mutex
	last time.Time
}

// NewJID makes a job id for a job that is published later. It is safe for concurrent use.
func (m *Master) NewJID() string { return m.jids.next(m.now()) }

func (j *jids) next(now time.Time) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	now = now.Truncate(time.Microsecond)
	if !now.After(j.last) {
		now = j.last.Add(time.Microsecond)
	}
	j.last = now
	return wire.JID(now)
}
