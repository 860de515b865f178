package cluster

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/cluster/fsm"
)

// machine is raft's view of the state: it applies entries, tells waiters how far it is, and feeds
// followers of changes.
type machine struct {
	state *fsm.State
	feed  *feed

	applied atomic.Uint64 // index of the last command or change of voters applied
	// of the last change of voters applied since the start or the last snapshot
	servers atomic.Pointer[[]raft.Server]

	mu     sync.Mutex // guards all below; never held across a call out of this type
	moved  chan struct{}
	quiet  bool      // the last command was a Noop
	lastAt time.Time // when the last command was applied, here
	broken error     // an entry that this master can't apply: nothing after it is applied
	onFail func(error)

	// told of checkpoints; nil while the log is replayed. Must not block
	onCheck func(index uint64, state *fsm.Snapshot)
}

var _ raft.ConfigurationStore = (*machine)(nil)

func newMachine(state *fsm.State, feed *feed, onFail func(error)) *machine {
	return &machine{state: state, feed: feed, moved: make(chan struct{}), onFail: onFail}
}

// outcome is what Apply hands to the proposer through raft.
type outcome struct {
	result fsm.Result
	err    error
}

// Apply implements raft.FSM. An entry that does not decode, or is of a newer version, stops the
// node: what comes after it can't be right here.
func (m *machine) Apply(entry *raft.Log) any {
	if err := m.failure(); err != nil {
		return outcome{err: err}
	}
	if entry.Index <= m.applied.Load() {
		return outcome{} // applied at start already, from the log on disk
	}
	cmd, err := fsm.Decode(entry.Data)
	if err != nil {
		err = fmt.Errorf("apply entry %d: %w", entry.Index, err)
		m.fail(err)
		return outcome{err: err}
	}
	result, change := m.state.Apply(entry.Index, cmd)
	m.advance(entry.Index, cmd.Op() == fsm.OpNoop)
	if noop, ok := cmd.(*fsm.Noop); ok && noop.Check && m.onCheck != nil {
		m.onCheck(entry.Index, m.state.Snapshot())
	}
	if result.Changed {
		m.feed.push(entry.Index, change)
	}
	return outcome{result: result}
}

// StoreConfiguration implements raft.ConfigurationStore: it is called in the order of the log, once
// a change is committed. Snapshots don't count it among what is applied; the Noop that follows it
// does that for whoever begins with one.
func (m *machine) StoreConfiguration(index uint64, c raft.Configuration) {
	if index <= m.applied.Load() {
		return // at start: raft's own configuration is at least as new
	}
	m.servers.Store(&c.Servers)
	m.advance(index, false)
}

// advance tells waiters that the entry at index is applied.
func (m *machine) advance(index uint64, quiet bool) {
	m.applied.Store(index)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quiet, m.lastAt = quiet, time.Now()
	close(m.moved)
	m.moved = make(chan struct{})
}

func (m *machine) fail(err error) {
	m.mu.Lock()
	first := m.broken == nil
	if first {
		m.broken = err
	}
	m.mu.Unlock()
	if first && m.onFail != nil {
		m.onFail(err)
	}
}

func (m *machine) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken
}

// wait returns when the command at index has been applied here.
func (m *machine) wait(ctx context.Context, index uint64) error {
	for {
		m.mu.Lock()
		moved := m.moved
		m.mu.Unlock()
		if m.applied.Load() >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("wait for index %d, at %d: %w", index, m.applied.Load(),
				context.Cause(ctx))
		}
	}
}

// restless says whether the last command is a real one that has stood for at least d.
func (m *machine) restless(d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied.Load() > 0 && !m.quiet && time.Since(m.lastAt) >= d
}

// Snapshot implements raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if err := m.failure(); err != nil {
		return nil, err
	}
	return persister{m.state.Snapshot()}, nil
}

// Restore implements raft.FSM.
func (m *machine) Restore(r io.ReadCloser) error {
	err := m.restore(r)
	if err != nil {
		m.fail(err)
	}
	return err
}

// restore replaces the state by a snapshot's and closes r; on error nothing changes.
func (m *machine) restore(r io.ReadCloser) error {
	defer r.Close()
	if err := m.state.Restore(r); err != nil {
		return err
	}
	index := m.state.AppliedIndex()
	m.servers.Store(nil)
	m.applied.Store(index)
	m.mu.Lock()
	close(m.moved)
	m.moved = make(chan struct{})
	m.mu.Unlock()
	m.feed.push(index, fsm.Change{Restored: true})
	return nil
}

type persister struct{ snapshot *fsm.Snapshot }

// Persist implements raft.FSMSnapshot.
func (p persister) Persist(sink raft.SnapshotSink) error {
	if _, err := p.snapshot.WriteTo(sink); err != nil {
		_ = sink.Cancel() // the error of the write says more
		return err
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (persister) Release() {}

// feedBound is how many changes may wait for their followers. Beyond it they are given up for one
// "compare everything", which is what a follower does after a snapshot anyhow: the state machine
// never waits.
const feedBound = 4096

// feed carries changes from the state machine to those who follow it, in order.
type feed struct {
	mu    sync.Mutex // guards queue
	queue []fed
	ready chan struct{}
}

type fed struct {
	index  uint64
	change fsm.Change
}

func newFeed() *feed { return &feed{ready: make(chan struct{}, 1)} }

func (f *feed) push(index uint64, c fsm.Change) {
	f.mu.Lock()
	if len(f.queue) >= feedBound {
		f.queue = append(f.queue[:0:0], fed{index, fsm.Change{Restored: true}})
	} else {
		f.queue = append(f.queue, fed{index, c})
	}
	f.mu.Unlock()
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

func (f *feed) take() []fed {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queue
	f.queue = nil
	return q
}
