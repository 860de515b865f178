package keystore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/wire"
)

// entryBytes is the approximate maximum size of a command: Raft sends several of them in one
// message.
const entryBytes = 32 << 10

// inParts cuts a list into parts of entryBytes. Size returns how many bytes of a command one
// element takes.
func inParts[T any](list []T, size func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		begin, sum := 0, 0
		for i, v := range list {
			n := size(v)
			if i > begin && sum+n > entryBytes {
				if !yield(list[begin:i]) {
					return
				}
				begin, sum = i, 0
			}
			sum += n
		}
		if begin < len(list) {
			yield(list[begin:])
		}
	}
}

// Action is what an operator does to keys.
type Action = fsm.KeyAction

// The actions.
const (
	AcceptKeys = fsm.AcceptKeys
	RejectKeys = fsm.RejectKeys
	DeleteKeys = fsm.DeleteKeys
)

// Warning is the error of a change that happened but needs the operator's attention.
type Warning struct {
	Unconfirmed []string // ids of masters that may still act on the old state
	NotKeys     []string // ids of minions whose text is no public key, so it was not accepted
}

func (w *Warning) Error() string {
	var parts []string
	for _, id := range w.Unconfirmed {
		parts = append(parts,
			fmt.Sprintf("master %s did not confirm the change: until it hears the leader or notices that it does not, it may act on the old keys", id))
	}
	for _, id := range w.NotKeys {
		parts = append(parts,
			fmt.Sprintf("the key of minion %s is not a public key and was not accepted: delete it, then restart "+
				"the minion", id))
	}
	return strings.Join(parts, "; ")
}

// settleLimit bounds how long a change waits for an answer that was lost.
const settleLimit = 20 * time.Second

// Change accepts, rejects or deletes the keys of ids that are in one of the given states. With none
// given those are Pending for accept and reject, all for delete. When every serving master has
// applied the change, it returns what changed and the Raft index. A *Warning beside a change says
// what the operator must know; with any other error, changed lists what happened before it. The end
// of ctx stops a long change between two commands, and interrupts none.
func (s *Store) Change(ctx context.Context, action Action, ids []string,
	from ...State) (changed []Key, index uint64, err error) {
	return s.change(ctx, action, ids, from, func(context.Context) error { return nil })
}

// change does what Change does. It calls before ahead of each command that, as far as this master
// knows, changes a key. An error of before ends the change.
func (s *Store) change(ctx context.Context, action Action, ids []string, from []State,
	before func(context.Context) error) (changed []Key, index uint64, err error) {
	if len(from) == 0 {
		from = []State{Pending}
		if action == DeleteKeys {
			from = States
		}
	}
	var set fsm.KeyStates
	for _, st := range from {
		set |= fsm.StateSet(fsm.KeyState(st))
	}
	warn := &Warning{}
	if action == AcceptKeys {
		ids, warn.NotKeys = s.sortOut(ids, set)
	}
	caller := ctx
	ctx = context.WithoutCancel(ctx)
	var failed error
	for part := range inParts(ids, func(id string) int { return len(id) + 5 }) {
		if failed = caller.Err(); failed != nil {
			break
		}
		if slices.ContainsFunc(part, func(id string) bool { return s.changes(action, id, set) }) {
			if failed = before(ctx); failed != nil {
				break
			}
		}
		c := &fsm.ChangeKeys{Action: action, IDs: part, From: set, At: time.Now().UTC()}
		r, at, err := s.node.Propose(ctx, c)
		if err != nil {
			r, at, err = s.settle(ctx, err)
		}
		if err == nil && r.Refused != "" {
			err = fmt.Errorf("refused: %s", r.Refused)
		}
		if failed = err; failed != nil {
			break
		}
		index = at
		for _, ch := range r.Keys {
			k := fromFSM(ch.Key)
			k.From = State(ch.From)
			changed = append(changed, k)
		}
	}
	if len(changed) > 0 {
		warn.Unconfirmed = s.node.ConfirmEverywhere(ctx, index)
		s.log.Info("keys changed", "act", verb(action), "n", len(changed), "index", index)
	}
	if failed != nil {
		return changed, index, fmt.Errorf("change keys: %w", failed)
	}
	if len(warn.Unconfirmed)+len(warn.NotKeys) > 0 {
		return changed, index, warn
	}
	return changed, index, nil
}

// settle waits for the result of a command whose answer was lost, or returns err.
func (s *Store) settle(ctx context.Context, err error) (fsm.Result, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return s.node.Settle(ctx, err)
}

// changes reports whether, as far as this master knows, an action changes a key of id in one of
// the states.
func (s *Store) changes(action Action, id string, from fsm.KeyStates) bool {
	k, known := s.node.State().Key(id)
	if !known || !from.Has(k.State) {
		return from.Has(fsm.KeyDenied) && len(s.node.State().Denied(id)) > 0
	}
	to := map[Action]fsm.KeyState{AcceptKeys: fsm.KeyAccepted, RejectKeys: fsm.KeyRejected}
	return k.State != to[action]
}

func verb(a Action) string {
	switch a {
	case AcceptKeys:
		return "accept"
	case RejectKeys:
		return "reject"
	}
	return "delete"
}

// sortOut takes out the ids whose key can't be accepted because it is no public key.
func (s *Store) sortOut(ids []string, from fsm.KeyStates) (keys, notKeys []string) {
	for _, id := range ids {
		k, ok := s.node.State().Key(id)
		if ok && from.Has(k.State) {
			if _, err := wire.ParsePublicKey(k.Pub); err != nil {
				notKeys = append(notKeys, id)
				continue
			}
		}
		keys = append(keys, id)
	}
	return keys, notKeys
}

// Import adds keys of unknown ids, in batches. N is the number of added keys.
func (s *Store) Import(ctx context.Context, keys []Key) (n int, err error) {
	for part := range inParts(keys, func(k Key) int { return len(k.ID) + len(k.Pub) + 100 }) {
		c := &fsm.ImportKeys{At: time.Now().UTC()}
		for _, k := range part {
			c.Keys = append(c.Keys, fsm.Key{ID: k.ID, State: fsm.KeyState(k.State),
				Pub: wire.CleanKey(k.Pub)})
		}
		r, _, err := s.node.Propose(ctx, c)
		if err == nil && r.Refused != "" {
			err = fmt.Errorf("refused: %s", r.Refused)
		}
		if err != nil {
			return n, fmt.Errorf("import keys: %w", err)
		}
		n += len(r.Keys)
	}
	return n, nil
}

// Put accepts pub as the key of an id, and returns when every serving master has applied it. An id
// with an accepted, pending or rejected key keeps that one unless replace is set; done is then
// false. From is the state of the replaced key, or 0. A *Warning beside done says what the operator
// must know.
func (s *Store) Put(ctx context.Context, id, pub string, replace bool) (done bool, from State,
	err error) {
	return s.put(ctx, id, pub, replace, func(context.Context) error { return nil })
}

// put does what Put does. It calls before if, as far as this master knows, an accepted key is
// replaced. An error of before ends it.
func (s *Store) put(ctx context.Context, id, pub string, replace bool,
	before func(context.Context) error) (done bool, from State, err error) {
	if !wire.ValidID(id) {
		return false, 0, fmt.Errorf("accept key: %q can't be the id of a minion", id)
	}
	parsed, err := wire.ParsePublicKey(pub)
	if err != nil {
		return false, 0, fmt.Errorf("accept key: %w", err)
	}
	pub = parsed.Text()
	ctx = context.WithoutCancel(ctx) // the caller must learn whether it is done
	if k, _ := s.node.State().Key(id); replace && k.State == fsm.KeyAccepted && k.Pub != pub {
		if err := before(ctx); err != nil {
			return false, 0, fmt.Errorf("accept key: %w", err)
		}
	}
	r, index, err := s.node.Propose(ctx, &fsm.ImportKeys{
		Keys:      []fsm.Key{{ID: id, State: fsm.KeyAccepted, Pub: pub}},
		Overwrite: replace, At: time.Now().UTC(),
	})
	if err == nil && r.Refused != "" {
		err = fmt.Errorf("refused: %s", r.Refused)
	}
	if err != nil {
		return false, 0, fmt.Errorf("accept key: %w", err)
	}
	unconfirmed := s.node.ConfirmEverywhere(ctx, index)
	if len(r.Keys) == 0 {
		// A proposal whose answer was lost is repeated, and then changes nothing.
		k, _ := s.node.State().Key(id)
		return k.State == fsm.KeyAccepted && k.Pub == pub, 0, nil
	}
	s.log.Info("new key accepted by order", "minion", id, "index", index)
	if len(unconfirmed) > 0 {
		err = &Warning{Unconfirmed: unconfirmed}
	}
	return true, State(r.Keys[0].From), err
}

// ImportDir adds the keys of a pki directory in Salt's localfs_key or mmap_key form. N is the
// number of added keys. The log names those left out because their id already has another key.
func (s *Store) ImportDir(ctx context.Context, dir string) (n int, err error) {
	keys, err := ReadDir(dir)
	if err != nil {
		return 0, err
	}
	n, err = s.Import(ctx, keys)
	if err != nil {
		return n, err
	}
	if n > 0 {
		s.log.Info("minion keys taken over", "n", n, "dir", dir)
	}
	var left []string
	for _, k := range keys {
		if have, ok := s.node.State().Key(k.ID); ok && k.State == Accepted &&
			(have.Pub != k.Pub || have.State != fsm.KeyAccepted) {
			left = append(left, k.ID)
		}
	}
	if len(left) > 0 {
		s.log.Warn("accepted minion keys left out at founding: their ids have another key or state already",
			"n", len(left), "dir", dir, "minions",
			strings.Join(left[:min(len(left), maxNamed)], ", "))
	}
	return n, nil
}

// maxNamed bounds the ids in a log line.
const maxNamed = 20

// ImportDirs imports the key folders of a former master one after the other, each only once, when
// this one founds its cluster. Then e, which may be nil, begins to export.
func (s *Store) ImportDirs(ctx context.Context, e *Exporter, dirs ...string) error {
	for _, dir := range slices.Compact(dirs) {
		if _, err := s.ImportDir(ctx, dir); err != nil {
			return err
		}
	}
	e.begin()
	return nil
}
