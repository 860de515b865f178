package keystore_test

import (
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
			did: []string{"salt/key rejected pub", "rotate", "key"}},
		{name: "delete", order: keystore.Order{Action: "delete"},
			did: []string{"salt/key delete", "rotate", "key", "forget web1"}},
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
			did:   []string{"salt/key delete", "rotate", "forget web1"},
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

// An order that ends early does what follows from the keys that it changed.
func TestOrdersThatEndEarly(t *testing.T) {
	t.Parallel()
	const minions = 3000 // in three commands
	for _, tt := range []struct {
		name   string
		writes int    // of the order, after which the quorum is lost
		leaves string // when the caller goes away: at the first write, confirm or forget
		parts  int
		err    error
	}{
		{name: "without a quorum after the first part", writes: 1, parts: 1,
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
				RotateAES: func(ctx context.Context) error {
					rotated++
					return ctx.Err()
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
				rotated != 1 || len(warnings) > 0 {
				t.Errorf("%d keys changed, %d events, %d minions forgotten, %d rotations, %d warnings",
					len(gone), len(fired), len(forgot), rotated, len(warnings))
			}
		})
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
			did: []string{"rotate", "key"}},
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
				Fire:         func(tag string, _ value.Map) { did = append(did, tag) },
				RotateAES:    func(context.Context) error { did = append(did, "rotate"); return nil },
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

// A key that replaces another one is followed by a new AES key, even if the caller has gone.
func TestIssueThatEndsEarly(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	g.apply(&fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: fsm.KeyAccepted, Pub: pems()[0]}},
		At: time.Now()})
	ctx, leave := context.WithCancel(t.Context())
	g.done = leave
	g.confirms = func(ctx context.Context) {
		if ctx.Err() != nil {
			t.Error("the others are not waited for")
		}
	}
	orders := keystore.NewOrders(store(t, g), keystore.Surroundings{
		Fire:      func(string, value.Map) {},
		RotateAES: func(ctx context.Context) error { return ctx.Err() }, RotateAESKey: true,
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
		{name: "of 3008", text: "m1", mode: 0o400, did: []string{"rotate", "key"}},
		{name: "of 3006", mode: 0o400, did: []string{"rotate", "key"}},
		{name: "at a second attempt", text: "m1", mode: 0o400, fails: true,
			did: []string{"rotate", "rotate", "key"}},
		{name: "of another master", text: "m2", mode: 0o400, left: true},
		{name: "with another mode", text: "m1", mode: 0o600, left: true},
		{name: "that can't be removed", text: "m1", mode: 0o400, stuck: true,
			did: []string{"rotate", "key"}, left: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var did []string
			fails := tt.fails
			orders := keystore.NewOrders(store(t, newGroup(t)), keystore.Surroundings{
				Fire: func(tag string, _ value.Map) { did = append(did, tag) },
				RotateAES: func(context.Context) error {
					did = append(did, "rotate")
					if fails {
						fails = false
						return errors.New("no quorum")
					}
					return nil
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
