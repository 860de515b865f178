package simulation

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"time"

	"clustermaster/cluster/fsm"
)

// Agreement is the cost of the replicated state for a number of minions.
type Agreement struct {
	Minions int
	// EntryBytes is the mean length of a log entry that stores a new key.
	EntryBytes float64
	// NewKeys is the number of such entries that one processor decodes and applies in a second: a
	// master can't accept more, however fast disk and network are.
	NewKeys float64
	// Known is the number of look-ups of a known key in a second; those write nothing.
	Known float64
	// Accept is the time of one command that accepts all of them, AcceptBytes its length.
	Accept      time.Duration
	AcceptBytes int
	// Heap is the size of the state in memory, in bytes, SnapshotBytes its size on disk; the times
	// are those of writing and reading the snapshot.
	Heap           uint64
	SnapshotBytes  int
	Write, Restore time.Duration
	// Refused counts refused commands; it must be 0.
	Refused int
}

// at is the time in all commands: the state has no clock.
var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// publicKey makes a text as long as a minion's public key.
func publicKey(i int) string {
	return "-----BEGIN PUBLIC KEY-----\n" + strings.Repeat(fmt.Sprintf("%08x", i), 49) +
		"\n-----END PUBLIC KEY-----"
}

// Agree founds a cluster of some masters, lets minions offer their keys, accepts them and takes a
// snapshot.
func Agree(masters, minions int) (Agreement, error) {
	a := Agreement{Minions: minions}
	before := heap()
	state := fsm.New()
	index := uint64(0)
	apply := func(c fsm.Command) (fsm.Result, int, error) {
		entry, err := fsm.Encode(c)
		if err != nil {
			return fsm.Result{}, 0, err
		}
		decoded, err := fsm.Decode(entry)
		if err != nil {
			return fsm.Result{}, 0, err
		}
		index++
		r, _ := state.Apply(index, decoded)
		if r.Refused != "" {
			a.Refused++
		}
		return r, len(entry), nil
	}
	if err := found(masters, apply); err != nil {
		return a, err
	}
	ids := make([]string, minions)
	start, bytes := time.Now(), 0
	for i := range ids {
		ids[i] = minionID(i)
		r, n, err := apply(&fsm.OfferKey{ID: ids[i], Pub: publicKey(i), Source: "10.0.0.1", At: at})
		if err != nil {
			return a, err
		}
		if r.Act != "pend" {
			a.Refused++
		}
		bytes += n
	}
	a.NewKeys = float64(minions) / time.Since(start).Seconds()
	a.EntryBytes = float64(bytes) / float64(minions)

	start = time.Now()
	r, n, err := apply(&fsm.ChangeKeys{Action: fsm.AcceptKeys, IDs: ids,
		From: fsm.StateSet(fsm.KeyPending), At: at})
	if err != nil {
		return a, err
	}
	a.Accept, a.AcceptBytes = time.Since(start), n
	if len(r.Keys) != minions {
		return a, fmt.Errorf("accept %d keys: %d changed", minions, len(r.Keys))
	}
	r.Keys = nil
	start = time.Now()
	for i := range ids {
		if k, ok := state.Key(ids[i]); !ok || k.State != fsm.KeyAccepted {
			return a, fmt.Errorf("key of %s is %v", ids[i], k.State)
		}
	}
	a.Known = float64(minions) / time.Since(start).Seconds()
	a.Heap = heap() - before
	runtime.KeepAlive(ids)
	return a, a.snapshot(state)
}

// found makes the cluster and its members.
func found(masters int, apply func(fsm.Command) (fsm.Result, int, error)) error {
	var nodes []string
	for i, node := range Members(masters) {
		id, incarnation, _ := strings.Cut(node, "/")
		m := fsm.Member{Node: node, ID: id, Incarnation: incarnation,
			Addr: fmt.Sprintf("10.1.%d.%d:4520", i/250, i%250+1), SPKI: [32]byte{byte(i),
				byte(i >> 8), 1}}
		nodes = append(nodes, node)
		var err error
		if i == 0 {
			_, _, err = apply(&fsm.Found{
				Cluster: fsm.Cluster{UUID: strings.Repeat("0", 32), ClusterID: "simulated",
					ClusterKey: "key", JoinKey: make([]byte, 32), Partitions: 256},
				Member: m, AES: strings.Repeat("A", 76), Session: make([]byte, 32), At: at,
			})
		} else if _, _, err = apply(&fsm.PutMember{Member: m, At: at}); err == nil {
			_, _, err = apply(&fsm.SetRing{Epoch: uint64(i) + 1, Members: nodes, At: at})
		}
		if err != nil {
			return fmt.Errorf("found a cluster of %d: %w", masters, err)
		}
	}
	return nil
}

func (a *Agreement) snapshot(state *fsm.State) error {
	var b bytes.Buffer
	start := time.Now()
	if _, err := state.Snapshot().WriteTo(&b); err != nil {
		return err
	}
	a.Write, a.SnapshotBytes = time.Since(start), b.Len()
	other := fsm.New()
	start = time.Now()
	if err := other.Restore(&b); err != nil {
		return err
	}
	a.Restore = time.Since(start)
	if k, ok := other.Key(minionID(a.Minions - 1)); !ok || k.State != fsm.KeyAccepted {
		return fmt.Errorf("restored state lacks the key of %s", minionID(a.Minions-1))
	}
	return nil
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
