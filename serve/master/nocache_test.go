package master

import (
	"context"
	"errors"
	"testing"

	"clustermaster/value"
	"clustermaster/wire"
)

// TestNoCacheOfAPublish: the returns of such a job are told and not kept, at whichever master they
// enter; the job itself is.
func TestNoCacheOfAPublish(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a", "b", "c"}, func(o *Options) { o.StoreEndTime = true })
	ms.ready()
	a, b, c := ms.nodes["a"], ms.nodes["b"], ms.nodes["c"]
	jobs := a.jobs
	for name, jid := range map[string]string{"made": "", "passed": "20261121093500438490"} {
		t.Run(name, func(t *testing.T) {
			got := a.publish(PublishRequest{Tgt: "m*", Fun: "test.ping", JID: jid,
				Kwargs: dict("nocache", true), User: "root"})
			jobs.mu.Lock()
			asked := jobs.asked
			jobs.mu.Unlock()
			a.ret(got.JID, "m1")
			b.ret(got.JID, "m2")
			if jobs.asked != asked {
				t.Errorf("the ring was asked %d times by masters that had the publication",
					jobs.asked-asked)
			}
			c.known = newKnownJobs() // it started anew
			c.ret(got.JID, "m3")
			b.publish(PublishRequest{Tgt: "m*", Fun: "test.ping", JID: got.JID,
				Kwargs: dict("nocache", false), User: "root"})
			c.known = newKnownJobs()
			c.ret(got.JID, "m3")
			b.ret(got.JID, "m3")
			if n := len(jobs.returns[got.JID]); n > 0 {
				t.Errorf("%d returns are kept", n)
			}
			if l := jobs.loads[got.JID]; l.String("fun") != "test.ping" ||
				len(jobs.minions[got.JID]) == 0 {
				t.Errorf("the job is kept as %v for %v", l, jobs.minions[got.JID])
			}
			if jobs.ends[got.JID] < wire.JIDTime(got.JID) {
				t.Errorf("it ended at %q", jobs.ends[got.JID])
			}
		})
	}
	for _, off := range []any{false, nil, "", int64(0)} {
		got := a.publish(PublishRequest{Tgt: "m*", Fun: "test.ping", Kwargs: dict("nocache", off),
			User: "root"})
		b.ret(got.JID, "m1")
		if len(jobs.returns[got.JID]) != 1 {
			t.Errorf("nocache %v: the return is not kept", off)
		}
	}
}

// TestNoCacheAfterwards: a job that is known to keep returns is told by the publication that it
// does no more.
func TestNoCacheAfterwards(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a", "b"}, nil)
	ms.ready()
	a, b := ms.nodes["a"], ms.nodes["b"]
	got := a.publish(PublishRequest{Tgt: "m*", Fun: "test.ping"})
	b.ret(got.JID, "m1")
	a.publish(PublishRequest{Tgt: "m*", Fun: "test.ping", JID: got.JID,
		Kwargs: dict("nocache", int64(1))})
	b.ret(got.JID, "m2")
	a.ret(got.JID, "m3")
	if kept := a.jobs.returns[got.JID]; len(kept) != 1 {
		t.Errorf("kept: %v", kept)
	}
}

// TestNoCacheOfAReturn: the word of a minion about a job that somebody published counts for
// nothing, as in Salt.
func TestNoCacheOfAReturn(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	const jid = "20261121093500438490"
	k.accept("m1").call(dict("cmd", "_return", "return", true, "jid", jid, "fun", "test.ping",
		"nocache", true))
	if len(k.jobs.returns[jid]) != 1 || k.jobs.nocache[jid] {
		t.Errorf("kept %v, marked %v", k.jobs.returns[jid], k.jobs.nocache[jid])
	}
}

// TestNoCacheUnknown: a return is not acknowledged while nobody can say whether it is to be kept.
func TestNoCacheUnknown(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	k.jobs.err = errors.New("no quorum")
	load := dict("cmd", "_return", "return", true, "jid", "20261121093500438490", "fun",
		"test.ping")
	if _, err := k.Handle(context.Background(),
		Request{Payload: m.seal(load, nonce())}); !errors.Is(err, errUnacknowledged) {
		t.Errorf("the reply has error %v", err)
	}
	if _, err := k.Publish(t.Context(), PublishRequest{Tgt: "m1", Fun: "test.ping",
		Kwargs: dict("nocache", true)}); err == nil || k.subs.count() > 0 {
		t.Errorf("published with %v", err)
	}
}

// TestNoCacheOfAnOrder: nocache of publish on port 4506.
func TestNoCacheOfAnOrder(t *testing.T) {
	t.Parallel()
	k := newOrderKit(t, nil)
	reply, _ := k.order(publishOf("key", keyOf("salt"), "kwargs",
		dict("nocache", true))).(value.Map)
	load, _ := field(reply, "load").(value.Map)
	jid := load.String("jid")
	k.accept("m1").call(dict("cmd", "_return", "return", true, "jid", jid, "fun", "test.ping"))
	if !k.jobs.nocache[jid] || len(k.jobs.returns[jid]) > 0 ||
		k.jobs.loads[jid].String("fun") != "test.ping" {
		t.Errorf("%v: marked %v, returns %v, load %v", reply, k.jobs.nocache[jid],
			k.jobs.returns[jid], k.jobs.loads[jid])
	}
}

// TestNoCacheOfASchedule: a minion's own job that keeps no return is listed all the same.
func TestNoCacheOfASchedule(t *testing.T) {
	t.Parallel()
	for _, cached := range []bool{true, false} {
		k := newKit(t, func(o *Options, _ *Deps) { o.JobCache = cached })
		k.accept("m1").call(dict("cmd", "_return", "return", true, "jid", "req", "nocache", true,
			"fun", "test.ping"))
		if len(k.jobs.loads) != 1 || len(k.jobs.returns) > 0 || len(k.jobs.nocache) != 1 {
			t.Errorf("job_cache %v: loads %v, returns %v, marked %v", cached, k.jobs.loads,
				k.jobs.returns, k.jobs.nocache)
		}
	}
}
