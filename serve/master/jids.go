package master

import (
	"fmt"
	"os"
	"sync"
	"time"

	"clustermaster/wire"

	"github.com/cespare/xxhash/v2"
)

// jids makes all job ids that masters choose: for jobs, runner calls, runs of the schedule and
// returns without a job. A jid is a time in microseconds, so jids of the same moment must be made
// different.
type jids struct {
	suffix string // of every jid, with unique_jid; else ""

	mu   sync.Mutex // guards last
	last time.Time
}

// NewJID makes a job id that this master never made before, and with unique_jid no other master
// either. Each is later than the ones before it, whatever the clock does. It is safe for concurrent
// use.
func (m *Master) NewJID() string { return m.jids.next(m.now()) }

func (j *jids) next(now time.Time) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	now = now.Truncate(time.Microsecond)
	if !now.After(j.last) {
		now = j.last.Add(time.Microsecond)
	}
	j.last = now
	return wire.JID(now) + j.suffix
}

// uniqueSuffix returns what unique_jid appends: as in Salt, _ and a number. Salt's number is the
// process id, which masters on several machines may share, so this one ends in ten digits of the
// node's name. It is one number of the same length on all masters, because a minion that queues
// states compares job ids after Python has converted them to integers.
func uniqueSuffix(node string) string {
	const pids, nodes = 1e7, 1e10 // the kernel gives process ids of seven digits
	return fmt.Sprintf("_%07d%010d", os.Getpid()%pids, xxhash.Sum64String(node)%nodes)
}
