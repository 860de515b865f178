package daemon

import (
	"log/slog"
	"syscall"
)

// ownFiles is the maximum number of files that a master has open beside minions' connections: its
// databases, ports, peers, files that it serves.
const ownFiles = 1000

// MinionConnections is how many connections of minions a process may have whose open files have
// this limit: all but ownFiles, and half of them at least.
func MinionConnections(limit uint64) int {
	limit = min(limit, 1<<30) // there may be none
	return int(limit - min(ownFiles, limit/2))
}

// WarnOpenFiles logs a warning if this many minions may need more open files than this process may
// have: each keeps two connections. The Go runtime has raised the soft limit to the hard one, as
// Salt's master would.
func WarnOpenFiles(minions int, limit uint64, log *slog.Logger) {
	if need := uint64(2*minions + ownFiles); need > limit {
		log.Warn("the limit of open files is too low for the accepted minions, further connections will be closed: raise it (LimitNOFILE of the service, ulimit -Hn)",
			"n", limit, "minions", minions, "need", need)
	}
}

// OpenFilesLimit returns how many files this process may have open.
func OpenFilesLimit() (uint64, error) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return l.Cur, err
}
