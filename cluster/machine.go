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

// machine is raft's view of the state. It applies entries, tells waiters how far it is, and passes
// changes to followers.
type machine struct {
	state *fsm.State
	feed  *feed

	applied atomic.Uint64 // index of the last command or change of voters applied
	// voters after the last change of them since the start or the last snapshot
	servers atomic.Pointer[[]raft.Server]

	mu     sync.Mutex // guards all below; never held across a call out of this type
	moved  chan struct{}
	quiet  bool      // the last command was a Noop
	lastAt time.Time // when the last command was applied, here
	broken error     // why this master can't apply an entry; it applies nothing after it
	onFail func(error)

	// is called when a snapshot is installed; nil while the log is replayed
	installed func() error

	// receives checkpoints; nil while the log is replayed; must not block
	onCheck func(index uint64, state *fsm.Snapshot)
}

var _ raft.ConfigurationStore = (*machine)(nil)

func newMachine(state *fsm.State, feed *feed, onFail func(error)) *machine {
	return &machine{state: state, feed: feed, moved: make(chan struct{}), onFail: onFail}
}

// outcome is what Apply returns to the proposer through raft.
type outcome struct {
	result fsm.Result
	err    error
}

// Apply implements raft.FSM. An entry that does not decode, or has a newer version, stops the node,
// because every later entry would be applied to a wrong state.
func (m *machine) Apply(entry *raft.Log) any {
	if err := m.failure(); err != nil {
		return outcome{err: err}
	}
	if entry.Index <= m.applied.Load() {
		return outcome{} // already applied at start, from the log on disk
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

// StoreConfiguration implements raft.ConfigurationStore. Raft calls it in the order of the log,
// once a change is committed. Raft's snapshots don't count the change as applied; the Noop that
// follows it does that for a node that begins with such a snapshot.
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

// restless reports whether the last command is not a Noop and was applied at least d ago.
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
	if err == nil && m.installed != nil {
		err = m.installed()
	}
	if err != nil {
		m.fail(err)
	}
	return err
}

// restore replaces the state by a snapshot's and closes r. On error nothing changes.
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

// feedBound is how many changes may wait for the followers. Beyond it one "compare everything"
// replaces them, which followers also do after a snapshot, so the state machine never waits.
const feedBound = 4096

// feed carries changes from the state machine to its followers, in order.
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
