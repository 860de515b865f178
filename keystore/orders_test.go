package keystore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/cluster"
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
			did: []string{"stage", "salt/key rejected pub", "activate", "key"}},
		{name: "delete", order: keystore.Order{Action: "delete"},
			did: []string{"stage", "salt/key delete", "activate", "key", "forget web1"}},
		{name: "the option keeps the cache", order: keystore.Order{Action: "delete"},
			preserve: true,
			did:      []string{"stage", "salt/key delete", "activate", "key"}},
		{name: "the order keeps the cache",
			order: keystore.Order{Action: "delete", PreserveMinions: true},
			did:   []string{"stage", "salt/key delete", "activate", "key"}},
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
			did:   []string{"stage", "salt/key delete", "activate", "forget web1"},
			warns: []string{"the AES key is not rotated", "not removed: broken"}},
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
				StageAES: func(ctx context.Context) (uint64, error) {
					did = append(did, "stage")
					return g.stageAES(ctx)
				},
				ActivateAES: func(context.Context, uint64) error {
					did = append(did, "activate")
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

// An order that ends early does what follows from the keys that it changed.
func TestOrdersThatEndEarly(t *testing.T) {
	t.Parallel()
	const minions = 3000 // in three commands
	for _, tt := range []struct {
		name   string
		writes int    // of the order, after which the quorum is lost
		leaves string // when the caller goes away: at the first write, confirm or forget
		parts  int
		warns  int
		err    error
	}{
		{name: "without a quorum after the first part", writes: 1, parts: 1, warns: 1,
			err: &cluster.NoQuorumError{}},
		{name: "left during the first part", leaves: "write", parts: 1, err: context.Canceled},
		{name: "left while masters confirm", leaves: "confirm", parts: 3},
		{name: "left while data is removed", leaves: "forget", parts: 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			var ids []string
			for n := range minions {
				ids = append(ids, fmt.Sprintf("web%04d.of.the.example.test", n))
				g.apply(&fsm.ImportKeys{Keys: []fsm.Key{{ID: ids[n], State: fsm.KeyAccepted,
					Pub: pems()[0]}}, At: time.Now()})
			}
			g.last = tt.writes
			ctx, leave := context.WithCancel(t.Context())
			at := func(point string) {
				if point == tt.leaves {
					leave()
				}
			}
			g.done = func() { at("write") }
			g.confirms = func(ctx context.Context) {
				at("confirm")
				if ctx.Err() != nil {
					t.Error("the others are not waited for")
				}
			}
			var fired, forgot []string
			rotated := 0
			orders := keystore.NewOrders(store(t, g), keystore.Surroundings{
				Fire: func(tag string, data value.Map) {
					if id, ok := data.Get("id"); ok && tag == "salt/key" {
						fired = append(fired, id.(string))
					}
				},
				Forget: func(ctx context.Context, id string) error {
					at("forget")
					forgot = append(forgot, id)
					return ctx.Err()
				},
				StageAES: g.stageAES,
				ActivateAES: func(ctx context.Context, epoch uint64) error {
					rotated++
					return cmp.Or(ctx.Err(), g.activateAES(ctx, epoch))
				},
				RotateAESKey: true,
			})
			changed, warnings, err := orders.Order(ctx, keystore.Order{Action: "delete", IDs: ids})
			var noQuorum *cluster.NoQuorumError
			switch {
			case tt.err == nil && err != nil, tt.err != nil && err == nil,
				tt.writes > 0 && !errors.As(err, &noQuorum),
				tt.writes == 0 && !errors.Is(err, tt.err):
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if g.writes != tt.parts {
				t.Errorf("%d parts, want %d", g.writes, tt.parts)
			}
			var gone []string
			for _, k := range changed {
				gone = append(gone, k.ID)
			}
			for _, id := range ids {
				if _, there := g.state.Key(id); there == slices.Contains(gone, id) {
					t.Fatalf("%s: is there: %t; said to be changed: %t", id, there, !there)
				}
			}
			if len(gone) == 0 || !slices.Equal(fired, gone) || !slices.Equal(forgot, gone) ||
				rotated != 1 || len(warnings) != tt.warns {
				t.Errorf("%d keys changed, %d events, %d minions forgotten, %d rotations, %d warnings",
					len(gone), len(fired), len(forgot), rotated, len(warnings))
			}
		})
	}
}

// The AES key that follows from a change of keys is staged before it, so that it comes into use
// whatever happens to the master afterwards.
func TestOrdersStageTheNextAESKey(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tt := range []struct {
		name   string
		action string
		lost   int  // the command whose answer is lost
		never  bool // what became of it does not come out
		fails  bool // the activation
		taken  int  // the command before which the leader activates the staged key
		refuse bool // no key can be staged
		stays  bool // the new key is staged in the end, for the leader
		gone   int  // keys changed, as the order says
		err    error
	}{
		{name: "delete", action: "delete", gone: 3000},
		{name: "reject", action: "reject", gone: 3000},
		{name: "a lost answer that comes out", action: "delete", lost: 2, gone: 3000},
		{name: "a lost answer", action: "delete", lost: 1, never: true, stays: true, err: errUnknown},
		{name: "no activation", action: "delete", fails: true, stays: true, gone: 3000},
		{name: "another one activates it before the last keys go", action: "delete", taken: 3, fails: true,
			stays: true, gone: 3000},
		{name: "no key can be staged", action: "delete", refuse: true, err: broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			var ids []string
			for n := range 3000 { // in three commands
				ids = append(ids, fmt.Sprintf("web%04d.of.the.example.test", n))
				g.apply(&fsm.ImportKeys{Keys: []fsm.Key{{ID: ids[n], State: fsm.KeyAccepted,
					Pub: pems()[0]}}, At: time.Now()})
			}
			g.lost, g.never = tt.lost, tt.never
			active := func() uint64 { return g.state.AES().Active.Number }
			g.followed = func(_ uint64, change fsm.Change) {
				if aes := g.state.AES(); len(change.Keys) > 0 && aes.Staged.Number <= aes.Active.Number {
					t.Error("keys are changed without a staged AES key")
				}
			}
			g.done = func() {
				if g.writes+1 == tt.taken {
					g.apply(&fsm.ActivateAES{Epoch: g.state.AES().Staged.Number, At: time.Now()})
				}
			}
			before := active()
			events, rotations := 0, 0
			orders := keystore.NewOrders(store(t, g), keystore.Surroundings{
				Fire: func(tag string, _ value.Map) {
					switch tag {
					case "salt/key":
						events++
					case "key":
						rotations++
					}
				},
				Forget: func(context.Context, string) error { return nil },
				StageAES: func(ctx context.Context) (uint64, error) {
					if tt.refuse {
						return 0, broken
					}
					return g.stageAES(ctx)
				},
				ActivateAES: func(ctx context.Context, epoch uint64) error {
					if tt.fails {
						return broken
					}
					return g.activateAES(ctx, epoch)
				},
				RotateAESKey: true,
			})
			changed, warnings, err := orders.Order(t.Context(),
				keystore.Order{Action: tt.action, IDs: ids, From: []string{"minions"}})
			if !errors.Is(err, tt.err) || len(changed) != tt.gone || events != tt.gone {
				t.Errorf("%d changed, %d events, error %v", len(changed), events, err)
			}
			if all := strings.Join(warnings, "\n"); tt.fails != strings.Contains(all,
				"salt-run cluster.rotate_keys") || len(warnings) > 1 {
				t.Errorf("warnings %q", warnings)
			}
			aes := g.state.AES()
			if stays := aes.Staged.Number > aes.Active.Number; stays != tt.stays {
				t.Errorf("staged %d, active %d", aes.Staged.Number, aes.Active.Number)
			}
			done := tt.err == nil && !tt.fails
			if done != (rotations == 1) || done && active() != before+1 {
				t.Errorf("%d rotations, epoch %d after %d", rotations, active(), before)
			}
		})
	}
}

// An order that changes no key stages none.
func TestOrdersThatChangeNothingStageNothing(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	g.apply(&fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: fsm.KeyRejected, Pub: pems()[0]}},
		At: time.Now()})
	orders := keystore.NewOrders(store(t, g), keystore.Surroundings{StageAES: g.stageAES,
		RotateAESKey: true})
	for _, order := range []keystore.Order{
		{Action: "delete", IDs: []string{"web2"}},
		{Action: "delete", IDs: []string{"web1"}, From: []string{"minions"}},
		{Action: "reject", IDs: []string{"web1"}, From: []string{"minions_rejected", "minions_denied"}},
	} {
		changed, warnings, err := orders.Order(t.Context(), order)
		if len(changed)+len(warnings) > 0 || err != nil {
			t.Errorf("%+v: %v, %q, %v", order, changed, warnings, err)
		}
		if staged := g.state.AES().Staged.Number; staged != 0 {
			t.Errorf("%+v: epoch %d is staged", order, staged)
		}
	}
}

// A key that the master made replaces another one only by order, and then the old one can read no
// further publications.
func TestIssue(t *testing.T) {
	t.Parallel()
	list := pems()
	old, made := list[0], list[1]
	for _, tt := range []struct {
		name    string
		had     fsm.KeyState // of the key before; 0: none
		replace bool
		done    bool
		did     []string
	}{
		{name: "an unknown id", done: true},
		{name: "an accepted key", had: fsm.KeyAccepted},
		{name: "a pending key", had: fsm.KeyPending},
		{name: "a rejected key", had: fsm.KeyRejected},
		{name: "a denied key only", had: fsm.KeyDenied, done: true},
		{name: "an accepted key is replaced", had: fsm.KeyAccepted, replace: true, done: true,
			did: []string{"stage", "activate", "key"}},
		{name: "a pending key is replaced", had: fsm.KeyPending, replace: true, done: true},
		{name: "a rejected key is replaced", had: fsm.KeyRejected, replace: true, done: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			if tt.had != 0 {
				g.apply(&fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: tt.had, Pub: old}},
					At: time.Now()})
			}
			var did []string
			s := store(t, g)
			orders := keystore.NewOrders(s, keystore.Surroundings{
				Fire: func(tag string, _ value.Map) { did = append(did, tag) },
				StageAES: func(ctx context.Context) (uint64, error) {
					did = append(did, "stage")
					return g.stageAES(ctx)
				},
				ActivateAES: func(ctx context.Context, epoch uint64) error {
					did = append(did, "activate")
					return g.activateAES(ctx, epoch)
				},
				RotateAESKey: true,
			})
			done, warnings, err := orders.Issue(t.Context(), "web1", made+"\n", tt.replace)
			if err != nil || done != tt.done || len(warnings) != 0 || !slices.Equal(did, tt.did) {
				t.Errorf("%v, %q, %v; did %q", done, warnings, err, did)
			}
			k, _ := s.Key("web1")
			if is := k.State == keystore.Accepted && k.Pub == made; is != tt.done {
				t.Errorf("the key is %+v", k)
			}
			for _, bad := range []struct{ id, pub string }{{"../web1", made}, {"web2", "no key"}} {
				if done, _, err := orders.Issue(t.Context(), bad.id, bad.pub, true); err == nil || done {
					t.Errorf("%q with %.20q is accepted", bad.id, bad.pub)
				}
			}
		})
	}
}

// A key that replaces another one is followed by a new AES key, which is staged before, even if the
// caller has gone.
func TestIssueThatEndsEarly(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	g.apply(&fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: fsm.KeyAccepted, Pub: pems()[0]}},
		At: time.Now()})
	ctx, leave := context.WithCancel(t.Context())
	g.done = func() {
		if aes := g.state.AES(); aes.Staged.Number <= aes.Active.Number {
			t.Error("the key is replaced without a staged AES key")
		}
		leave()
	}
	g.confirms = func(ctx context.Context) {
		if ctx.Err() != nil {
			t.Error("the others are not waited for")
		}
	}
	orders := keystore.NewOrders(store(t, g), keystore.Surroundings{
		Fire:         func(string, value.Map) {},
		StageAES:     g.stageAES,
		ActivateAES:  func(ctx context.Context, _ uint64) error { return ctx.Err() },
		RotateAESKey: true,
	})
	if done, warnings, err := orders.Issue(ctx, "web1", pems()[1], true); !done ||
		len(warnings) > 0 || err != nil {
		t.Error(done, warnings, err)
	}
}

// A drop file gets one new AES key, unless it is not Salt's, or the key can't be replaced.
func TestDropFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		fails      bool // the first attempt
		stuck      bool // the file can't be removed
		did        []string
		left       bool
	}{
		{name: "of 3008", text: "m1", mode: 0o400, did: []string{"stage", "activate", "key"}},
		{name: "of 3006", mode: 0o400, did: []string{"stage", "activate", "key"}},
		{name: "at a second attempt", text: "m1", mode: 0o400, fails: true,
			did: []string{"stage", "stage", "activate", "key"}},
		{name: "of another master", text: "m2", mode: 0o400, left: true},
		{name: "with another mode", text: "m1", mode: 0o600, left: true},
		{name: "that can't be removed", text: "m1", mode: 0o400, stuck: true,
			did: []string{"stage", "activate", "key"}, left: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var did []string
			fails := tt.fails
			g := newGroup(t)
			orders := keystore.NewOrders(store(t, g), keystore.Surroundings{
				Fire: func(tag string, _ value.Map) { did = append(did, tag) },
				StageAES: func(ctx context.Context) (uint64, error) {
					did = append(did, "stage")
					if fails {
						fails = false
						return 0, errors.New("no quorum")
					}
					return g.stageAES(ctx)
				},
				ActivateAES: func(ctx context.Context, epoch uint64) error {
					did = append(did, "activate")
					return g.activateAES(ctx, epoch)
				},
			})
			dir := t.TempDir()
			path := filepath.Join(dir, ".dfn")
			if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
				t.Fatal(err)
			}
			if tt.stuck {
				mayOnlyRead(t, dir, path)
			}
			file := &keystore.DropFile{Path: path, ID: "m1", Log: slog.New(slog.DiscardHandler)}
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				cancel() // one look
				if err := file.Run(ctx, orders); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(did, tt.did) {
				t.Errorf("did %q, want %q", did, tt.did)
			}
			if _, err := os.Stat(path); (err == nil) != tt.left {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// mayOnlyRead keeps the calling test, also as root, from changing what is in a folder. It may still
// read file.
func mayOnlyRead(t *testing.T, dir, file string) {
	t.Helper()
	if os.Getuid() == 0 {
		const nobody = 65534
		runtime.LockOSThread() // the thread ends with the test
		t.Cleanup(func() { syscall.Setfsuid(0) })
		for _, err := range []error{os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755),
			os.Chown(file, nobody, nobody), syscall.Setfsuid(nobody)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o755) })
}
