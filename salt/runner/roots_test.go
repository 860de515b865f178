package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// fakeRoots answers as a cluster of three would.
type fakeRoots struct {
	alone bool
	asked RootsRequest
	views []RootsView
	err   error
}

func (f *fakeRoots) Clustered() bool { return !f.alone }

func (f *fakeRoots) SyncRoots(_ context.Context, r RootsRequest,
	watch func(RootsProgress)) ([]RootsView, error) {
	f.asked = r
	watch(RootsProgress{Tree: "file_roots", Peer: "m2/1", Bytes: 50, BytesTotal: 200, Items: 1,
		ItemsTotal: 4})
	watch(RootsProgress{Tree: "file_roots", Peer: "m3/1", Bytes: 200, BytesTotal: 200, Items: 4,
		ItemsTotal: 4})
	<-time.After(400 * time.Millisecond) // longer than the meter's tick
	return f.views, f.err
}

func (f *fakeRoots) RootsStatus(context.Context, string) ([]RootsView, error) {
	return f.views,
		f.err
}

var rootsViews = []RootsView{{
	Tree: "file_roots", Head: 7, Published: true, Source: "m1",
	At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Items: 1234, Bytes: 5 << 20,
	Peers: []RootsPeer{
		{ID: "m1", Source: true, Head: 7,
			Skipped: []string{`base:0 "out": the link leads out of the root`}},
		{
			ID: "m2", Head: 7, Added: 2, Changed: 1, Deleted: 3, Bytes: 12345, Seconds: 1.2345,
			Drifted: 22,
			Drift: []RootsDrift{{"edited", "base:0 top.sls"},
				{"added", "base:0 odd\nname\x1b[31m"}}, Kept: 1, KeptIn: []string{"/srv/kept"},
		},
		{ID: "m3", Head: 6, Away: true},
		{ID: "master-four", Head: 6, Error: "no room"},
	},
}}

const rootsTable = `file_roots: head 7, published; 1234 items, 5.0 MiB
  peer         result  added  changed  deleted  bytes  seconds
  m1           source      -        -        -      -        -
  m2           drift       2        1        3  12345     1.23
  m3           away        -        -        -      -        -
  master-four  failed      -        -        -      -        -
  m1: not synced, or not in full
    base:0 "out": the link leads out of the root
  m2: changed there since its last sync, and left alone (force=True makes it like the source and keeps the old ones aside)
    edited  base:0 top.sls
    added   base:0 odd\nname\x1b[31m
    and 20 more
  m2: 1 replaced items are kept aside in
    /srv/kept
  master-four: no room
`

const rootsStatus = `file_roots: head 7, published by m1 at 2026-01-02T03:04:05Z
  peer         head  result  drift
`

func TestRootsFunctions(t *testing.T) {
	t.Parallel()
	f := &fakeRoots{views: rootsViews}
	reg, err := NewRegistry(Roots(f))
	if err != nil {
		t.Fatal(err)
	}
	r := New(RunnerClient, reg, Deps{ID: "m1", NewJID: func() string { return "1" }})
	shown := map[string][]string{}
	call := func(fun string, kwargs value.Map) Result {
		clear(shown)
		return r.Run(t.Context(), Request{Fun: fun, Kwargs: kwargs},
			func(kind string, v any) { shown[kind] = append(shown[kind], value.Str(v)) })
	}
	res := call("cluster.sync_roots", value.Map{{Key: "roots", Value: "file"},
		{Key: "saltenv", Value: "dev"}, {Key: "force", Value: true}})
	if f.asked != (RootsRequest{Roots: "file", Saltenv: "dev", Force: true}) {
		t.Errorf("asked for %+v", f.asked)
	}
	if got := strings.Join(shown["show"], ""); got != rootsTable {
		t.Errorf("got\n%s\nwant\n%s", got, rootsTable)
	}
	const bar = "[##################------------]  62%  250 B of 400 B, 5 of 8 files, 1 masters fetching"
	if m := shown["meter"]; len(m) != 2 || m[0] != bar || m[1] != "" {
		t.Errorf("meter: %q", m)
	}
	m, _ := res.Return.(value.Map)
	tree, _ := m.Get("file_roots")
	peers, _ := tree.(value.Map).Get("peers")
	two, _ := peers.(value.Map).Get("m2")
	if res.Retcode != 1 || res.Success { // one that could be reached has failed
		t.Errorf("retcode %d", res.Retcode)
	}
	if n, _ := two.(value.Map).Get("seconds"); n != 1.234 {
		t.Errorf("m2 is %v", two)
	}

	res = call("cluster.roots_status", nil)
	if got := strings.Join(shown["show"], ""); !strings.HasPrefix(got, rootsStatus) ||
		!strings.Contains(got, "  m3           -     away        -\n") {
		t.Errorf("got\n%s", got)
	}

	f.err = errors.New("sync pillar_roots: no quorum")
	res = call("cluster.sync_roots", nil)
	if res.Success || !strings.Contains(value.Str(res.Return), "no quorum") ||
		!strings.HasPrefix(strings.Join(shown["print"], ""), "file_roots: head 7, published") {
		t.Errorf("what was done before is lost: %+v, %q", res, shown)
	}

	f.alone = true
	res = call("cluster.sync_roots", nil)
	if want := "{'status': 'skipped', 'reason': 'no cluster_id configured; this master is not a cluster member'}"; value.Repr(res.Return) != want || res.Retcode != 0 {
		t.Errorf("got %s", value.Repr(res.Return))
	}
}

func TestSizesForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB",
		1536: "1.5 KiB", 64 << 20: "64.0 MiB", 2 << 30: "2.0 GiB", 1 << 62: "4.0 EiB"} {
		if got := byteText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
