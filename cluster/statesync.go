package cluster

import (
	"slices"
	"time"

	"clustermaster/cluster/clusterpb"
)

// SyncState reports how far a member is with file_roots and pillar_roots, from Config.StateSync.
type SyncState struct {
	// still copying what a joiner needs before it gets a vote and a share of the data
	Joining    bool
	Bytes      int64         // fetched so far by the present copy
	BytesTotal int64         // 0: not known yet, or no copy is under way
	Rate       int64         // bytes per second
	ETA        time.Duration // until all bytes have arrived; 0: unknown
	FileHead   uint64        // number of the installed head of file_roots; 0: none
	PillarHead uint64        // the same of pillar_roots
	Trouble    string        // why it is behind; "": nothing is wrong
}

// Percent returns how much of the present copy has arrived.
func (s SyncState) Percent() float64 {
	if s.BytesTotal <= 0 {
		return 0
	}
	return min(100, 100*float64(s.Bytes)/float64(s.BytesTotal))
}

// InRing reports whether this master holds a share of the data: it founded the cluster, or its join
// is complete.
func (n *Node) InRing() bool { return slices.Contains(n.state.Ring().Members, n.self.Node) }

// syncState is this master's own.
func (n *Node) syncState() SyncState {
	if n.cfg.StateSync == nil {
		return SyncState{}
	}
	return n.cfg.StateSync()
}

func toSyncStatus(s SyncState) *clusterpb.SyncStatus {
	return &clusterpb.SyncStatus{
		Joining: s.Joining, Bytes: s.Bytes, BytesTotal: s.BytesTotal, Rate: s.Rate,
		EtaMs:    s.ETA.Milliseconds(),
		FileHead: s.FileHead, PillarHead: s.PillarHead, Trouble: s.Trouble,
	}
}

func fromSyncStatus(p *clusterpb.SyncStatus) SyncState {
	return SyncState{
		Joining: p.GetJoining(), Bytes: p.GetBytes(), BytesTotal: p.GetBytesTotal(),
		Rate: p.GetRate(),
		ETA: time.Duration(min(max(0, p.GetEtaMs()),
			int64(1000*time.Hour/time.Millisecond))) * time.Millisecond,
		FileHead: p.GetFileHead(), PillarHead: p.GetPillarHead(), Trouble: p.GetTrouble(),
	}
}
