package master

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
	"clustermaster/wire"
)

// signIn sends a sign-in and judges the reply as a minion does.
func (k *kit) signIn(a wire.AuthRequest) (wire.AuthAnswer, error) {
	k.t.Helper()
	if a.Key == nil {
		a.Key = minionKey()
	}
	a.Nonce = nonce()
	return wire.OpenAuthReply(a, k.handle(must(a.Pack())))
}

// TestAuthStates is line 33: the table of 1-channel.md 6.2, for each version.
func TestAuthStates(t *testing.T) {
	t.Parallel()
	pub, other := minionKey().Public().Text(), otherKey().Public().Text()
	tests := []struct {
		name       string
		state, pub string // before
		id         string
		change     func(*Options)
		accepted   bool
		ret        any
		act        string // of the event; "" for none
		after      string
	}{
		{name: "unknown", ret: true, act: "pend", after: "pend"},
		{name: "accepted", state: "accept", pub: pub, accepted: true, act: "accept",
			after: "accept"},
		{name: "accepted, key differs", state: "accept", pub: other, ret: false, act: "denied",
			after: "accept"},
		{name: "rejected", state: "reject", pub: pub, ret: false, act: "reject", after: "reject"},
		{name: "pending", state: "pend", pub: pub, ret: true, act: "pend", after: "pend"},
		{name: "pending, key differs", state: "pend", pub: other, ret: false, act: "denied",
			after: "pend"},
		{name: "auto_accept", change: func(o *Options) { o.AutoAccept = true }, accepted: true,
			act: "accept", after: "accept"},
		{name: "auto_accept, pending differs", state: "pend", pub: other,
			change: func(o *Options) { o.AutoAccept = true }, ret: false, act: "denied",
			after: "pend"},
		{name: "open_mode", state: "accept", pub: other,
			change: func(o *Options) { o.OpenMode = true }, accepted: true, act: "accept",
			after: "accept"},
		{name: "open_mode, rejected", state: "reject", pub: pub,
			change: func(o *Options) { o.OpenMode = true }, accepted: true, act: "accept",
			after: "accept"},
		{name: "invalid id", id: "../x", ret: false},
		{name: "empty id", id: "empty", ret: false},
		{name: "line break in the id", id: "x\nrun:\n  local.cmd.run: []", ret: false},
		{name: "no events", change: func(o *Options) { o.AuthEvents = false }, ret: true,
			after: "pend"},
	}
	for _, tt := range tests {
		for version := 0; version <= 3; version++ {
			k := newKit(t, func(o *Options, _ *Deps) {
				o.MinimumAuthVersion = 0
				if tt.change != nil {
					tt.change(o)
				}
			})
			id := "m1"
			switch tt.id {
			case "":
			case "empty":
				id = ""
			default:
				id = tt.id
			}
			if tt.state != "" {
				k.keys.set(id, tt.state, tt.pub)
			}
			got, err := k.signIn(wire.AuthRequest{Version: version, ID: id})
			if err != nil || got.Accepted != tt.accepted || (!tt.accepted && got.Ret != tt.ret) {
				t.Errorf("%s, version %d: got %+v, %v", tt.name, version, got, err)
				continue
			}
			if k.keys.get(id) != tt.after {
				t.Errorf("%s, version %d: key is %q after", tt.name, version, k.keys.get(id))
			}
			if tt.act == "" {
				k.noEvent()
			} else if e := k.event("salt/auth"); e.String("act") != tt.act ||
				e.String("id") != id || e.String("pub") != pub ||
				!same(field(e, "result"), tt.act == "accept" || tt.act == "pend") {
				t.Errorf("%s, version %d: event %v", tt.name, version, e)
			}
			if tt.accepted {
				s := k.cluster.Secrets()
				a, _ := k.keys.Accepted(id)
				if got.AES != s.AES[0].Key || got.PublishPort != 4505 ||
					got.Session != wire.DeriveSession(s.Session[0].Secret, id, a.PubSum, a.Index) {
					t.Errorf("%s, version %d: wrong keys", tt.name, version)
				}
			}
		}
	}
}

func TestAuthAlgorithms(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.accept("m1")
	// Line 36: all four RSA fields.
	if got, err := k.signIn(wire.AuthRequest{Version: 3, ID: "m1", EncAlgo: wire.EncSHA224,
		SigAlgo: wire.SigSHA224, Master: clusterKey().Public(),
		Token: []byte("secret token")}); err != nil || !got.Accepted {
		t.Errorf("SHA224: %+v, %v", got, err)
	}
	// Lines 34 and 35.
	for _, a := range []wire.AuthRequest{{SigAlgo: "FOO"}, {EncAlgo: "FOO"}} {
		a.Version, a.ID, a.Key, a.Nonce = 3, "m1", minionKey(), nonce()
		want := "bad enc algo"
		if a.SigAlgo != "" {
			want = "bad sig algo"
		}
		load := must(value.UnpackMap(must(a.Pack())))
		inner, _ := load.Get("load")
		for _, payload := range [][]byte{pack(load),
			pack(load.Set("load", inner.(value.Map).Set("token", []byte("x"))))} {
			if got := k.value(payload); !same(got,
				dict("enc", "clear", "load", dict("ret", want))) {
				t.Errorf("%v: got %v", want, got)
			}
		}
	}
}

func TestAuthMissingFields(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	full := dict("cmd", "_auth", "id", "m1", "pub", "x", "nonce", nonce())
	for _, key := range []string{"id", "pub", "nonce"} {
		if got := k.value(pack(dict("enc", "clear", "version", int64(3), "load",
			full.Without(key)))); got != "bad load" {
			t.Errorf("without %s: got %v", key, got)
		}
		if got := k.value(pack(dict("enc", "clear", "version", int64(3), "load",
			full.Without(key).Set(key, []any{})))); got != "bad load" {
			t.Errorf("%s a list: got %v", key, got)
		}
	}
	if k.keys.offers != 0 {
		t.Error("offered all the same")
	}
}

// TestAuthToken is line 37, and that a minion gets its token back.
func TestAuthToken(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.accept("m1")
	if got, err := k.signIn(wire.AuthRequest{Version: 3, ID: "m1", Master: clusterKey().Public(),
		Token: []byte(strings.Repeat("t", 76))}); err != nil || !got.Accepted {
		t.Errorf("token: %+v, %v", got, err)
	}
	a := wire.AuthRequest{Version: 3, ID: "m1", Key: minionKey(), Nonce: nonce()}
	outer := must(value.UnpackMap(must(a.Pack())))
	inner, _ := outer.Get("load")
	reply := must(value.UnpackMap(k.handle(pack(outer.Set("load",
		inner.(value.Map).Set("token", []byte("garbage")))))))
	if load := must(value.UnpackMap(reply.Bytes("load"))); has(load, "token") || !has(load, "aes") {
		t.Errorf("garbage token: %v", load)
	}
}

// TestAuthKeyForms is line 38, and that what is no key goes nowhere.
func TestAuthKeyForms(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.accept("m1")
	text := strings.ReplaceAll(minionKey().Public().Text(), "\n", "\r\n") + "\r\n\n"
	load := dict("cmd", "_auth", "id", "m1", "pub", text, "nonce", nonce())
	reply := k.value(pack(dict("enc", "clear", "version", int64(3), "load", load))).(value.Map)
	if inner := must(value.UnpackMap(reply.Bytes("load"))); !has(inner, "aes") {
		t.Errorf("CRLF: %v", inner)
	}
	k.event("salt/auth")
	offers := k.keys.offers
	for _, pub := range []string{"not a key", "", text + "foo: bar"} {
		load = dict("cmd", "_auth", "id", "junk", "pub", pub, "nonce", nonce())
		if got := k.value(pack(dict("enc", "clear", "version", int64(3), "load",
			load))); got != "bad load" {
			t.Errorf("%q: %v", pub, got)
		}
	}
	k.noEvent()
	if k.keys.offers != offers {
		t.Error("what is no key was offered")
	}
}

// TestMasterSignPubkey is line 39.
func TestMasterSignPubkey(t *testing.T) {
	t.Parallel()
	sign := otherKey()
	k := newKit(t, func(o *Options, _ *Deps) { o.MasterSignKey = sign })
	k.accept("m1")
	for _, algo := range []string{wire.SigSHA1, wire.SigSHA224} {
		if got, err := k.signIn(wire.AuthRequest{Version: 3, ID: "m1", VerifySign: sign.Public(),
			AlwaysVerify: true, SigAlgo: algo}); err != nil || !got.Accepted {
			t.Errorf("%s: %+v, %v", algo, got, err)
		}
	}
	if _, err := k.signIn(wire.AuthRequest{Version: 3, ID: "m1"}); !errors.Is(err, wire.ErrPubSig) {
		t.Errorf("unasked: %v", err)
	}
}

// TestMaxMinions is line 44.
func TestMaxMinions(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) { o.MaxMinions, o.AutoAccept = 1, true })
	for _, tt := range []struct {
		id   string
		full bool
	}{{"m1", false}, {"m2", false}, {"m3", true}, {"m1", false}, {"m2", false}} {
		got, err := k.signIn(wire.AuthRequest{Version: 3, ID: tt.id})
		if err != nil || got.Accepted == tt.full || (tt.full && got.Ret != "full") {
			t.Errorf("%s: %+v, %v", tt.id, got, err)
		}
		act := "accept"
		if tt.full {
			act = "full"
		}
		if e := k.event("salt/auth"); e.String("act") != act {
			t.Errorf("%s: event %v", tt.id, e)
		}
	}
	if k.keys.get("m3") != "" {
		t.Error("the third minion's key was stored")
	}
	k.keys.set("m1", "", "")
	k.keys.set("m2", "", "")
	k.signedIn.pruned = time.Time{}
	if got, err := k.signIn(wire.AuthRequest{Version: 3, ID: "m3"}); err != nil || !got.Accepted {
		t.Errorf("deleted minions count: %+v, %v", got, err)
	}
}

// TestUndecided: without a decision a minion is told to wait, never that it is refused.
func TestUndecided(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.keys.err = errors.New("no quorum")
	if got, err := k.signIn(wire.AuthRequest{Version: 3, ID: "m1"}); err != nil || got.Ret != true {
		t.Errorf("got %+v, %v", got, err)
	}
	k.noEvent()
}

// TestAutosign is lines 40 to 43.
func TestAutosign(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	lists := filepath.Join(dir, "sign")
	write(t, lists, "# comment\nexact\nweb*\n db\\d+ \n(\n", 0o644)
	write(t, filepath.Join(dir, "world"), "*\n", 0o646)
	write(t, filepath.Join(dir, "group"), "*\n", 0o664)
	write(t, filepath.Join(dir, "reject"), "bad*\nworse|worst\n", 0o644)
	write(t, filepath.Join(dir, "grains", "role"), "#x\nweb\n7\nTrue\n", 0o644)
	write(t, filepath.Join(dir, "grains", "open"), "web\n", 0o666)
	sign := func(file string) func(*Options) {
		return func(o *Options) { o.AutosignFile = filepath.Join(dir, file) }
	}
	grains := func(o *Options) { o.AutosignGrainsDir = filepath.Join(dir, "grains") }
	tests := []struct {
		name, id string
		change   func(*Options)
		grains   value.Map
		state    string
		want     string
	}{
		{name: "exact", id: "exact", change: sign("sign"), want: "accept"},
		{name: "glob", id: "web7", change: sign("sign"), want: "accept"},
		{name: "regex", id: "db12", change: sign("sign"), want: "accept"},
		{name: "regex must match all", id: "db12x", change: sign("sign"), want: "pend"},
		{name: "comment", id: "comment", change: sign("sign"), want: "pend"},
		{name: "world-writable", id: "m", change: sign("world"), want: "pend"},
		{name: "group-writable", id: "m", change: sign("group"), want: "pend"},
		{name: "group-writable, permissive", id: "m",
			change: func(o *Options) { sign("group")(o); o.PermissivePkiAccess = true },
			want:   map[bool]string{true: "pend", false: "accept"}[os.Getuid() == 0]},
		{name: "no file", id: "m", change: sign("nosuch"), want: "pend"},
		{name: "autoreject", id: "bad1",
			change: func(o *Options) {
				o.AutorejectFile = filepath.Join(dir,
					"reject")
				o.AutoAccept = true
			}, want: "reject"},
		{name: "autoreject, the beginning of an id", id: "worse1",
			change: func(o *Options) { o.AutorejectFile = filepath.Join(dir, "reject") }, want: "reject"},
		{name: "autosign, the beginning of an id", id: "worse1", change: sign("reject"), want: "pend"},
		{name: "autoreject of a pending one", id: "bad1", state: "pend",
			change: func(o *Options) { o.AutorejectFile = filepath.Join(dir, "reject") },
			want:   "reject"},
		{name: "grain", id: "m", change: grains, grains: dict("role", "web"), want: "accept"},
		{name: "grain, number", id: "m", change: grains, grains: dict("role", int64(7)),
			want: "accept"},
		{name: "grain, truth", id: "m", change: grains, grains: dict("role", true), want: "accept"},
		{name: "grain, other value", id: "m", change: grains, grains: dict("role", "db"),
			want: "pend"},
		{name: "grain, comment", id: "m", change: grains, grains: dict("role", "#x"), want: "pend"},
		{name: "grain, world-writable", id: "m", change: grains, grains: dict("open", "web"),
			want: "pend"},
		{name: "grain that leads out", id: "m", change: grains, grains: dict("../sign", "exact"),
			want: "pend"},
		{name: "no grain", id: "m", change: grains, want: "pend"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, func(o *Options, _ *Deps) { tt.change(o) })
			if tt.state != "" {
				k.keys.set(tt.id, tt.state, minionKey().Public().Text())
			}
			if _, err := k.signIn(wire.AuthRequest{Version: 3, ID: tt.id,
				AutosignGrains: tt.grains}); err != nil {
				t.Fatal(err)
			}
			if got := k.keys.get(tt.id); got != tt.want {
				t.Errorf("key is %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAutosignStub(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := newKit(t, func(o *Options, _ *Deps) { o.AutosignDir, o.AutosignTimeout = dir, time.Hour })
	stub := func(id string, age time.Duration) string {
		path := filepath.Join(dir, id)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone := func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, os.ErrNotExist)
	}
	try := func(id, want string) {
		t.Helper()
		if _, err := k.signIn(wire.AuthRequest{Version: 3, ID: id}); err != nil {
			t.Fatal(err)
		}
		if got := k.keys.get(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	fresh, old := stub("m1", 0), stub("m2", 2*time.Hour)
	try("m1", "accept")
	try("m2", "pend")
	if !gone(fresh) || !gone(old) {
		t.Error("stubs are left")
	}
	// A stub that could not be acted upon is kept.
	kept := stub("m3", 0)
	k.keys.err = errors.New("no quorum")
	try("m3", "")
	if gone(kept) {
		t.Error("the stub went without effect")
	}
	// A stub for a rejected minion is consumed, as in Salt.
	k.keys.err = nil
	k.keys.set("m4", "reject", minionKey().Public().Text())
	used := stub("m4", 0)
	try("m4", "reject")
	if !gone(used) {
		t.Error("the stub of a rejected minion is left")
	}
}

func TestAuthEventGrains(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) { o.AuthEventsAutosignGrains = []string{"pend"} })
	if _, err := k.signIn(wire.AuthRequest{Version: 3, ID: "m1",
		AutosignGrains: dict("role", "web")}); err != nil {
		t.Fatal(err)
	}
	if e := k.event("salt/auth"); !same(field(e, "autosign_grains"), dict("role", "web")) {
		t.Errorf("event %v", e)
	}
}

func TestSignatureOncePerEpoch(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.accept("m1")
	first := k.Master.keys.common()
	for range 3 {
		if _, err := k.signIn(wire.AuthRequest{Version: 3, ID: "m1"}); err != nil {
			t.Fatal(err)
		}
	}
	if k.Master.keys.common() != first {
		t.Error("the shared keys were made again without a rotation")
	}
	k.cluster.rotate(true, false)
	if got, err := k.signIn(wire.AuthRequest{Version: 3, ID: "m1"}); err != nil ||
		got.AES != k.cluster.Secrets().AES[0].Key {
		t.Errorf("after a rotation: %v", err)
	}
}
