package fsm

import "time"

// OpAdoptCluster is the number of AdoptCluster in the log.
const OpAdoptCluster Op = 22

// AdoptCluster makes a stand-alone master the first member of a cluster: it sets the cluster's name
// and join key, and the address of the master's record. Everything else stays: uuid, RSA key,
// minion keys, secrets and ring.
type AdoptCluster struct {
	ClusterID string    `msgpack:"cluster_id"`
	JoinKey   []byte    `msgpack:"join_key"`
	Member    Member    `msgpack:"member"` // the only member, as it describes itself now
	At        time.Time `msgpack:"at"`
}

// Op implements Command.
func (*AdoptCluster) Op() Op { return OpAdoptCluster }

func (c *AdoptCluster) apply(s *State, index uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if s.cluster.ClusterID != "" {
		if s.cluster.ClusterID == c.ClusterID {
			return Result{} // a repeat
		}
		return Result{Refused: RefusedFounded}
	}
	if c.ClusterID == "" || len(c.JoinKey) == 0 || !c.Member.valid() || c.Member.Addr == "" {
		return Result{Refused: RefusedInvalid}
	}
	if _, ok := s.members[c.Member.Node]; !ok || len(s.members) != 1 {
		return Result{Refused: RefusedNotMember}
	}
	s.cluster.ClusterID, s.cluster.JoinKey = c.ClusterID, c.JoinKey
	m := s.putMember(c.Member, c.At, index)
	return Result{Changed: true, change: Change{Added: []Member{*m}}}
}
