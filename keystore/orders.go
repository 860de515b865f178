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
	// RotateAES replaces the key that seals publications.
	RotateAES func(ctx context.Context) error

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
// rotates the AES key, so that those minions can read no further publications. A deletion also
// removes the minion's cached data. Warnings say what the operator must know of a change that
// happened. An error may come after some keys were changed; what follows from those was done too,
// as also after the end of ctx.
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
	changed, _, err = o.Change(ctx, action.act, once(order.IDs), from...)
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
	if action.act != AcceptKeys && !order.KeepAESKey {
		undone = o.rotate(ctx)
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

// rotate replaces the AES key if the option rotate_aes_key says so, so that minions whose key has
// gone can read no further publications.
func (o *Orders) rotate(ctx context.Context) (warnings []string) {
	if !o.around.RotateAESKey {
		return nil
	}
	if err := o.renew(ctx); err != nil {
		return []string{fmt.Sprintf("the AES key is not rotated, so these minions can still read "+
			"publications: %v", err)}
	}
	return nil
}

// renew replaces the AES key, and says so by Salt's event.
func (o *Orders) renew(ctx context.Context) error {
	if err := o.around.RotateAES(ctx); err != nil {
		return err
	}
	o.around.Fire("key", value.Map{{Key: "rotate_aes_key", Value: true}})
	return nil
}

// Issue accepts a key that the master itself has made, as Put does. If it replaces an accepted key,
// it rotates the AES key.
func (o *Orders) Issue(ctx context.Context, id, pub string, replace bool) (done bool,
	warnings []string, err error) {
	done, from, err := o.Put(ctx, id, pub, replace)
	var warning *Warning
	if errors.As(err, &warning) {
		warnings, err = append(warnings, warning.Error()), nil
	}
	if done && from == Accepted {
		ctx, cancel := follow(ctx)
		defer cancel()
		warnings = append(warnings, o.rotate(ctx)...)
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
