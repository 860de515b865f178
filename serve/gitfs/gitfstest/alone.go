// Package gitfstest makes the replicated state of a lone master, for tests.
package gitfstest

import (
	"context"
	"strings"
	"sync"
	"time"

	"clustermaster/cluster/fsm"
)

// Alone is a cluster of one master: the real replicated state, without Raft.
type Alone struct {
	mu    sync.Mutex // guards index
	index uint64
	state *fsm.State
}

// New is a founded cluster.
func New() *Alone {
	a := &Alone{state: fsm.New(), index: 1}
	a.state.Apply(1, &fsm.Found{
		Cluster: fsm.Cluster{UUID: strings.Repeat("a", 32), ClusterKey: "PEM", Partitions: 256},
		Member: fsm.Member{Node: "m1/1", ID: "m1", Incarnation: "1", Addr: "127.0.0.1:4520",
			SPKI: [32]byte{1}, Version: "test"},
		AES: "aes", Session: []byte("session"), At: time.Unix(1, 0),
	})
	return a
}

// Propose applies a command at once.
func (a *Alone) Propose(_ context.Context, c fsm.Command) (fsm.Result, uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index++
	r, _ := a.state.Apply(a.index, c)
	return r, a.index, nil
}

// State is the replicated state.
func (a *Alone) State() *fsm.State { return a.state }

// ReadIndex has nothing to wait for.
func (*Alone) ReadIndex(context.Context) error { return nil }

// IsLeader is true.
func (*Alone) IsLeader() bool { return true }

// Leader is this master.
func (*Alone) Leader() (node string, ok bool) { return "m1/1", true }

// Voters is this master.
func (*Alone) Voters() []string { return []string{"m1/1"} }

// Now is the clock.
func (*Alone) Now() time.Time { return time.Now() }
