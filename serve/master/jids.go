package master

import (
	"fmt"
	"os"
	"sync"
	"time"

	"clustermaster/wire"

	"github.com/cespare/xxhash/v2"
)

// jids makes all job ids that masters choose: those of jobs, of runner calls, of runs of the
// schedule, of returns without a job. A jid is a time in microseconds, so two of one moment are set
// apart.
type jids struct {
	suffix string // of every jid: unique_jid; "" without

	mu   sync.Mutex // guards last
	last time.Time
}

// NewJID makes a job id that this master never made before, nor with unique_jid any other. Each is
// later than those before it, whatever the clock does. It is safe for concurrent use.
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

// uniqueSuffix is what unique_jid appends: as in Salt _ and a number. Salt's number is the process
// id, which masters on several machines may share, so ours ends in ten digits of the node's name.
// It is one number, of one length everywhere, since a minion that queues states compares job ids as
// Python reads them into integers.
func uniqueSuffix(node string) string {
	const pids, nodes = 1e7, 1e10 // the kernel gives process ids of seven digits
	return fmt.Sprintf("_%07d%010d", os.Getpid()%pids, xxhash.Sum64String(node)%nodes)
}
