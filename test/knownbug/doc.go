// Package knownbug names bugs that were found once, so that the simulator can show that it would
// find them again. The build tag knownbugs puts one of them back; without it the functions here are
// constants, and no bug is in the program.
package knownbug

// Bug is the name of a bug.
type Bug string

// The bugs. Each is one condition at the place that was mended.
const (
	// The ring store answers before its records are on stable storage.
	RingNoSync Bug = "ring-no-sync"
	// Raft's log answers before entries, terms and votes are on stable storage, as bbolt's NoSync.
	LogNoSync Bug = "log-no-sync"
	// A master that was away for longer than deletions are remembered compares copies as any other.
	TombstonesMerged Bug = "tombstones-merged"
	// A leader answers reads without asking a majority whether it still leads.
	StaleReads Bug = "stale-reads"
	// An order that is proposed again has a second effect, and its second result is told.
	OrdersRepeat Bug = "orders-repeat"
	// A part of cluster_peers founds when the rest is silent.
	PartFounds Bug = "part-founds"
	// Raft's requests are pipelined: a follower that refuses entries gets none any more.
	Pipelined Bug = "pipelined"
	// A write is acknowledged by one owner, though more are in contact.
	WriteOne Bug = "write-one"
	// Disks take writes for rings that are over.
	NoFence Bug = "no-fence"
	// A start looks for the log after the last command, not after the snapshot.
	ReplayGap Bug = "replay-gap"
)

// All lists the bugs.
var All = []Bug{RingNoSync, LogNoSync, TombstonesMerged, StaleReads, OrdersRepeat, PartFounds, Pipelined,
	WriteOne, NoFence, ReplayGap}
