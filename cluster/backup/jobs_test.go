package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/store/jobcache"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
	"clustermaster/value"
)

// A job whose returns are too many for one list is written in parts, and comes back whole.
func TestLargeJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const jid, end, minions = "20260101000000000000", "2026, Jan 01", 5
	from := Files{Jobs: jobcache.New(ringtest.Alone(t, ringstore.Options{MaxList: 1 << 20}), 0, time.Now, nil)}
	to := Files{Jobs: jobcache.New(ringtest.Alone(t, ringstore.Options{}), 0, time.Now, nil)}
	load := value.Map{{Key: "fun", Value: "cmd.run"}}
	var ids []string
	for i := range minions {
		ids = append(ids, fmt.Sprint("web", i))
	}
	if err := errors.Join(from.Jobs.SaveLoad(ctx, jid, load, ids), from.Jobs.SaveEndTime(ctx, jid, end)); err != nil {
		t.Fatal(err)
	}
	want := map[string]jobcache.Return{}
	for i, id := range ids {
		text, err := value.Pack(string(bytes.Repeat([]byte{'a' + byte(i)}, maxPart/3)))
		if err != nil {
			t.Fatal(err)
		}
		r := jobcache.Return{Return: text, Retcode: []byte{byte(i)}, Out: "txt"}
		if _, err := from.Jobs.SaveReturn(ctx, jid, id, r, nil); err != nil {
			t.Fatal(err)
		}
		want[id] = r
	}
	job, _, err := from.Jobs.Job(ctx, jid)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	w, err := NewWriter(&file, phrase, About{}, fsm.Saved{})
	if err == nil {
		err = errors.Join(from.saveJob(ctx, w, job), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&file, phrase)
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	for ; ; parts++ {
		part, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = to.putJob(ctx, part)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if parts < 2 {
		t.Errorf("%d parts", parts)
	}
	got, err := to.Jobs.Returns(ctx, jid)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d returns, %v", len(got), err)
	}
	for id, w := range want {
		if g := got[id]; !bytes.Equal(g.Return, w.Return) || !bytes.Equal(g.Retcode, w.Retcode) || g.Out != w.Out {
			t.Errorf("return of %s: %d bytes, %v, %q", id, len(g.Return), g.Retcode, g.Out)
		}
	}
	if back, found, err := to.Jobs.Job(ctx, jid); err != nil || !found || back.EndTime != end ||
		!reflect.DeepEqual(back.Minions, ids) {
		t.Errorf("%+v %v %v", back, found, err)
	}
}
