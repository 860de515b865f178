package localcache

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"clustermaster/store/jobcache"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
	"clustermaster/value"
)

// TestExportIsReadBack: another job cache takes in the files as those of a Salt master.
func TestExportIsReadBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const early, jid, end = "20260101000000000000", "20260301000000000000", "2026, Mar 01"
	all := jobcache.New(ringtest.Alone(t, ringstore.Options{}), 0, time.Now, nil)
	load := value.Map{{Key: "fun", Value: "test.echo"}, {Key: "arg", Value: []any{"größer"}}}
	for _, id := range []string{early, jid} {
		if err := all.SaveLoad(ctx, id, load, []string{"web1", "web2"}); err != nil {
			t.Fatal(err)
		}
		for _, minion := range []string{".web1", "jid", "endtime", "nocache", "web2"} {
			if _, err := all.SaveReturn(ctx, id, minion, jobcache.Return{Return: pack(t, true)},
				nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := all.SaveReturn(ctx, id, "web1", jobcache.Return{Return: pack(t, "größer"),
			Retcode: pack(t, int64(3)), Out: "txt"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.SaveEndTime(ctx, jid, end); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	x := Exporter{Options{Dir: filepath.Join(dir, "jobs"), HashType: "sha256"}, all, nil}
	c, err := New(x.Opts, Deps{})
	if err == nil { // a write that failed, as on a full disk, left its folder
		err = os.MkdirAll(filepath.Join(c.folder(jid), "web1"), 0o700)
	}
	if err == nil { // a file where a folder should be
		err = os.WriteFile(filepath.Join(c.folder(jid), "web2"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		jobs, returns, failed, incomplete, err := x.Export(ctx, "20260201")
		if err != nil || jobs != 1 || returns != 1 || failed != 5 || incomplete != "" {
			t.Fatalf("%d jobs, %d returns, %d not, %q, %v", jobs, returns, failed, incomplete, err)
		}
	}
	again := jobcache.New(ringtest.Alone(t, ringstore.Options{}), 0, time.Now, nil)
	if done, err := again.Adopt(ctx, dir, false); err != nil || done.Jobs != 1 ||
		done.Returns != 1 || done.Failed != 0 {
		t.Fatal(done, err)
	}
	job, found, err := again.Job(ctx, jid)
	if err != nil || !found || job.Load.String("fun") != "test.echo" || job.EndTime != end ||
		len(job.Minions) != 2 {
		t.Errorf("%+v %v %v", job, found, err)
	}
	returns, err := again.Returns(ctx, jid)
	if r := returns["web1"]; err != nil || r.Out != "txt" || string(r.Return) != string(pack(t,
		"größer")) || string(r.Retcode) != string(pack(t, int64(3))) {
		t.Errorf("%+v %v", returns, err)
	}
}
