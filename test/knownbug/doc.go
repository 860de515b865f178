// Package knownbug names bugs, nearly all of them former ones, so that the simulator can show that
// it would find them again. The build tag knownbugs puts one of them back. Without it the functions
// here are constants, and the program has none of the bugs.
package knownbug

// Bug is the name of a bug.
type Bug string

// The bugs. Each is a condition at the place of its fix.
const (
	// The ring store answers before its records are on stable storage.
	RingNoSync Bug = "ring-no-sync"
	// Raft's log answers before entries, terms and votes are on stable storage, as bbolt's NoSync.
	LogNoSync Bug = "log-no-sync"
	// A master that was away for longer than deletions are remembered compares copies like any
	// other.
	TombstonesMerged Bug = "tombstones-merged"
	// A master whose machine was put back to a snapshot from before forgotten deletions compares
	// copies like any other.
	OldDiskMerged Bug = "old-disk-merged"
	// A leader answers reads without asking a majority whether it still leads.
	StaleReads Bug = "stale-reads"
	// An order that is proposed again takes effect twice, and its second result is returned.
	OrdersRepeat Bug = "orders-repeat"
	// Some of cluster_peers found a cluster while the rest is silent.
	PartFounds Bug = "part-founds"
	// Raft's requests are pipelined: a follower that refuses entries gets no more of them.
	Pipelined Bug = "pipelined"
	// A write is acknowledged by one owner although more are in contact.
	WriteOne Bug = "write-one"
	// Disks accept writes for rings that have ended.
	NoFence Bug = "no-fence"
	// A start looks for the log after the last command, not after the snapshot.
	ReplayGap Bug = "replay-gap"
	// A leader hands over by Raft's own function, which may make it refuse commands for ever.
	RaftTransfers Bug = "raft-transfers"
	// A leader whose disk hangs goes on with its heartbeats, and stays in office.
	HangingLeads Bug = "hanging-leads"
	// Heartbeats are so small that they arrive where large packets get lost.
	SmallBeats Bug = "small-beats"
	// Of two processes with one node key, both are taken for the member.
	ClonesServe Bug = "clones-serve"

	// These two were made up, for checks that no former bug needs.

	// A disk takes a deletion from its writer only, until the deletion's time is over.
	LateDeletions Bug = "late-deletions"
	// A master counts all others as out of reach for some seconds when the leader has changed.
	AloneAnew Bug = "alone-anew"
)

// All lists the bugs.
var All = []Bug{RingNoSync, LogNoSync, TombstonesMerged, OldDiskMerged, StaleReads, OrdersRepeat,
	PartFounds, Pipelined, WriteOne, NoFence, ReplayGap, RaftTransfers, HangingLeads, SmallBeats,
	ClonesServe, LateDeletions, AloneAnew}
