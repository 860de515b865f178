package keystore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/keystore"
	"clustermaster/value"
)

// What follows from a change depends on the action, the options and the order.
func TestOrdersDoWhatFollowsFromAChange(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tt := range []struct {
		name     string
		order    keystore.Order
		preserve bool // option preserve_minion_cache
		keep     bool // option rotate_aes_key: False
		fails    error
		did      []string
		warns    []string
		err      string
	}{
		{name: "accept", order: keystore.Order{Action: "accept"},
			did: []string{"salt/key accepted pub"}},
		{name: "reject", order: keystore.Order{Action: "reject"},
			did: []string{"salt/key rejected pub", "rotate", "key"}},
		{name: "delete", order: keystore.Order{Action: "delete"},
			did: []string{"salt/key delete", "forget web1", "rotate", "key"}},
		{name: "the option keeps the cache", order: keystore.Order{Action: "delete"},
			preserve: true,
			did:      []string{"salt/key delete", "rotate", "key"}},
		{name: "the order keeps the cache",
			order: keystore.Order{Action: "delete", PreserveMinions: true},
			did:   []string{"salt/key delete", "rotate", "key"}},
		{name: "the option keeps the AES key", order: keystore.Order{Action: "delete"}, keep: true,
			did: []string{"salt/key delete", "forget web1"}},
		{name: "the order keeps the AES key",
			order: keystore.Order{Action: "delete", KeepAESKey: true},
			did:   []string{"salt/key delete", "forget web1"}},
		{name: "nothing changes", order: keystore.Order{Action: "delete", IDs: []string{"web9"}}},
		{name: "a state without the key",
			order: keystore.Order{Action: "delete", From: []string{"minions"}}},
		{name: "what fails is said, the change stands", order: keystore.Order{Action: "delete"},
			fails: broken,
			did:   []string{"salt/key delete", "forget web1", "rotate"},
			warns: []string{"not removed: broken", "the AES key is not rotated"}},
		{name: "an unknown action", order: keystore.Order{Action: "burn"}, err: `no action "burn"`},
		{name: "an unknown state", order: keystore.Order{Action: "delete", From: []string{"x"}},
			err: `no state "x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			g.apply(&fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: fsm.KeyPending,
				Pub: pems()[0]}}, At: time.Now()})
			var did []string
			orders := keystore.NewOrders(store(t, g), keystore.Surroundings{
				Fire: func(tag string, data value.Map) {
					if act, ok := data.Get("act"); ok {
						tag += " " + act.(string)
					}
					if _, ok := data.Get("pub"); ok {
						tag += " pub"
					}
					did = append(did, tag)
				},
				Forget: func(_ context.Context,
					id string) error {
					did = append(did, "forget "+id)
					return tt.fails
				},
				RotateAES: func(context.Context) error {
					did = append(did,
						"rotate")
					return tt.fails
				},
				PreserveMinions: tt.preserve, RotateAESKey: !tt.keep,
			})
			if tt.order.IDs == nil {
				tt.order.IDs = []string{"web1"}
			}
			_, warnings, err := orders.Order(t.Context(), tt.order)
			if tt.err == "" && err != nil || tt.err != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if !slices.Equal(did, tt.did) {
				t.Errorf("did %q, want %q", did, tt.did)
			}
			for _, w := range tt.warns {
				if all := strings.Join(warnings, "\n"); !strings.Contains(all, w) {
					t.Errorf("warnings %q do not say %q", all, w)
				}
			}
			if len(warnings) != len(tt.warns) {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
}
