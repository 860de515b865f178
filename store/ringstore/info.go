package ringstore

import (
	"slices"
	"time"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/ringpb"
)

// Info is the state of the ring as this master knows it, for cluster.ring_info. Figures of other
// masters are at most a second or so old.
type Info struct {
	Epoch       uint64 // newest ring known; 0: none yet
	Base        uint64 // ring that reads use; below Epoch while records move
	Partitions  int
	Replicas    int
	WriteQuorum int
	ReadQuorum  int
	Vnodes      int // points on the circle for each member
	Nodes       []NodeInfo

	Pending       int       // partitions not yet filled, over all masters that answered
	TransferBytes uint64    // fetched for the pending ring, over all masters that answered
	TransferBegun time.Time // on this master; zero when nothing is pending
	HintsPending  uint64    // copies owed to absent owners, over all masters that answered
	// of these, those for records acknowledged by fewer owners than the write quorum
	UnderReplicated uint64
}

// NodeInfo is one member of the newest ring.
type NodeInfo struct {
	Node     string
	Share    float64 // of all copies, 0 to 1
	Primary  float64 // of all partitions, 0 to 1
	Alive    bool
	Answered bool   // the figures below are known
	Records  uint64 // on its disk
	Bytes    uint64 // of keys and values
	Hints    uint64 // copies that it holds for absent owners
	Owed     int    // copies that this master holds for it
	Pending  int    // its partitions that are not yet filled
	Fetched  uint64 // bytes, for those and the filled ones
	// bytes, including Fetched, estimated from the filled partitions; 0: none is filled yet
	Expected  uint64
	ETA       time.Duration // until none is pending, estimated alike; negative: none is filled yet
	Epoch     uint64        // newest ring that it has
	Seen      time.Time
	Refilling bool   // it is fetching its records from the others, after damage or a long absence
	Refuses   string // why it takes no records now; "": it takes them
}

// Info returns the present figures. It asks no other master.
func (s *Store) Info() Info {
	v := s.view.Load()
	if v == nil {
		return Info{Vnodes: hashring.Vnodes}
	}
	ring := v.Latest()
	info := Info{
		Epoch: ring.Epoch(), Base: v.Base.Epoch(), Partitions: ring.Partitions(),
		Replicas:    ring.Replicas(),
		WriteQuorum: ring.WriteQuorum(), ReadQuorum: ring.ReadQuorum(), Vnodes: hashring.Vnodes,
	}
	owed := s.disk.Owed()
	for _, node := range v.Members() {
		n := NodeInfo{Node: node, Share: ring.Share(node), Primary: ring.PrimaryShare(node),
			Alive: s.alive(node), Owed: owed[node]}
		status, _, at := s.heard.statusOf(node)
		if node == s.self {
			status, at = s.status(), s.opts.Now()
		}
		if status != nil {
			n.Answered, n.Seen = true, at
			n.Refuses, n.Refilling = status.Refuses, status.Refilling
			n.Records, n.Bytes, n.Hints, n.Epoch, n.Pending = status.Records, status.Bytes,
				status.Owed, status.Epoch, int(status.Pending)
			if n.Pending > 0 {
				n.Fetched = status.Moved
				n.Expected, n.ETA = outlook(status)
			}
			if n.Alive {
				info.Pending += n.Pending
				info.TransferBytes += status.Moved
				info.HintsPending += status.Owed
				info.UnderReplicated += status.Under
			}
		}
		if ring.Has(node) || n.Hints > 0 || n.Pending > 0 {
			info.Nodes = append(info.Nodes, n)
		}
	}
	slices.SortFunc(info.Nodes, func(a, b NodeInfo) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	if s.syncing.left() > 0 {
		s.syncing.mu.Lock()
		info.TransferBegun = s.syncing.begun
		s.syncing.mu.Unlock()
	}
	return info
}

// Copies returns how many masters keep each record; 0 before there is a ring.
func (s *Store) Copies() int {
	if v := s.view.Load(); v != nil {
		return v.Latest().Replicas()
	}
	return 0
}

// outlook estimates the bytes left to fetch from those fetched for the filled partitions.
func outlook(r *ringpb.StatusReply) (expected uint64, eta time.Duration) {
	done := float64(r.Changing) - float64(r.Pending)
	if done <= 0 {
		return 0, -1
	}
	took := time.Duration(r.Filling) * time.Microsecond
	return max(r.Moved, uint64(float64(r.Moved)*float64(r.Changing)/done)),
		time.Duration(float64(took) * float64(r.Pending) / done)
}

// Settled reports whether, as far as this master knows, no change of the ring is going on.
func (s *Store) Settled() bool {
	v := s.view.Load()
	return v != nil && v.Settled() && v.Base == v.Latest()
}
