package jobcache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/store/allotment"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
	"clustermaster/value"
	"clustermaster/wire"
)

type setup struct {
	*Cache
	store *ringstore.Store
	now   time.Time
	ctx   context.Context
}

// open makes a cache on a store of its own whose clocks stand still until moved.
func open(t *testing.T, keep int) *setup {
	t.Helper()
	s := &setup{now: time.Date(2026, 11, 21, 9, 38, 25, 0, time.UTC)}
	clock := func() time.Time { return s.now }
	store := ringtest.Alone(t, ringstore.Options{Now: clock})
	s.store, s.Cache = store, New(store, keep, clock, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	s.ctx = ctx
	return s
}

func raw(t *testing.T, v any) value.Raw {
	t.Helper()
	b, err := value.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const jid = "20261121093824128016"

func TestAJobAndItsReturns(t *testing.T) {
	t.Parallel()
	c := open(t, 86400)
	load := value.Map{{Key: "fun", Value: "test.ping"}, {Key: "tgt", Value: "*"},
		{Key: "arg", Value: []any{}}}
	if err := c.SaveLoad(c.ctx, jid, load, []string{"web2", "web1"}); err != nil {
		t.Fatal(err)
	}
	if err := c.SaveMinions(c.ctx, jid, "syndic1", []string{"db1", "web1"}); err != nil {
		t.Fatal(err)
	}
	if err := c.SaveMinions(c.ctx, jid, "syndic1", []string{"db2"}); err != nil {
		t.Fatal(err)
	}
	if err := c.SaveEndTime(c.ctx, jid, "2026, Nov 21 09:38:25.000000"); err != nil {
		t.Fatal(err)
	}
	job, found, err := c.Job(c.ctx, jid)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	want := Job{JID: jid, Load: load, Minions: []string{"db1", "db2", "web1", "web2"},
		EndTime: "2026, Nov 21 09:38:25.000000"}
	if !reflect.DeepEqual(job, want) {
		t.Errorf("job\n got %+v\nwant %+v", job, want)
	}
	ret := Return{Return: raw(t, value.Map{{Key: "a", Value: int64(1)}}), Retcode: raw(t, 0),
		Success: raw(t, true), Out: "nested", FunArgs: raw(t,
			[]any{"x"}), Stamp: "2026-11-21T09:38:25.000000+00:00"}
	if first, err := c.SaveReturn(c.ctx, jid, "web1", ret, nil); err != nil || !first {
		t.Fatal(first, err)
	}
	if first, err := c.SaveReturn(c.ctx, jid, "web1", Return{Return: raw(t, "other")},
		nil); err != nil || first {
		t.Fatal("second return:", first, err)
	}
	if first, err := c.SaveReturn(c.ctx, jid, "db1", Return{Return: raw(t, nil)},
		nil); err != nil || !first {
		t.Fatal(first, err)
	}
	got, err := c.Returns(c.ctx, jid)
	if err != nil {
		t.Fatal(err)
	}
	if wantReturns := map[string]Return{"web1": ret,
		"db1": {Return: raw(t, nil)}}; !reflect.DeepEqual(got, wantReturns) {
		t.Errorf("returns\n got %+v\nwant %+v", got, wantReturns)
	}
	if ids, err := c.Returned(c.ctx, jid); err != nil || strings.Join(ids, " ") != "db1 web1" {
		t.Error(ids, err)
	}
	// The last return tells the end, its repetition too; one that tells none changes nothing.
	for _, end := range []string{"2026, Nov 21 09:38:26.000000",
		"2026, Nov 21 09:38:27.000000", ""} {
		if _, err := c.SaveReturn(c.ctx, jid, "db2", Return{Return: raw(t, nil), End: end},
			nil); err != nil {
			t.Fatal(err)
		}
	}
	if job, _, err := c.Job(c.ctx, jid); err != nil ||
		job.EndTime != "2026, Nov 21 09:38:27.000000" {
		t.Errorf("end is %q, %v", job.EndTime, err)
	}
}

// TestNoCache: a job is marked for as long as it is kept, and the mark is none of its returns or
// minions.
func TestAnAccountReplacesNoLoad(t *testing.T) {
	t.Parallel()
	c := open(t, 86400)
	account := value.Map{{Key: "fun", Value: "cmd.run"},
		{Key: "kwargs", Value: value.Map{{Key: "password", Value: "x"}}}}
	load := value.Map{{Key: "fun", Value: "test.ping"}, {Key: "user", Value: "root"}}
	for _, step := range []struct {
		what string
		save func() error
		want string
	}{
		{"the first account", func() error { return c.SaveAccount(c.ctx, jid, "web1", account) },
			"cmd.run"},
		{"another account", func() error { return c.SaveAccount(c.ctx, jid, "web1", load) },
			"cmd.run"},
		{"who publishes", func() error { return c.SaveLoad(c.ctx, jid, load, nil) }, "test.ping"},
		{"an account after that", func() error {
			return c.SaveAccount(c.ctx, jid, "web1",
				account)
		}, "test.ping"},
	} {
		err := step.save()
		job, _, errJob := c.Job(c.ctx, jid)
		if kwargs, _ := job.Load.Get("kwargs"); err != nil || errJob != nil ||
			job.Load.String("fun") != step.want ||
			strings.Contains(fmt.Sprint(kwargs), "{password x}") {
			t.Errorf("%s: %v %v %v", step.what, job.Load, err, errJob)
		}
	}
	if err := c.SaveAccount(c.ctx, "", "web1", account); !errors.Is(err, ErrNoJID) {
		t.Error(err)
	}
}

func TestNoCache(t *testing.T) {
	t.Parallel()
	c := open(t, 86400)
	if marked, err := c.NoCache(c.ctx, jid); marked || err != nil {
		t.Fatal(marked, err)
	}
	for range 2 { // a second publisher changes nothing
		if err := c.SaveNoCache(c.ctx, jid); err != nil {
			t.Fatal(err)
		}
		if err := c.SaveLoad(c.ctx, jid, value.Map{{Key: "fun", Value: "test.ping"}},
			[]string{"web1"}); err != nil {
			t.Fatal(err)
		}
	}
	if marked, err := New(c.store, 86400, c.Cache.now, nil).NoCache(c.ctx, jid); !marked || err != nil {
		t.Error(marked, err)
	}
	if marked, err := c.NoCache(c.ctx, jid+"_1"); marked || err != nil {
		t.Error("another job is marked too", err)
	}
	job, found, err := c.Job(c.ctx, jid)
	returns, err2 := c.Returns(c.ctx, jid)
	if err != nil || err2 != nil || !found || strings.Join(job.Minions, " ") != "web1" ||
		len(returns) > 0 {
		t.Errorf("%+v, %v, %v; returns %v, %v", job, found, err, returns, err2)
	}
	c.now = c.now.Add(86402 * time.Second)
	if marked, err := c.NoCache(c.ctx, jid); marked || err != nil {
		t.Error("the mark outlives the job", err)
	}
	if err := c.SaveNoCache(c.ctx, ""); !errors.Is(err, ErrNoJID) {
		t.Error(err)
	}
}

// A return's own account of its job stays where nobody published the job, and never where somebody
// did, before or after.
func TestAReturnBringsTheLoadOfAJobThatNobodyPublished(t *testing.T) {
	t.Parallel()
	c := open(t, 86400)
	load := func(fun string) value.Map {
		return value.Map{{Key: "fun", Value: fun}, {Key: "token", Value: "secret"}}
	}
	for name, tt := range map[string]struct {
		before, after string // fun of the published load; "" for none
		want          string
	}{
		"20261121093824000001": {"", "", "first"},
		"20261121093824000002": {"published", "", "published"},
		"20261121093824000003": {"", "published", "published"},
		"myjob":                {"published", "", "published"},
		"20200101000000000000": {"", "", "first"},
	} {
		publish := func(fun string) {
			if fun == "" {
				return
			}
			if err := c.SaveLoad(c.ctx, name, load(fun), nil); err != nil {
				t.Fatal(err)
			}
		}
		publish(tt.before)
		for i, id := range []string{"web1", "web2", "web1"} {
			account := load([]string{"first", "second", "third"}[i])
			if first, err := c.SaveReturn(c.ctx, name, id, Return{Return: raw(t, i)},
				account); err != nil || first != (i < 2) {
				t.Errorf("%s: return %d: first %v, %v", name, i, first, err)
			}
		}
		publish(tt.after)
		job, found, err := c.Job(c.ctx, name)
		if err != nil || !found || job.Load.String("fun") != tt.want ||
			job.Load.String("token") == "secret" {
			t.Errorf("%s: load %v, found %v, %v; want that of %s", name, job.Load, found, err,
				tt.want)
		}
		if got, err := c.Returns(c.ctx, name); err != nil || len(got) != 2 {
			t.Errorf("%s: returns %v, %v", name, got, err)
		}
	}
}

func TestABareReturnOfAnUnknownJobIsKept(t *testing.T) {
	t.Parallel()
	c := open(t, 86400)
	for _, id := range []string{"20261121093824000001", "20200101000000000000",
		"20991231235959000000", "myjob", "20261121093824000001_77"} {
		for i, want := range []bool{true, false} {
			if first, err := c.SaveReturn(c.ctx, id, "web1", Return{Return: raw(t, i)},
				nil); err != nil || first != want {
				t.Errorf("%s return %d: first %v, %v", id, i, first, err)
			}
		}
		got, err := c.Returns(c.ctx, id)
		if err != nil || len(got) != 1 || string(got["web1"].Return) != string(raw(t, 0)) {
			t.Errorf("%s: %+v %v", id, got, err)
		}
		if job, found, err := c.Job(c.ctx, id); err != nil || found || len(job.Load) != 0 {
			t.Errorf("%s: job %+v found %v %v", id, job, found, err)
		}
	}
	if _, err := c.SaveReturn(c.ctx, "", "web1", Return{}, nil); !errors.Is(err, ErrNoJID) {
		t.Error("a return without jid:", err)
	}
	if got, err := c.Returns(c.ctx, "nosuch"); err != nil || got == nil || len(got) != 0 {
		t.Error(got, err)
	}
}

func TestSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	c := open(t, 86400)
	load := value.Map{
		{Key: "fun", Value: "test.ping"}, {Key: "key", Value: "sesame1"},
		{Key: "token", Value: "sesame2"},
		{Key: "kwargs", Value: value.Map{
			{Key: "password", Value: "sesame3"}, {Key: "username", Value: "fred"},
			{Key: "token", Value: "sesame4"}, {Key: "key", Value: "sesame5"},
			{Key: "load", Value: value.Map{{Key: "password", Value: "sesame6"}}},
			{Key: "eauth", Value: "pam"},
		}},
	}
	if err := c.SaveLoad(c.ctx, jid, load, nil); err != nil {
		t.Fatal(err)
	}
	job, _, err := c.Job(c.ctx, jid)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(job.Load); strings.Contains(text, "sesame") ||
		!strings.Contains(text, "fred") || !strings.Contains(text, "pam") {
		t.Errorf("kept %s", text)
	}
	if load.String("key") != "sesame1" || load.String("token") != "sesame2" {
		t.Error("the caller's load was changed")
	}
	list, err := c.store.List(c.ctx, ringstore.SpaceJobHeads, jid, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if strings.Contains(string(r.Value), "sesame") {
			t.Errorf("record %q holds a secret", r.Name)
		}
	}
}

func TestJobsAreListedInOrderWithoutReturns(t *testing.T) {
	t.Parallel()
	c := open(t, 86400)
	for i := range 50 {
		id := fmt.Sprintf("202611210938%08d", (i*37)%50)
		if err := c.SaveLoad(c.ctx, id, value.Map{{Key: "fun", Value: id}},
			[]string{"web1"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.SaveReturn(c.ctx, id, "web1", Return{Return: raw(t, true)},
			nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.SaveEndTime(c.ctx, "202611210938", "now"); err != nil { // a job without a load
		t.Fatal(err)
	}
	jids, cover, err := c.JIDs(c.ctx)
	if err != nil || !cover.Complete() || len(jids) != 51 || !slices.IsSorted(jids) {
		t.Fatal(jids, cover, err)
	}
	loads := map[string]bool{}
	if cover, err = c.EachLoad(c.ctx, func(jid string, load value.Raw) error {
		if fun, ok := load.Lookup("fun").Text(); !ok || fun != jid || loads[jid] {
			t.Errorf("job %s has the function %s", jid, fun)
		}
		loads[jid] = true
		return nil
	}); err != nil || !cover.Complete() || len(loads) != 50 {
		t.Error(len(loads), cover, err)
	}
	stop := errors.New("enough")
	if _, err := c.EachLoad(c.ctx, func(string, value.Raw) error { return stop }); !errors.Is(err,
		stop) {
		t.Error(err)
	}
}

func TestJobsExpire(t *testing.T) {
	t.Parallel()
	c := open(t, 3600)
	for _, id := range []string{jid, "myjob"} {
		if err := c.SaveLoad(c.ctx, id, value.Map{}, []string{"web1"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.SaveReturn(c.ctx, id, "web1", Return{Return: raw(t, true)},
			nil); err != nil {
			t.Fatal(err)
		}
	}
	// A late return goes with its job, not an hour after itself.
	c.Cache.now = func() time.Time { return c.now }
	c.now = c.now.Add(50 * time.Minute)
	if _, err := c.SaveReturn(c.ctx, jid, "web2", Return{Return: raw(t, true)}, nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.Returns(c.ctx, jid); len(got) != 2 {
		t.Fatalf("%d returns", len(got))
	}
	c.now = c.now.Add(11 * time.Minute)
	for _, id := range []string{jid, "myjob"} {
		if _, found, err := c.Job(c.ctx, id); err != nil || found {
			t.Errorf("%s is found after its time: %v", id, err)
		}
		if got, err := c.Returns(c.ctx, id); err != nil || len(got) != 0 {
			t.Errorf("%s has %d returns after its time, %v", id, len(got), err)
		}
	}
	// A return that comes after that is kept all the same.
	for i, want := range []bool{true, false} {
		if first, err := c.SaveReturn(c.ctx, jid, "web3", Return{Return: raw(t, i)},
			nil); err != nil || first != want {
			t.Errorf("late return %d: %v %v", i, first, err)
		}
	}
}

func TestKeepForEver(t *testing.T) {
	t.Parallel()
	c := open(t, 0)
	if err := c.SaveLoad(c.ctx, jid, value.Map{}, nil); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.AddDate(20, 0, 0)
	if _, found, err := c.Job(c.ctx, jid); err != nil || !found {
		t.Error(found, err)
	}
}

func TestExpiryFollowsTheJID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(nil, 3600, time.Now, nil)
		now := time.Now() // the bubble's, which begins at 2000-01-01
		for _, tc := range []struct {
			name  string
			jid   string
			at    time.Time
			exact bool
		}{
			{"now", wire.JID(now), now.Add(time.Hour + time.Second), true},
			{"suffix", wire.JID(now) + "_1", now.Add(time.Hour + time.Second), true},
			{"half an hour ago", wire.JID(now.Add(-30 * time.Minute)),
				now.Add(30*time.Minute + time.Second), true},
			{"too old", wire.JID(now.Add(-time.Hour)), now.Add(time.Hour), false},
			{"tomorrow", wire.JID(now.Add(24 * time.Hour)), now.Add(time.Hour), false},
			{"no time", "99999999999999999999", now.Add(time.Hour), false},
			{"no jid", "req", now.Add(time.Hour), false},
		} {
			at, exact := c.expiry(tc.jid)
			if !at.Equal(tc.at) || exact != tc.exact {
				t.Errorf("%s: %v %v, want %v %v", tc.name, at, exact, tc.at, tc.exact)
			}
		}
	})
}

func FuzzUnpackReturn(f *testing.F) {
	b, err := packReturn(Return{Return: value.Raw{0xc3}, Retcode: value.Raw{0}, Out: "nested",
		Stamp: "x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		unpackIDs(b)
		r, err := unpackReturn(b)
		if err != nil {
			return
		}
		packed, err := packReturn(r)
		if err != nil {
			return
		}
		again, err := unpackReturn(packed)
		if err != nil {
			t.Fatalf("%x: %v", packed, err)
		}
		if again.Out != r.Out || string(again.Retcode) != string(r.Retcode) ||
			again.Stamp != r.Stamp {
			t.Fatalf("%+v, want %+v", again, r)
		}
	})
}

// TestLimits: what minions return for jobs that nobody published has a limit, of each and of all;
// other jobs have none, and what expires makes room.
func TestLimits(t *testing.T) {
	t.Parallel()
	c := open(t, 3600)
	c.Limit(allotment.Limits{One: 100_000, All: 250_000})
	load := value.Map{{Key: "fun", Value: "test.ping"}}
	n := 0
	newJID := func() string { n++; return wire.JID(c.now.Add(time.Duration(n) * time.Millisecond)) }
	ret := func(jid, id string, bytes int, account value.Map) (bool, error) {
		return c.SaveReturn(c.ctx, jid, id, Return{Return: raw(t, strings.Repeat("x", bytes)),
			Own: account != nil}, account)
	}
	begin := func(id string, bytes int) error {
		_,
			err := ret(newJID(), id, bytes, load)
		return err
	}

	jid := newJID()
	for range 5 { // the same return again counts once
		if _, err := ret(jid, "a", 40_000, load); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin("a", 40_000); err != nil {
		t.Error(err)
	}
	if err := begin("a", 40_000); !errors.Is(err, allotment.ErrOne) {
		t.Errorf("beyond what one may: %v", err)
	}
	small := 0
	for ; small < 200 && begin("b", 1) == nil; small++ {
	}
	if small < 50 || small > 100 {
		t.Errorf("%d jobs of a byte", small)
	}
	if err := c.SaveAccount(c.ctx, newJID(), "b",
		value.Map{{Key: "arg", Value: strings.Repeat("x",
			40_000)}}); !errors.Is(err, allotment.ErrOne) {
		t.Errorf("an account beyond what one may: %v", err)
	}
	if _, err := ret(jid, "c", 60_000, load); err != nil {
		t.Errorf("for another's job: %v", err)
	}
	if err := begin("d", 60_000); !errors.Is(err, allotment.ErrAll) {
		t.Errorf("beyond what all may: %v", err)
	}
	if err := c.SaveAccount(c.ctx, newJID(), "",
		value.Map{{Key: "arg", Value: strings.Repeat("x",
			60_000)}}); !errors.Is(err, allotment.ErrAll) {
		t.Errorf("a syndic, beyond what all may: %v", err)
	}
	published := newJID()
	if err := c.SaveLoad(c.ctx, published, load, nil); err != nil {
		t.Fatal(err)
	}
	for _, account := range []value.Map{nil, load} { // known to the master as published, or not
		id := fmt.Sprint(account)
		if first, err := ret(published, id, 60_000, account); err != nil || !first {
			t.Errorf("of a published job: %v, %v", first, err)
		}
	}
	other := New(c.store, 3600, c.Cache.now, nil)
	other.Limit(allotment.Limits{One: 100_000})
	if _, err := other.SaveReturn(c.ctx, newJID(), "a",
		Return{Return: raw(t, strings.Repeat("x", 40_000)),
			Own: true}, load); !errors.Is(err, allotment.ErrOne) {
		t.Errorf("through another master: %v", err)
	}
	if jobs, _, err := c.JIDs(c.ctx); err != nil || len(jobs) != 2+small+1 {
		t.Errorf("%d jobs are listed, %v", len(jobs), err)
	}
	c.now = c.now.Add(2 * time.Hour)
	if err := begin("a", 90_000); err != nil {
		t.Errorf("after they expired: %v", err)
	}
}
