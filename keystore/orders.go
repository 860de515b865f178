package keystore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"clustermaster/serve/origin"
	"clustermaster/value"
)

// Surroundings are the parts of the master that a change of keys affects.
type Surroundings struct {
	// Fire fires an event on this master's bus.
	Fire func(tag string, data value.Map)
	// Forget removes the cached grains and pillar of a minion.
	Forget func(ctx context.Context, id string) error
	// StageAES makes a new key for sealing publications, and returns its epoch. Without
	// ActivateAES, even if this master dies, the key comes into use half a minute later.
	StageAES func(ctx context.Context) (epoch uint64, err error)
	// ActivateAES seals publications with the staged key of an epoch or a later one from now on.
	ActivateAES func(ctx context.Context, epoch uint64) error

	PreserveMinions bool // the option preserve_minion_cache
	RotateAESKey    bool // the option rotate_aes_key
}

// Orders changes keys on behalf of operators and minions, with everything that follows from a
// change.
type Orders struct {
	*Store
	around Surroundings
}

// NewOrders returns the Orders of a store.
func NewOrders(s *Store, around Surroundings) *Orders { return &Orders{Store: s, around: around} }

// Order is one change of keys.
type Order struct {
	Action string   // accept, reject or delete
	IDs    []string // of minions
	// Salt's names of the keys' states; none: the defaults of Change
	From []string
	// keep the cached grains and pillar of deleted minions, whatever the option says
	PreserveMinions bool
	KeepAESKey      bool // do not rotate, whatever the option says
}

// actions maps Salt's names of orders to those in the events.
var actions = map[string]struct {
	act   Action
	event string
}{
	"accept": {AcceptKeys, "accepted"},
	"reject": {RejectKeys, "rejected"},
	"delete": {DeleteKeys, "delete"},
}

// followLimit bounds what follows from a change of keys.
const followLimit = 10 * time.Minute

// follow returns the context of what must follow from a change, even if its caller has gone.
func follow(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), followLimit)
}

// Order changes keys on every master and fires salt/key for each. After a deletion or rejection it
// rotates the AES key, so that those minions can read no further publications. That key is staged
// before the change: if this master dies or is cut off afterwards, the leader activates it. A
// deletion also removes the minion's cached data. Warnings say what the operator must know of a
// change that happened. An error may come after some keys were changed; what follows from those was
// done too, as also after the end of ctx. If the error leaves open whether more keys change, only
// the AES key follows for certain.
func (o *Orders) Order(ctx context.Context, order Order) (changed []Key, warnings []string,
	err error) {
	action, ok := actions[order.Action]
	if !ok {
		return nil, nil, fmt.Errorf("change keys: no action %q; use accept, reject or delete",
			order.Action)
	}
	var from []State
	for _, name := range order.From {
		s, ok := ParseState(name)
		if !ok {
			return nil, nil, fmt.Errorf("change keys: no state %q", name)
		}
		from = append(from, s)
	}
	rotates := action.act != AcceptKeys && !order.KeepAESKey && o.around.RotateAESKey
	var epoch uint64 // of the staged AES key
	changed, _, err = o.change(ctx, action.act, once(order.IDs), from,
		func(ctx context.Context) (err error) {
			if rotates {
				epoch, err = o.stage(ctx, epoch)
			}
			return err
		})
	var warning *Warning
	if errors.As(err, &warning) {
		warnings, err = append(warnings, warning.Error()), nil
	}
	if len(changed) == 0 {
		return nil, warnings, err
	}
	if err != nil {
		err = fmt.Errorf("%d keys were changed, then: %w", len(changed), err)
	}
	ctx, cancel := follow(ctx)
	defer cancel()
	removing := action.act == DeleteKeys
	for _, k := range changed {
		data := value.Map{
			{Key: "result", Value: true},
			{Key: "act", Value: action.event},
			{Key: "id", Value: k.ID},
		}
		if !removing {
			data = append(data, value.Pair{Key: "pub", Value: k.Pub})
		}
		o.around.Fire("salt/key", data)
	}
	var undone []string
	if rotates {
		undone = o.rotate(ctx, epoch)
	}
	if removing && !order.PreserveMinions && !o.around.PreserveMinions {
		undone = append(undone, o.forget(ctx, changed)...)
	}
	if len(undone) > 0 { // the caller may have gone
		o.log.Warn("not all that follows from a change of keys was done", "act", action.event, "n",
			len(undone), "warnings", strings.Join(undone[:min(len(undone), maxNamed)], "; "))
	}
	return changed, append(warnings, undone...), err
}

// forget removes the cached grains and pillar of minions.
func (o *Orders) forget(ctx context.Context, keys []Key) (warnings []string) {
	for _, k := range keys {
		if err := o.around.Forget(ctx, k.ID); err != nil {
			warnings = append(warnings,
				fmt.Sprintf("the cached grains and pillar of %s are not removed: %v", k.ID, err))
		}
	}
	return warnings
}

// stage returns the epoch of an AES key that no minion has yet: the staged one, unless it was
// activated meanwhile, or a new one. Staged 0 means none.
func (o *Orders) stage(ctx context.Context, staged uint64) (epoch uint64, err error) {
	if staged > o.node.State().AES().Active.Number {
		return staged, nil
	}
	return o.around.StageAES(ctx)
}

// rotate replaces the AES key, so that minions whose key has gone can read no further publications.
func (o *Orders) rotate(ctx context.Context, staged uint64) (warnings []string) {
	if err := o.renew(ctx, staged); err != nil {
		return []string{fmt.Sprintf("the AES key is not rotated yet, so these minions can still read "+
			"publications; the leader does it once there is a quorum, and salt-run cluster.rotate_keys "+
			"makes sure: %v", err)}
	}
	return nil
}

// renew replaces the AES key, by the staged one if there is one, and says so by Salt's event.
func (o *Orders) renew(ctx context.Context, staged uint64) error {
	epoch, err := o.stage(ctx, staged)
	if err != nil {
		return err
	}
	if err := o.around.ActivateAES(ctx, epoch); err != nil {
		return err
	}
	o.around.Fire("key", value.Map{{Key: "rotate_aes_key", Value: true}})
	return nil
}

// Issue accepts a key that the master itself has made, as Put does. If it replaces an accepted key,
// it rotates the AES key, in the way that Order does.
func (o *Orders) Issue(ctx context.Context, id, pub string, replace bool) (done bool,
	warnings []string, err error) {
	var epoch uint64 // of the staged AES key
	done, from, err := o.put(ctx, id, pub, replace, func(ctx context.Context) (err error) {
		if o.around.RotateAESKey {
			epoch, err = o.stage(ctx, epoch)
		}
		return err
	})
	var warning *Warning
	if errors.As(err, &warning) {
		warnings, err = append(warnings, warning.Error()), nil
	}
	if done && o.around.RotateAESKey && (from == Accepted || epoch != 0) {
		ctx, cancel := follow(ctx)
		defer cancel()
		warnings = append(warnings, o.rotate(ctx, epoch)...)
	}
	return done, warnings, err
}

// once drops repeated ids.
func once(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		had := seen[id]
		seen[id] = true
		return had
	})
}

// Revoke deletes the accepted key of a minion at the minion's own request.
func (o *Orders) Revoke(ctx context.Context, id string) error {
	ctx = origin.With(ctx, origin.Origin{User: id, From: "minion", Order: "revoke_auth",
		Automatic: true})
	_, _, err := o.Order(ctx, Order{Action: "delete", IDs: []string{id},
		From: []string{Accepted.String()}})
	return err
}
