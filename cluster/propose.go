package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/test/knownbug"
)

const (
	proposeTimeout = 10 * time.Second       // of Propose and ReadIndex when ctx has no earlier end
	retryPause     = 50 * time.Millisecond  // between attempts at finding the leader
	confirmTimeout = 5 * time.Second        // of ConfirmEverywhere
	confirmRetry   = 200 * time.Millisecond // between attempts at one member
	settleRetry    = 500 * time.Millisecond // between attempts of Settle
)

// errElsewhere says that this master is not the leader, or no longer: ask again.
var errElsewhere = errors.New("not the leader")

// errLost says that this master stopped being the leader while an entry was under way. A later
// leader may commit the entry.
var errLost = fmt.Errorf("%w any more", errElsewhere)

// Propose applies a command on the cluster, through the leader wherever it is, and returns once it
// is applied here too: its result and its index. A refusal by the state is in the Result, not an
// error.
//
// If a connection or the leader is lost on the way, it tries again until ctx ends (10 s at most).
// Audited changes, deletions of tokens and claims of scheduled runs still happen only once and give
// their first Result; repeating any other command does no harm. Without a quorum it gives up early
// with a *NoQuorumError. If the command may have reached the log by then, the error is an
// *UnknownOutcomeError as well.
func (n *Node) Propose(ctx context.Context, c fsm.Command) (fsm.Result, uint64, error) {
	audited, err := n.audited(ctx, c)
	if err != nil {
		return fsm.Result{}, 0, fmt.Errorf("propose: %w", err)
	}
	entry, token, err := encodeOnce(audited)
	if err != nil {
		return fsm.Result{}, 0, fmt.Errorf("propose: %w", err)
	}
	if why := fsm.TooLong(c); why != "" {
		return fsm.Result{}, 0, fmt.Errorf("propose %T: %w", c, &RefusedError{why})
	}
	begin := time.Now()
	if len(entry) > maxEntry {
		return fsm.Result{}, 0, fmt.Errorf("propose %T of %d bytes: %w", c, len(entry), ErrTooLarge)
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	if err := n.mayPropose(ctx, c); err != nil {
		return fsm.Result{}, 0, fmt.Errorf("propose %T: %w", c, err)
	}
	var result fsm.Result
	var index uint64
	sent := false // an attempt may have reached the log
	err = n.withLeader(ctx, func(leader string) (err error) {
		if leader == n.self.Node {
			result, index, err = n.applyHere(ctx, entry)
		} else {
			result, index, err = n.applyThere(ctx, leader, entry)
		}
		sent = sent || mayHappen(err)
		return err
	})
	if err == nil {
		err = n.machine.wait(ctx, index)
	}
	n.m.proposed(err, time.Since(begin))
	if err != nil && sent {
		err = &UnknownOutcomeError{Check: checkOf(c), cause: err, token: token}
	}
	if err != nil {
		return fsm.Result{}, 0, fmt.Errorf("propose %T: %w", c, err)
	}
	return result, index, nil
}

// Settle finds out what became of a proposal that ended with err, if that is an
// *UnknownOutcomeError. It tries until ctx ends to write a Noop behind the command: ReadIndex would
// not do, because a leader may still commit older entries of its log. If the command is applied by
// then, Settle returns its result and an index by which that was so. If not, or if the outcome
// stays unknown, it returns err.
func (n *Node) Settle(ctx context.Context, err error) (fsm.Result, uint64, error) {
	var unknown *UnknownOutcomeError
	if !errors.As(err, &unknown) || unknown.token == "" {
		return fsm.Result{}, 0, err
	}
	tick := time.NewTicker(settleRetry)
	defer tick.Stop()
	for {
		_, index, failed := n.Propose(ctx, fsm.Noop{})
		if failed == nil {
			if r, done := n.state.Done(unknown.token); done {
				return r, index, nil
			}
			return fsm.Result{}, 0, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fsm.Result{}, 0, err
		}
	}
}

// encodeOnce makes the entry of a proposal that must take effect only once, with its token. A
// second effect of an operator's order would undo what was ordered in between, and its second
// result would say that nothing had changed. Other proposals have no token.
func encodeOnce(c fsm.Command) (entry []byte, token string, err error) {
	if knownbug.Is(knownbug.OrdersRepeat) {
		entry, err = fsm.Encode(c)
		return entry, "", err
	}
	switch c.(type) {
	case *fsm.ChangeKeys, *fsm.MarkMember, *fsm.RemoveMember, *fsm.AllowMember, *fsm.Restore,
		*fsm.ChangeReactor, *fsm.ClaimRun, *fsm.DropToken,
		*fsm.Audited:
		random := make([]byte, 16)
		if _, err := rand.Read(random); err != nil {
			return nil, "", err
		}
		token = string(random)
		once, err := fsm.NewOnce(token, c)
		if err != nil {
			return nil, "", err
		}
		c = once
	}
	entry, err = fsm.Encode(c)
	return entry, token, err
}

// withLeader calls f with the leader until f succeeds or fails with an error that a new try can't
// mend, ctx ends, or no leader can be expected.
func (n *Node) withLeader(ctx context.Context, f func(leader string) error) error {
	err := errElsewhere
	for {
		if leader, ok := n.Leader(); ok {
			err = f(leader)
			if err == nil || !retryable(err) {
				return err
			}
		} else if n.hopeless() {
			return n.noQuorum(err)
		}
		if berr := n.machine.failure(); berr != nil {
			return berr
		}
		t := time.NewTimer(retryPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return n.noQuorum(fmt.Errorf("%w: %w", context.Cause(ctx), err))
		}
	}
}

// mayHappen reports whether an attempt that ended with err may still have its effect, or has had
// it.
func mayHappen(err error) bool {
	switch status.Code(err) {
	case codes.FailedPrecondition, codes.InvalidArgument, codes.PermissionDenied,
		codes.Unimplemented:
		return false // the leader refused before it did anything
	}
	return !errors.Is(err, errElsewhere) || errors.Is(err, errLost)
}

// checkOf names the command that shows an operator whether c was carried out.
func checkOf(c fsm.Command) string {
	switch c.(type) {
	case *fsm.ChangeKeys, *fsm.Restore:
		return "salt-key -L"
	case *fsm.RemoveMember, *fsm.MarkMember, *fsm.AllowMember:
		return "salt-run cluster.members"
	case *fsm.ChangeReactor:
		return "salt-run reactor.list"
	case *fsm.SetJoinKey:
		return "salt-run cluster.rotate_secret, whose new secret is then the one that counts"
	}
	return "salt-run cluster.health, and repeat it"
}

func retryable(err error) bool {
	if errors.Is(err, errElsewhere) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.FailedPrecondition, codes.Aborted, codes.Canceled:
		return true
	}
	return false
}

// hopeless reports whether no leader has been known for longer than an election takes.
func (n *Node) hopeless() bool {
	since := n.leaderless.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > 4*n.cfg.HeartbeatTimeout
}

func (n *Node) noQuorum(cause error) error {
	if _, ok := n.state.Cluster(); !ok {
		return fmt.Errorf("%w: %w", ErrNotFounded, cause)
	}
	e := &NoQuorumError{cause: cause}
	led := n.reign.Load()
	for node := range n.voters() {
		e.Voters++
		if node == n.self.Node || n.port != nil && n.port.Alive(node) {
			e.Reachable++
			continue
		}
		m, ok := n.state.MemberByNode(node)
		if !ok {
			m.ID = node
		}
		e.Missing = append(e.Missing, m.ID)
		if led != nil && led.node == node {
			e.Leader = m.ID
		}
	}
	sort.Strings(e.Missing)
	if e.Reachable > e.Voters/2 {
		e.Missing = nil
	} else {
		e.Leader = ""
	}
	return e
}

// applyHere applies an entry as the leader.
func (n *Node) applyHere(ctx context.Context, entry []byte) (fsm.Result, uint64, error) {
	n.applying.Add(1)
	defer n.applying.Add(-1)
	if n.handingOver.Load() { // read last: letLead sees either this command, or none
		return fsm.Result{}, 0, errHandingOver
	}
	f := n.raft.Apply(entry, enqueueTimeout)
	if err := await(ctx, f); err != nil {
		return fsm.Result{}, 0, err
	}
	out, ok := f.Response().(outcome)
	if !ok {
		return fsm.Result{}, 0, fmt.Errorf("apply: raft gave back a %T", f.Response())
	}
	return out.result, f.Index(), out.err
}

// await waits for a raft future, which ends when leadership is lost, and separates errors that
// another leader mends from the others.
func await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	// this goroutine ends with the future, and the future ends with the leadership at the latest
	go func() { done <- f.Error() }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", errElsewhere, err)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrAbortedByRestore),
		errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func (n *Node) applyThere(ctx context.Context, leader string, entry []byte) (fsm.Result, uint64,
	error) {
	client, err := n.client(leader)
	if err != nil {
		return fsm.Result{}, 0, fmt.Errorf("%w: %w", errElsewhere, err)
	}
	r, err := client.Propose(ctx, &clusterpb.ProposeRequest{Command: entry})
	if err != nil {
		return fsm.Result{}, 0, err
	}
	result, err := fsm.DecodeResult(r.GetResult())
	if err != nil {
		return fsm.Result{}, 0, fmt.Errorf("read result of %s: %w", leader, err)
	}
	return result, r.GetIndex(), nil
}

// readBatch is one question to the leader, shared by all callers that asked before it was sent.
type readBatch struct {
	done chan struct{}
	err  error
}

// ReadIndex returns when the local state is at least as new as any command that any master
// acknowledged before the call. Callers that come while a question is under way share the next one.
func (n *Node) ReadIndex(ctx context.Context) error {
	n.mu.Lock()
	if n.stopped { // Run waits for the loop, which goes on while it finds questions
		n.mu.Unlock()
		return fmt.Errorf("read index: %w", raft.ErrRaftShutdown)
	}
	if n.reading == nil {
		n.reading = &readBatch{done: make(chan struct{})}
	}
	b := n.reading
	if !n.readers {
		n.readers = true
		n.wg.Go(n.readLoop)
	}
	n.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
		return fmt.Errorf("read index: %w", n.noQuorum(context.Cause(ctx)))
	}
	if b.err != nil {
		return fmt.Errorf("read index: %w", b.err)
	}
	return nil
}

func (n *Node) readLoop() {
	for {
		n.mu.Lock()
		b := n.reading
		n.reading = nil
		if b == nil {
			n.readers = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), enqueueTimeout)
		b.err = n.readIndex(ctx)
		cancel()
		close(b.done)
	}
}

func (n *Node) readIndex(ctx context.Context) error {
	var index uint64
	err := n.withLeader(ctx, func(leader string) (err error) {
		if leader == n.self.Node {
			index, err = n.readIndexHere(ctx)
			return err
		}
		client, err := n.client(leader)
		if err != nil {
			return fmt.Errorf("%w: %w", errElsewhere, err)
		}
		r, err := client.ReadIndex(ctx, &clusterpb.ReadIndexRequest{})
		index = r.GetIndex()
		return err
	})
	if err != nil {
		return err
	}
	n.told.Store(index)
	return n.machine.wait(ctx, index)
}

// readIndexHere, on the leader, ensures that everything acknowledged before is applied here, by
// this leader or before its barrier. A majority then confirms that no newer leader could have
// acknowledged more.
func (n *Node) readIndexHere(ctx context.Context) (uint64, error) {
	if !n.IsLeader() {
		return 0, errElsewhere
	}
	term, index := n.raft.CurrentTerm(), n.machine.applied.Load()
	if knownbug.Is(knownbug.StaleReads) {
		n.verified.Store(time.Now().UnixNano())
		return index, nil
	}
	if err := await(ctx, n.raft.VerifyLeader()); err != nil {
		return 0, err
	}
	if n.raft.CurrentTerm() != term { // another leader may have acknowledged more
		return 0, errElsewhere
	}
	n.verified.Store(time.Now().UnixNano())
	return index, nil
}

// ConfirmEverywhere waits, 5 s at most, until every serving member has applied index. It returns
// the ids of those that did not confirm; they stop being ready when they have not heard the leader
// for Config.StaleLimit. It does not wait for a member that does not serve yet, or has been out of
// contact for longer.
func (n *Node) ConfirmEverywhere(ctx context.Context, index uint64) (unconfirmed []string) {
	if n.port == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	var mu sync.Mutex // guards unconfirmed
	var wg sync.WaitGroup
	for _, m := range n.state.Members() {
		if m.Node == n.self.Node || !n.mayServe(m.Node) {
			continue
		}
		wg.Go(func() {
			if !n.confirm(ctx, m.Node, index) {
				mu.Lock()
				unconfirmed = append(unconfirmed, m.ID)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(unconfirmed)
	if len(unconfirmed) > 0 {
		n.log.Warn("change not confirmed in time; these masters may act on the old state until they notice that "+
			"they have no leader",
			"peer", unconfirmed, "index", index, "limit", n.cfg.StaleLimit)
	}
	return unconfirmed
}

func (n *Node) confirm(ctx context.Context, node string, index uint64) bool {
	for {
		client, err := n.client(node)
		if err == nil {
			_, err = client.WaitApplied(ctx, &clusterpb.WaitAppliedRequest{Index: index})
		}
		if err == nil {
			return true
		}
		if _, member := n.state.MemberByNode(node); !member {
			return true // it left meanwhile
		}
		t := time.NewTimer(confirmRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
	}
}

// Snapshot makes raft write a snapshot now, so that the next start reads less log.
func (n *Node) Snapshot() error {
	if err := n.raft.Snapshot().Error(); err != nil &&
		!errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}
