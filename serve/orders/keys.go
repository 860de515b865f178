package orders

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clustermaster/keystore"
	"clustermaster/salt/runner"
	"clustermaster/serve/operator"
	"clustermaster/wire"
)

// KeysNode gives access to this master's own keys; *cluster.Node implements it.
type KeysNode interface {
	// ClusterKey returns the key by which minions know their master; nil before founding.
	ClusterKey() *wire.PrivateKey
	// Fresh waits for what the leader knows, or returns a note why the data may be old.
	Fresh(ctx context.Context) (note string)
}

// Keys shows and changes minions' keys, for the commands' socket and the wheel family key.
type Keys struct {
	Orders *keystore.Orders
	Node   KeysNode
	// TakeIn imports keys that others put into the folder of accepted keys.
	TakeIn func(ctx context.Context) (int, error)

	Clustered   bool   // determines the file names in Local
	ID          string // the option id
	PkiDir      string // the option pki_dir
	SignKeyName string // the option master_sign_key_name
}

var (
	_ operator.Keys = (*Keys)(nil)
	_ runner.Keys   = (*Keys)(nil)
)

// takeInWithin bounds the import before a list: without a quorum it has to wait for nothing.
const takeInWithin = 2 * time.Second

// fresh waits for every acknowledged change and for files that others put into the folder of
// accepted keys, so that a command shows the key that was copied before it. A note says why the
// keys may be out of date. The master logs what it can't import.
func (k *Keys) fresh(ctx context.Context) (note string) {
	taking, done := context.WithTimeout(ctx, takeInWithin)
	defer done()
	_, _ = k.TakeIn(taking)
	return k.Node.Fresh(ctx)
}

// Lists implements operator.Keys.
func (k *Keys) Lists(ctx context.Context, texts bool) (operator.KeyLists, error) {
	lists := operator.KeyLists{Local: k.Local(), Note: k.fresh(ctx)}
	all := k.Orders.List()
	for _, s := range keystore.States {
		for _, id := range all[s] {
			key := operator.Key{ID: id, State: s.String()}
			if texts {
				key.Pub, _ = k.Orders.Text(id, s)
			}
			lists.Keys = append(lists.Keys, key)
		}
	}
	return lists, nil
}

// Own returns Local, and the name of the private key without a text, for the wheel functions.
func (k *Keys) Own() (map[string]string, error) {
	out := k.Local()
	for name := range k.Local() {
		if name == operator.OwnKeyName(k.ID, k.Clustered) {
			out[strings.TrimSuffix(name, ".pub")+".pem"] = ""
		}
	}
	return out, nil
}

// Local returns the public parts of this master's own keys: file name to PEM.
func (k *Keys) Local() map[string]string {
	out := make(map[string]string)
	if own := k.Node.ClusterKey(); own != nil {
		out[operator.OwnKeyName(k.ID, k.Clustered)] = own.Public().Text()
	}
	if b, err := os.ReadFile(filepath.Join(k.PkiDir, k.SignKeyName+".pub")); err == nil {
		out[k.SignKeyName+".pub"] = string(b)
	}
	return out
}

// Change implements operator.Keys.
func (k *Keys) Change(ctx context.Context, c operator.KeyChange) (operator.KeysChanged, error) {
	order := keystore.Order{Action: c.Action, PreserveMinions: c.PreserveMinions,
		KeepAESKey: c.KeepAESKey}
	for _, key := range c.Keys {
		if !slices.Contains(order.From, key.State) {
			order.From = append(order.From, key.State)
		}
		order.IDs = append(order.IDs, key.ID)
	}
	changed, warnings, err := k.Orders.Order(ctx, order)
	out := operator.KeysChanged{Warnings: warnings}
	for _, key := range changed {
		out.Changed = append(out.Changed, operator.Key{ID: key.ID, State: key.State.String()})
	}
	return out, err
}

// KeyLists implements runner.Keys.
func (k *Keys) KeyLists(ctx context.Context) (lists map[string][]string, note string, err error) {
	note = k.fresh(ctx)
	lists = make(map[string][]string)
	for s, ids := range k.Orders.List() {
		lists[s.String()] = ids
	}
	return lists, note, nil
}

// KeyText implements runner.Keys.
func (k *Keys) KeyText(_ context.Context, id, state string) (string, bool, error) {
	s, ok := keystore.ParseState(state)
	if !ok {
		return "", false, nil
	}
	pem, ok := k.Orders.Text(id, s)
	return pem, ok, nil
}

// ChangeKeys implements runner.Keys.
func (k *Keys) ChangeKeys(ctx context.Context, action runner.KeyAction, ids,
	states []string) (runner.KeyChange, error) {
	changed, warnings, err := k.Orders.Order(ctx,
		keystore.Order{Action: string(action), IDs: ids, From: states})
	out := runner.KeyChange{Warnings: warnings}
	for _, key := range changed {
		out.Changed = append(out.Changed, key.ID)
	}
	return out, err
}

// PutKey implements runner.Keys.
func (k *Keys) PutKey(ctx context.Context, id, pub string, replace bool) (runner.KeyChange, error) {
	k.fresh(ctx) // a key that was just copied into the folder of accepted keys counts
	done, warnings, err := k.Orders.Issue(ctx, id, pub, replace)
	out := runner.KeyChange{Warnings: warnings}
	if done {
		out.Changed = []string{id}
	}
	return out, err
}

// GenerateKey makes a key pair of that many bits, in the texts that Salt writes.
func GenerateKey(bits int) (private, public string, err error) {
	key, err := wire.GeneratePrivateKey(bits)
	if err != nil {
		return "", "", err
	}
	return string(key.PEM()), key.Public().Text() + "\n", nil
}

// OfflineKeys reads the key folders of a master that is not running.
func OfflineKeys(dir string) (operator.KeyLists, error) {
	keys, err := keystore.ReadDir(dir)
	if err != nil {
		return operator.KeyLists{}, err
	}
	var lists operator.KeyLists
	for _, k := range keys {
		lists.Keys = append(lists.Keys, operator.Key{ID: k.ID, State: k.State.String(), Pub: k.Pub})
	}
	return lists, nil
}
