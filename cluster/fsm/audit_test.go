package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
)

var root = fsm.Orderer{At: at, Master: "m1", User: "root", From: "socket, uid 0", Order: "salt-key"}

func audited(t testing.TB, by fsm.Orderer, c fsm.Command) *fsm.Audited {
	t.Helper()
	a, ok, err := fsm.NewAudited(by, c)
	if err != nil || !ok {
		t.Fatalf("%T: audited %v, %v", c, ok, err)
	}
	return a
}

// told is what a record says, on one line.
func told(a fsm.Audit) string {
	return fmt.Sprintf("%d %s %s %s %v+%d changed=%v refused=%s x%d", a.Number, a.By.User,
		fsm.AuditKinds[a.Kind], a.Action, a.Subjects, a.More,
		a.Changed, a.Refused, a.Times)
}

func TestAuditTellsWhoChangedWhat(t *testing.T) {
	t.Parallel()
	s := founded(t)
	carol, reactor := root, root
	carol.User, carol.Eauth, carol.At = "carol", "pam", at.Add(time.Minute)
	reactor.User, reactor.Automatic = "Reactor", true
	var many []fsm.Key
	for i := range 25 {
		many = append(many, fsm.Key{ID: fmt.Sprintf("w%02d", i), State: fsm.KeyPending, Pub: "PUB"})
	}
	token := fsm.Token{Hash: [32]byte{1}, Owner: "pam/carol", Data: []byte("x"),
		Expire: at.Add(time.Hour)}
	pending := fsm.StateSet(fsm.KeyPending)
	accept := func(ids ...string) *fsm.ChangeKeys {
		return &fsm.ChangeKeys{Action: fsm.AcceptKeys, IDs: ids, From: pending, At: at}
	}
	index := uint64(1)
	apply := func(by fsm.Orderer, c fsm.Command) (fsm.Result, fsm.Change) {
		index++
		return s.Apply(index, through(t, audited(t, by, c)))
	}
	apply(root, &fsm.ImportKeys{Keys: many, At: at})
	if _, change := apply(carol, accept("w00", "w01", "stranger")); change.Op != fsm.OpChangeKeys ||
		len(change.Keys) != 2 {
		t.Errorf("followers are told %+v, want the change within", change)
	}
	apply(reactor, accept("w00"))  // changes nothing: no record
	apply(reactor, accept("w02"))  // does
	apply(root, accept("nobody"))  // changes nothing, three times
	apply(carol, accept("nobody")) // somebody else
	apply(root, accept("nobody"))
	apply(root, accept("nobody"))
	apply(root, &fsm.RemoveMember{Node: "m9/1", At: at})
	apply(root, &fsm.PutMember{Member: member(1), At: at}) // a member already: no record
	apply(root, &fsm.PutMember{Member: member(2), At: at})
	apply(root, &fsm.MarkMember{Node: member(2).Node, Mark: fsm.MarkDrain, At: at})
	apply(root, &fsm.SetJoinKey{JoinKey: []byte("new")})
	apply(carol, &fsm.PutToken{Token: token, Max: 1, MaxPerOwner: 1, At: at})
	token.Hash[0] = 2
	apply(carol, &fsm.PutToken{Token: token, Max: 1, MaxPerOwner: 1, At: at})
	apply(root, &fsm.DropToken{Hash: [32]byte{1}, At: at})
	var got []string
	for _, a := range s.Audits() {
		got = append(got, told(a))
	}
	first := strings.Fields("w00 w01 w02 w03 w04 w05 w06 w07 w08 w09 w10 w11 w12 w13 w14 w15 w16 w17 w18 w19")
	want := []string{
		fmt.Sprintf("1 root keys import %v+5 changed=true refused= x1", first),
		"2 carol keys accept [w00 w01]+0 changed=true refused= x1",
		"3 Reactor keys accept [w02]+0 changed=true refused= x1",
		"4 root keys accept [nobody]+0 changed=false refused= x1",
		"5 carol keys accept [nobody]+0 changed=false refused= x1",
		"7 root keys accept [nobody]+0 changed=false refused= x2",
		"8 root members remove [m9]+0 changed=false refused=not-member x1",
		"9 root members join [m2]+0 changed=true refused= x1",
		"10 root members drain [m2]+0 changed=true refused= x1",
		"11 root secrets rotate [cluster_secret]+0 changed=true refused= x1",
		"12 carol tokens make [pam/carol]+0 changed=true refused= x1",
		"13 carol tokens make [pam/carol]+0 changed=false refused=full x1",
		"14 root tokens delete [pam/carol]+0 changed=true refused= x1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if made, kept := s.AuditsMade(); made != 14 || kept != len(want) {
		t.Errorf("made %d, kept %d", made, kept)
	}
	by := s.Audits()[1].By
	if by != carol {
		t.Errorf("got %+v, want %+v", by, carol)
	}
}

// A repeat of an order whose answer was lost makes no second record, and the change happens once.
func TestAuditOfARepeat(t *testing.T) {
	t.Parallel()
	s := founded(t)
	once, err := fsm.NewOnce(strings.Repeat("t", 16),
		audited(t, root, &fsm.SetJoinKey{JoinKey: []byte("new")}))
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(2, through(t, once))
	s.Apply(3, through(t, once))
	if n := len(s.Audits()); n != 1 {
		t.Errorf("%d records", n)
	}
}

// What comes from callers is cut, each list is bounded by number and bytes, and none pushes out
// another.
func TestAuditIsBounded(t *testing.T) {
	t.Parallel()
	s := founded(t)
	s.Apply(2, audited(t, root, &fsm.SetJoinKey{JoinKey: []byte("new")}))
	s.Apply(3, audited(t, root, &fsm.PutMember{Member: member(2), At: at}))
	mark := func(i int, by fsm.Orderer) {
		m := []fsm.Mark{fsm.MarkDrain, fsm.MarkUndrain}[i%2]
		s.Apply(uint64(4+i), audited(t, by, &fsm.MarkMember{Node: member(2).Node, Mark: m, At: at}))
	}
	for i := range 1500 {
		mark(i, root)
	}
	if made, kept := s.AuditsMade(); made != 1502 || kept != 1001 {
		t.Errorf("%d made, %d kept; want 1502 and 1000 of members beside one of secrets",
			made, kept)
	}
	long := root
	long.User, long.From, long.Order = strings.Repeat("ü", 5000), strings.Repeat("f",
		5000), strings.Repeat("o", 5000)
	for i := range 1500 {
		mark(i, long)
	}
	records := s.Audits()
	if a := records[0]; a.Kind != fsm.AuditSecrets {
		t.Errorf("the oldest is %+v", a)
	}
	last := records[len(records)-1]
	if last.By.User != strings.Repeat("ü", 128) || len(last.By.From) != 256 ||
		len(last.By.Order) != 256 {
		t.Errorf("texts of %d, %d, %d bytes", len(last.By.User), len(last.By.From),
			len(last.By.Order))
	}
	if size := len(snapshot(t, s)); size > 400<<10 {
		t.Errorf("a snapshot of %d bytes", size)
	}
}

// The commands with secrets get them from here, and nothing of them is in the records.
func TestAuditHasNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "THE-SECRET"
	s := founded(t)
	saved := savedOf(s)
	saved.AES, saved.Session = secret, []byte(secret)
	saved.Tokens = []fsm.Token{{Hash: [32]byte{9}, Owner: "pam/dave", Data: []byte(secret),
		Expire: at.Add(time.Hour)}}
	var hash [32]byte
	copy(hash[:], secret)
	m := member(3)
	m.Pub = secret
	for i, c := range []fsm.Command{
		&fsm.SetJoinKey{JoinKey: []byte(secret)}, &fsm.StageAES{Key: secret, At: at},
		&fsm.StageSession{Secret: []byte(secret), At: at},
		&fsm.SetUserKeys{Keys: []fsm.UserKey{{User: "root", Key: secret}}},
		&fsm.PutToken{Token: fsm.Token{Hash: hash, Owner: "pam/carol", Data: []byte(secret),
			Expire: at.Add(time.Hour)}, Max: 9, MaxPerOwner: 9, At: at},
		&fsm.DropToken{Hash: hash, At: at}, &fsm.PutMember{Member: m, At: at},
		&fsm.ImportKeys{Keys: []fsm.Key{{ID: "minion1", State: fsm.KeyPending, Pub: secret}},
			At: at},
		&fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"minion1"}, From: 0xff, At: at},
		&fsm.ChangeReactor{Action: fsm.AddReactor, Tag: "tag", Files: []string{secret}, At: at},
		&fsm.Restore{Saved: saved, At: at},
		&fsm.Recover{Node: member(1).Node, UUID: secret, At: at},
	} {
		s.Apply(uint64(2+i), audited(t, root, c))
		records := s.Audits()
		if len(records) != i+1 {
			t.Fatalf("%T: %d records after %d orders", c, len(records), i+1)
		}
		if text := fmt.Sprintf("%+v", records[i]); strings.Contains(text, secret) {
			t.Errorf("%T: the record has the secret: %s", c, text)
		}
	}
}

func TestAuditedHoldsNoOther(t *testing.T) {
	t.Parallel()
	inner := audited(t, root, &fsm.SetJoinKey{JoinKey: []byte("k")})
	once, err := fsm.NewOnce(strings.Repeat("t", 16), &fsm.Noop{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []fsm.Command{inner, once} {
		if _, ok, _ := fsm.NewAudited(root, c); ok {
			t.Errorf("%T is audited", c)
		}
		entry, err := fsm.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if entry, err = fsm.Encode(&fsm.Audited{By: root, Entry: entry}); err != nil {
			t.Fatal(err)
		}
		if _, err := fsm.Decode(entry); !errors.Is(err, fsm.ErrCorrupt) {
			t.Errorf("%T within Audited: %v", c, err)
		}
	}
	if _, ok, err := fsm.NewAudited(root, &fsm.OfferKey{ID: "a"}); ok || err != nil {
		t.Errorf("a minion's request is audited: %v, %v", ok, err)
	}
}

// A state that was restored from a snapshot goes on as its writer does.
func TestAuditsGiveEqualBytes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		a, b := fsm.New(), fsm.New()
		const n = 200
		cut := r.IntN(n)
		for i := range n {
			cmd := randomCommand(r)
			if i == 0 {
				cmd = found()
			}
			by := root
			by.User, by.Automatic = fmt.Sprint(r.IntN(2)), r.IntN(2) == 0
			if c, ok, err := fsm.NewAudited(by, cmd); err != nil {
				t.Fatal(err)
			} else if ok {
				cmd = c
			}
			a.Apply(uint64(i+1), through(t, cmd))
			if i > cut {
				b.Apply(uint64(i+1), through(t, cmd))
			}
			if i == cut {
				raise(t, a, uint64(i+1))
				if err := b.Restore(bytes.NewReader(snapshot(t, a))); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
		if !bytes.Equal(snapshot(t, a), snapshot(t, b)) {
			t.Fatalf("seed %d: the states differ", seed)
		}
	}
}

// raise brings a state to the level that has the trail.
func raise(t testing.TB, s *fsm.State, index uint64) {
	t.Helper()
	if r, _ := s.Apply(index, &fsm.SetLevel{Level: 2, Release: "0.2.0", At: at}); r.Refused != "" {
		t.Fatal(r.Refused)
	}
}

// A snapshot that is being written does not change with the repeats that come meanwhile.
func TestAuditsOfASnapshotStay(t *testing.T) {
	t.Parallel()
	s := founded(t)
	refused := audited(t, root, &fsm.RemoveMember{Node: "m9/1", At: at})
	s.Apply(2, refused)
	sn := s.Snapshot()
	var before, after bytes.Buffer
	if _, err := sn.WriteTo(&before); err != nil {
		t.Fatal(err)
	}
	s.Apply(3, refused)
	if _, err := sn.WriteTo(&after); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before.Bytes(), after.Bytes()) {
		t.Error("the snapshot changed")
	}
}
