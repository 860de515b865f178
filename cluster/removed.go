package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/store/durable"
)

// removedFile says that a member told this master of its removal. It stays until this master is
// admitted again, so that a restart among dead peers does not serve from a state that does not know
// of the removal.
const removedFile = "removed.json"

// removal is the content of removedFile.
type removal struct {
	At time.Time `json:"at"` // by this master's clock
	By string    `json:"by"` // address of the member that said so; "": the replicated state
}

// loadRemoved reads what a member said before the last restart.
func (n *Node) loadRemoved() error {
	var r removal
	ok, err := readJSON(filepath.Join(n.cfg.DataDir, removedFile), &r)
	if ok {
		n.membership.note(func(f *facts) { f.barred = true })
		n.log.Error(removedText, "peer", n.self.ID, "addr", r.By, "since", r.At)
	}
	return err
}

const removedText = "this master was removed from the cluster and no longer serves; to bring it back, run " +
	"salt-run cluster.allow with its id on a member, write the cluster's present cluster_secret into its " +
	"configuration, and restart it"

// noteRemoved stores that this master was removed, as the member at addr or the state itself said:
// after a restart the state may not know that the removal is committed. The state doesn't count
// while it is older than an admission: a master that was removed, missed that and came back reads
// of its removal last.
func (n *Node) noteRemoved(addr string) {
	n.barring.Lock()
	defer n.barring.Unlock()
	if addr == "" && n.pins.lists(n.self.Node) {
		return
	}
	if _, news := n.membership.note(func(f *facts) { f.barred = true }); !news {
		return
	}
	n.moved.beat()
	n.log.Error(removedText, "peer", n.self.ID, "addr", addr)
	path := filepath.Join(n.cfg.DataDir, removedFile)
	if err := writeJSON(path, removal{At: time.Now().UTC(), By: addr}); err != nil {
		n.log.Error("removal not saved to disk: after a restart this master asks again before it serves", "err", err)
	}
}

// forgetRemoved ends the removal: this master was admitted again, or begins a history of its own.
func (n *Node) forgetRemoved() error {
	n.barring.Lock()
	defer n.barring.Unlock()
	path := filepath.Join(n.cfg.DataDir, removedFile)
	switch err := os.Remove(path); {
	case err == nil:
		if err := durable.SyncDir(n.cfg.DataDir); err != nil {
			return fmt.Errorf("forget removal: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("forget removal: %w", err)
	}
	n.membership.note(func(f *facts) { f.barred = false })
	return nil
}

// noteDisowned keeps whether the members turn this master away: since it last heard a leader, one
// that proved its own key has refused this master's, and no other answers. A removed master that
// missed its removal, or runs from an old copy of its disk, learns of it this way even if its
// secret is too old to ask.
func (n *Node) noteDisowned() {
	if n.port == nil {
		return
	}
	heard := n.LeaderHeard()
	if heard.Before(n.started) {
		heard = n.started
	}
	// A leader sends five heartbeats in this time.
	silence := n.cfg.HeartbeatTimeout / 2
	if p, f := n.membership.is(); p != Joined && !f.disowned {
		// A joiner may not know the leader or another member yet, nor they the joiner. It can
		// wait: without a leader it serves nobody before ServeWithout.
		silence = min(4*silence, n.cfg.ServeWithout/2)
	}
	if n.raft.State() == raft.Leader || time.Since(heard) < silence {
		n.membership.note(func(f *facts) { f.disowned = false })
		return
	}
	refusing := ""
	for _, m := range n.state.Members() {
		switch {
		case m.Node == n.self.Node:
		case n.port.Alive(m.Node):
			n.membership.note(func(f *facts) { f.disowned = false })
			return
		case n.port.DisownedAt(m.Node).After(heard):
			refusing = m.ID
		}
	}
	if refusing == "" {
		return
	}
	if _, news := n.membership.note(func(f *facts) { f.disowned = true }); news {
		n.moved.beat() // so that become asks why
		n.log.Warn("the members that this master reaches refuse its node key: it was removed, or its disk is an "+
			"old copy; it serves nothing until a member answers; see salt-run cluster.members there", "peer", refusing)
	}
}

// WhileServing runs f each time this master begins to serve, and ends f's context when it stops
// serving because it was removed or heard no leader for Config.IsolatedServe. It returns nil when
// ctx ends, or else f's error.
func (n *Node) WhileServing(ctx context.Context, f func(context.Context) error) error {
	for {
		if !n.awaitServing(ctx, true) {
			return nil
		}
		during, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			defer stop()
			ended <- f(during)
		}()
		stopped := n.awaitServing(during, false)
		stop()
		if err := <-ended; err != nil || !stopped {
			return err
		}
	}
}

// awaitServing returns true when Serving equals want, false if ctx ends first.
func (n *Node) awaitServing(ctx context.Context, want bool) bool {
	for {
		changed := n.served.next()
		if ctx.Err() != nil {
			return false
		}
		if n.Serving() == want {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// owing is the leader's record of a removal after which no secrets were rotated.
type owing struct {
	since time.Time // when the leader saw it first or tried last
	tries int
}

// mostOwed bounds the rotations for one removal: with a clock far ahead none would seem to have
// helped.
const mostOwed = 3

// owes names a removed member that still knows the secrets of sessions although its remover has had
// time to rotate them: the remover died, or the removal was committed after the remover had given
// up. "" if there is none.
func (n *Node) owes(now time.Time) string {
	aes, session := n.state.AES().Active, n.state.Session().Active
	seen := map[string]owing{}
	due := ""
	for _, b := range n.state.Bars() {
		if !b.At.After(aes.At) && !b.At.After(session.At) {
			continue
		}
		key := b.ID + b.At.String()
		o, ok := n.owed[key]
		if !ok {
			o.since = now
		}
		if due == "" && o.tries < mostOwed && now.Sub(o.since) >= n.cfg.OwedAfter {
			due = b.ID
			o = owing{since: now, tries: o.tries + 1}
		}
		seen[key] = o
	}
	n.owed = seen
	return due
}
