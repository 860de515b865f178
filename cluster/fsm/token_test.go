package fsm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
)

func put(n byte, owner string, expire time.Time) *fsm.PutToken {
	return &fsm.PutToken{
		Token: fsm.Token{Hash: [32]byte{n}, Owner: owner, Data: []byte(owner + " data"),
			Expire: expire}, Max: 100, MaxPerOwner: 50, At: at,
	}
}

func randomTokenCommand(r *rand.Rand) fsm.Command {
	when := at.Add(time.Duration(r.IntN(1e6)) * time.Microsecond)
	if r.IntN(4) == 0 {
		return &fsm.DropToken{Hash: [32]byte{byte(r.IntN(12))}, At: when}
	}
	c := put(byte(r.IntN(12)), fmt.Sprintf("file/user%d", r.IntN(3)),
		when.Add(time.Duration(r.IntN(5e5)-1e5)*time.Microsecond))
	c.At, c.Max, c.MaxPerOwner = when, r.IntN(8), r.IntN(5)
	return c
}

func TestTokens(t *testing.T) {
	t.Parallel()
	s := founded(t)
	index := uint64(1)
	do := func(c fsm.Command) fsm.Result {
		index++
		r, _ := s.Apply(index, through(t, c))
		return r
	}
	hour := at.Add(time.Hour)
	if r := do(put(1, "file/carol", hour)); !r.Changed || r.Refused != "" {
		t.Errorf("put: %+v", r)
	}
	if got, ok := s.Token([32]byte{1}); !ok || string(got.Data) != "file/carol data" ||
		!got.Expire.Equal(hour) {
		t.Errorf("token: %+v, %v", got, ok)
	}
	if _, ok := s.Token([32]byte{2}); ok {
		t.Error("a token that nobody put")
	}

	// Caps: of each owner, of all; a repeat takes no room.
	two := put(2, "file/carol", hour)
	two.MaxPerOwner = 1
	if r := do(two); r.Refused != fsm.RefusedFull || s.Tokens() != 1 {
		t.Errorf("second of an owner who may have one: %+v", r)
	}
	other := put(3, "file/dave", hour)
	other.Max = 1
	if r := do(other); r.Refused != fsm.RefusedFull || s.Tokens() != 1 {
		t.Errorf("second where one may be: %+v", r)
	}
	again := put(1, "file/carol", hour)
	again.Max, again.MaxPerOwner = 1, 1
	if r := do(again); r.Refused != "" {
		t.Errorf("repeat: %+v", r)
	}

	// What has expired by the time of the command makes room.
	short := put(4, "file/erin", at.Add(time.Second))
	do(short)
	late := put(5, "file/dave", hour)
	late.Max, late.At = 2, at.Add(time.Minute)
	if r := do(late); r.Refused != "" || s.Tokens() != 2 {
		t.Errorf("after the expiry of one: %+v, %d tokens", r, s.Tokens())
	}
	if r := do(&fsm.DropToken{Hash: [32]byte{1}, At: at}); !r.Changed {
		t.Errorf("drop: %+v", r)
	}
	if r := do(&fsm.DropToken{Hash: [32]byte{1}, At: at}); r.Changed || r.Refused != "" {
		t.Errorf("drop of nothing: %+v", r)
	}

	for name, c := range map[string]func(*fsm.PutToken){
		"no hash":      func(c *fsm.PutToken) { c.Token.Hash = [32]byte{} },
		"no owner":     func(c *fsm.PutToken) { c.Token.Owner = "" },
		"long owner":   func(c *fsm.PutToken) { c.Token.Owner = strings.Repeat("x", 1025) },
		"much data":    func(c *fsm.PutToken) { c.Token.Data = make([]byte, 16<<10+1) },
		"no end":       func(c *fsm.PutToken) { c.Token.Expire = time.Time{} },
		"over already": func(c *fsm.PutToken) { c.Token.Expire = c.At },
	} {
		bad := put(9, "file/carol", hour)
		c(bad)
		if r := do(bad); r.Refused != fsm.RefusedInvalid || r.Changed {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for _, c := range []fsm.Command{put(1, "x", hour), &fsm.DropToken{Hash: [32]byte{1}}} {
		if r, _ := fsm.New().Apply(1, c); r.Refused != fsm.RefusedNotFounded {
			t.Errorf("%T before there is a cluster: %+v", c, r)
		}
	}
}

// A backup brings back the tokens that have not expired until then.
func TestTokensOfABackup(t *testing.T) {
	t.Parallel()
	s := founded(t)
	s.Apply(2, put(1, "file/carol", at.Add(time.Second)))
	s.Apply(3, put(2, "file/dave", at.Add(time.Hour)))
	saved := savedOf(s)
	if len(saved.Tokens) != 2 {
		t.Fatalf("%d tokens in the backup", len(saved.Tokens))
	}
	back := founded(t)
	back.Apply(2, put(3, "file/stray", at.Add(time.Hour)))
	if r, _ := back.Apply(3, through(t, &fsm.Restore{Saved: saved,
		At: at.Add(time.Minute)})); r.Refused != "" {
		t.Fatalf("%+v", r)
	}
	if _, ok := back.Token([32]byte{2}); !ok || back.Tokens() != 1 {
		t.Errorf("%d tokens came back", back.Tokens())
	}
	if again := rebuilt(t, back); !bytes.Equal(snapshot(t, again), snapshot(t, back)) {
		t.Error("a snapshot of a snapshot differs")
	}
}
