package master

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"clustermaster/serve/acl"
	"clustermaster/serve/event"
	"clustermaster/serve/master/masterpb"
	"clustermaster/value"
	"clustermaster/wire"
)

// masters is some masters that share job cache and keys, connected by gRPC over loopback.
type masters struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*peerKit
}

type peerKit struct {
	*kit
	of     *masters
	name   string
	addr   string
	server *grpc.Server
	mesh   *event.Mesh
	conns  map[string]*grpc.ClientConn
}

func newMasters(t *testing.T, names []string, change func(*Options)) *masters {
	t.Helper()
	ms := &masters{t: t, nodes: make(map[string]*peerKit)}
	jobs, keys := newFakeJobs(), newFakeKeys()
	secrets := newFakeCluster().secrets
	for _, name := range names {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := &peerKit{of: ms, name: name, addr: ln.Addr().String(),
			server: grpc.NewServer(grpc.MaxRecvMsgSize(maxDeliver)),
			conns:  make(map[string]*grpc.ClientConn)}
		p.kit = newKit(t, func(o *Options, d *Deps) {
			if change != nil {
				change(o)
			}
			data := newFakeData(keys)
			p.mesh = event.NewMesh(d.Bus, p, nil)
			d.Keys, d.Jobs, d.Data, d.Targets, d.Peers, d.Mesh = keys, jobs, data, data, p, p.mesh
		})
		p.kit.jobs, p.kit.keys = jobs, keys
		p.kit.cluster.secrets = secrets
		p.Master.RegisterRPC(p.server)
		p.mesh.RegisterRPC(p.server)
		ms.mu.Lock()
		ms.nodes[name] = p
		ms.mu.Unlock()
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = p.server.Serve(ln) })
		running.Go(func() { _ = p.mesh.Run(ctx) })
		t.Cleanup(func() {
			p.Master.Close()
			cancel()
			p.server.Stop()
			running.Wait()
			for _, c := range p.conns {
				c.Close()
			}
		})
	}
	for _, id := range []string{"m1", "m2", "m3"} {
		keys.set(id, "accept", minionKey().Public().Text())
	}
	return ms
}

func (p *peerKit) Self() string { return p.name }

func (p *peerKit) Members() []string {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	var out []string
	for name := range p.of.nodes {
		out = append(out, name)
	}
	return out
}

func (p *peerKit) Conn(node string) (grpc.ClientConnInterface, error) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	other := p.of.nodes[node]
	if other == nil {
		return nil, fmt.Errorf("no node %s", node)
	}
	if p.conns[node] == nil {
		c, err := grpc.NewClient("passthrough:///"+other.addr,
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		p.conns[node] = c
	}
	return p.conns[node], nil
}

// ready waits until the masters' streams stand. Each try ends before the mesh counts a master that
// is slow to confirm as a loss.
func (ms *masters) ready() {
	ms.t.Helper()
	for _, p := range ms.nodes {
		defer p.mesh.Follow("ready").Close()
		waitFor(ms.t, "the streams of "+p.name, func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			defer cancel()
			s, err := p.mesh.Subscribe(ctx, "ready")
			if err != nil {
				return false
			}
			defer s.Close()
			return len(s.Unconfirmed()) == 0
		})
	}
}

func (p *peerKit) publish(r PublishRequest) Published {
	p.t.Helper()
	got, err := p.Publish(context.Background(), r)
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// read opens a publication as a minion that verifies signatures does.
func (k *kit) read(p Publication) value.Map {
	k.t.Helper()
	r := wire.NewPubReader(wire.NewCrypticle(k.cluster.Secrets().AES[0].Key), clusterKey().Public())
	load, err := r.OpenPublication(p.Payload)
	if err != nil {
		k.t.Fatal(err)
	}
	return load
}

// ret makes minion id return jid at this master.
func (k *kit) ret(jid, id string) {
	k.t.Helper()
	if got := k.minion(3, id).call(dict("cmd", "_return", "return", true, "retcode", int64(0),
		"jid", jid, "fun", "test.ping")); got != nil {
		k.t.Errorf("reply %v", got)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	waitWithin(t, 20*time.Second, what, ok)
}

func waitWithin(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", limit, what)
		}
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.accept("m1")
	k.accept("m2")
	kwargs := dict("delimiter", ":", "password", "pw", "token", "tok", "metadata",
		dict("a", int64(1)), "show_jid", false, "ret_config", "alt", "start_event", true)
	r := PublishRequest{Tgt: "*", Fun: "test.arg",
		Arg: []any{"x", dict("__kwarg__", true, "a", int64(1))}, User: "root", Kwargs: kwargs}
	got, err := k.Publish(context.Background(), r)
	if err != nil || !wire.IsJID(got.JID) || !slices.Equal(got.Minions, []string{"m1", "m2"}) ||
		len(got.Missing) != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	e := k.event("salt/job/" + got.JID + "/new")
	for _, key := range []string{"jid", "tgt_type", "tgt", "user", "fun", "arg", "minions",
		"missing"} {
		if !has(e, key) {
			t.Errorf("new event lacks %s", key)
		}
	}
	load := k.read(k.subs.get(0))
	want := dict("fun", "test.arg", "arg", r.Arg, "tgt", "*", "jid", got.JID, "ret", "", "tgt_type",
		"glob", "ret_config", "alt", "metadata", dict("a", int64(1)), "start_event", true, "user",
		"root")
	if !same(load, want) {
		t.Errorf("published %v\n want     %v", load, want)
	}
	if e := k.event("salt/job/" + got.JID + "/publish"); !same(e.Without("_stamp"), load) {
		t.Errorf("publish event %v", e)
	}
	kept := k.jobs.loads[got.JID]
	for _, secret := range []string{"pw", "tok"} {
		if strings.Contains(fmt.Sprint(kept), secret+" ") ||
			strings.Contains(fmt.Sprint(kept), secret+"}") {
			t.Errorf("the job holds a secret: %v", kept)
		}
	}
	if has(kept, "key") || !has(kept, "kwargs") ||
		!slices.Equal(k.jobs.minions[got.JID], []string{"m1", "m2"}) {
		t.Errorf("job %v for %v", kept, k.jobs.minions[got.JID])
	}
	if k.subs.get(0).Hold != 0 || k.subs.get(0).Topics != nil {
		t.Errorf("publication %+v", k.subs.get(0))
	}
}

func TestPublishRefusals(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.accept("m1")
	for _, tt := range []struct {
		r       PublishRequest
		err     string
		missing string
	}{
		{PublishRequest{Tgt: "nosuch", Fun: "test.ping"},
			"Master could not resolve minions for target nosuch", ""},
		{PublishRequest{Tgt: []string{"nosuch"}, TgtType: "list", Fun: "test.ping"},
			"Master could not resolve minions for target", "nosuch"},
		{PublishRequest{Tgt: "*", Fun: "test.ping", JID: "a/b"}, "Master failed to assign jid", ""},
	} {
		got, err := k.Publish(context.Background(), tt.r)
		if err != nil || !strings.HasPrefix(got.Error, tt.err) || got.JID != "" ||
			strings.Join(got.Missing, ",") != tt.missing {
			t.Errorf("%v: got %+v, %v", tt.r.Tgt, got, err)
		}
	}
	if k.subs.count() != 0 || len(k.jobs.loads) != 0 {
		t.Error("something was sent or kept")
	}
	got, err := k.Publish(context.Background(),
		PublishRequest{Tgt: "m1,nosuch", TgtType: "list", Fun: "test.ping", JID: "mine"})
	if err != nil || got.JID != "mine" || !slices.Equal(got.Missing, []string{"nosuch"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestPublishRights: what a user may not is not sent, not kept, and told on the bus without
// secrets.
func TestPublishRights(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.accept("m1")
	k.accept("m2")
	rules := must(acl.New(acl.Options{PublisherACL: dict("carol",
		[]any{"test.*", dict("m1", []any{"cmd.run"})})}))
	order := func(tgt string, fun any, args ...any) (Published, error) {
		return k.Publish(context.Background(),
			PublishRequest{Tgt: tgt, Fun: fun, Arg: args, JID: "20260101000000000000",
				User: "carol", Rights: rules.Of("carol"), Kwargs: dict("token", "tok")})
	}
	for _, refused := range []struct {
		tgt string
		fun any
	}{{"*", "cmd.run"}, {"m2", "cmd.run"}, {"m1", []any{"test.ping", "cmd.shell"}}, {"m1",
		[]string{"cmd.shell"}}, {"nosuch", "cmd.shell"}} {
		got, err := order(refused.tgt, refused.fun)
		if err != nil || got.Error != acl.NotAuthorized || got.JID != "" {
			t.Errorf("%v: %+v, %v", refused, got, err)
		}
		e := k.event("salt/job/20260101000000000000/error")
		if e.String("user") != "carol" || !has(e, "error") ||
			strings.Contains(fmt.Sprint(e), "tok") {
			t.Errorf("%v: event %v", refused, e)
		}
		k.noEvent()
	}
	if k.subs.count() != 0 || len(k.jobs.loads) != 0 {
		t.Error("something was sent or kept")
	}
	for _, fine := range []struct {
		tgt string
		fun any
	}{{"*", "test.ping"}, {"m1", "cmd.run"}, {"m1", []any{"test.ping", "cmd.run"}}} {
		if got, err := order(fine.tgt, fine.fun, []any{}, []any{}); err != nil || got.Error != "" ||
			got.JID == "" {
			t.Errorf("%v: %+v, %v", fine, got, err)
		}
	}
}

// TestPublishSaysWhatItsTargetDoesNotCover: the job goes to whom it knows, and the answer says that
// there may be more.
func TestPublishSaysWhatItsTargetDoesNotCover(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.accept("m1")
	k.data.grains["m1"] = dict("os", "x")
	k.data.incomplete = "incomplete: 3 of 256 partitions"
	for tgt, minions := range map[string]int{"os:x": 1, "os:y": 0} {
		got, err := k.Publish(context.Background(),
			PublishRequest{Tgt: tgt, TgtType: "grain", Fun: "test.ping"})
		if err != nil || len(got.Minions) != minions || got.Incomplete != k.data.incomplete {
			t.Errorf("%s: got %+v, %v", tgt, got, err)
		}
	}
	if got, err := k.Publish(context.Background(),
		PublishRequest{Tgt: "m1", Fun: "test.ping"}); err != nil || got.Incomplete != "" {
		t.Errorf("a glob needs no grains, but got %+v, %v", got, err)
	}
}

// TestTopics is line 8, the master's part.
func TestTopics(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) { o.ZmqFiltering = true })
	k.accept("m1")
	k.accept("m2")
	k.data.grains["m1"] = dict("os", "x")
	t1, t2 := wire.Topic("m1"), wire.Topic("m2")
	for i, tt := range []struct {
		tgtType string
		tgt     any
		want    []string
	}{
		{"glob", "*", []string{t1, t2}}, {"pcre", "m1", []string{t1}},
		{"list", []string{"m2", "other"}, []string{t2, wire.Topic("other")}},
		{"list", "m2", []string{t2}}, {"grain", "os:x", []string{wire.BroadcastTopic}},
		{"compound", "m1", []string{wire.BroadcastTopic}},
	} {
		if _, err := k.Publish(context.Background(),
			PublishRequest{Tgt: tt.tgt, TgtType: tt.tgtType, Fun: "test.ping"}); err != nil {
			t.Fatal(err)
		}
		if got := k.subs.get(i).Topics; !slices.Equal(got, tt.want) {
			t.Errorf("%s %v: got %v, want %v", tt.tgtType, tt.tgt, got, tt.want)
		}
	}
	k.opts.OrderMasters = true
	for tgt, want := range map[string][]string{"nobody": {wire.BroadcastTopic},
		"m1": {t1, wire.SyndicTopic}} {
		if _, err := k.Publish(context.Background(),
			PublishRequest{Tgt: tgt, Fun: "test.ping"}); err != nil {
			t.Fatal(err)
		}
		if got := k.subs.get(k.subs.count() - 1).Topics; !slices.Equal(got, want) {
			t.Errorf("order_masters %s: got %v", tgt, got)
		}
	}
}

func TestPublishSignature(t *testing.T) {
	t.Parallel()
	for algo, ok := range map[string]bool{"": true, wire.SigSHA1: true, wire.SigSHA224: true,
		"FOO": false} {
		_, err := New(Deps{Keys: newFakeKeys(), Cluster: newFakeCluster()},
			Options{PublishSigningAlgorithm: algo}, nil, nil)
		if (err == nil) != ok {
			t.Errorf("%q: %v", algo, err)
		}
	}
	k := newKit(t, func(o *Options, _ *Deps) { o.PublishSigningAlgorithm = wire.SigSHA224 })
	k.accept("m1")
	if _, err := k.Publish(context.Background(),
		PublishRequest{Tgt: "*", Fun: "test.ping"}); err != nil {
		t.Fatal(err)
	}
	if outer := must(value.UnpackMap(k.subs.get(0).Payload)); outer.String("sig_algo") != wire.SigSHA224 {
		t.Errorf("sig_algo %v", outer.String("sig_algo"))
	}
	k.read(k.subs.get(0))
	unsigned := newKit(t, func(o *Options, _ *Deps) { o.SignPubMessages = false })
	unsigned.accept("m1")
	if _, err := unsigned.Publish(context.Background(),
		PublishRequest{Tgt: "*", Fun: "test.ping"}); err != nil {
		t.Fatal(err)
	}
	if outer := must(value.UnpackMap(unsigned.subs.get(0).Payload)); len(outer) != 2 {
		t.Errorf("unsigned publication %v", outer)
	}
}

func TestPublishReachesAllMasters(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a", "b", "c"}, nil)
	ms.ready()
	a, b := ms.nodes["a"], ms.nodes["b"]
	sub, err := a.mesh.Subscribe(context.Background(), "salt/job/")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	got := a.publish(PublishRequest{Tgt: "*", Fun: "test.ping"})
	for name, p := range ms.nodes {
		if p.subs.count() != 1 || string(p.subs.get(0).Payload) != string(a.subs.get(0).Payload) ||
			p.subs.get(0).Hold != 0 {
			t.Errorf("%s: %d publications", name, p.subs.count())
		}
	}
	// A return at one master is an event at the other.
	b.ret(got.JID, "m1")
	for tag := range map[string]bool{"new": true, "publish": true} {
		_ = tag
		<-sub.C
	}
	if e := <-sub.C; e.Tag != "salt/job/"+got.JID+"/ret/m1" {
		t.Errorf("event %s", e.Tag)
	}
}

// TestStaleKeyIsSealedAgain: a member refuses what an older AES key sealed; the sender waits for
// the newer one and seals anew.
func TestStaleKeyIsSealedAgain(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a", "b"}, nil)
	ms.ready()
	a, b := ms.nodes["a"], ms.nodes["b"]
	published := make(chan error, 1)
	publish := func() {
		_, err := a.Publish(t.Context(), PublishRequest{Tgt: "*", Fun: "test.ping"})
		published <- err
	}
	b.cluster.rotate(true, false)
	go publish()
	waitFor(t, "a's first try", func() bool { return a.subs.count() == 1 })
	a.cluster.set(b.cluster.Secrets()) // a learns of it a little later
	if err := <-published; err != nil || b.subs.count() != 1 {
		t.Fatalf("b got %d, %v", b.subs.count(), err)
	}
	b.read(b.subs.get(0))

	// The other way round: b waits until it has the sender's key.
	a.cluster.rotate(true, false)
	looks := b.cluster.looks.Load()
	go publish()
	waitFor(t, "b to look for the key again", func() bool { return b.cluster.looks.Load() > looks+1 })
	if n := b.subs.count(); n != 1 {
		t.Errorf("b got %d without the key", n)
	}
	b.cluster.set(a.cluster.Secrets())
	if err := <-published; err != nil || b.subs.count() != 2 {
		t.Fatalf("b got %d, %v", b.subs.count(), err)
	}
	b.read(b.subs.get(1))
}

// TestRotationAfterPublication: a minion that could not read the job before the AES key changed
// again never could; the job goes again, under the new key, to those that have not returned.
func TestRotationAfterPublication(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a"}, nil)
	ms.ready()
	a := ms.nodes["a"]
	got := a.publish(PublishRequest{Tgt: "*", Fun: "test.ping"})
	a.ret(got.JID, "m1")
	a.cluster.rotate(true, false)
	waitFor(t, "the second publication", func() bool { return a.subs.count() > 1 })
	again := a.read(a.subs.get(1)) // with the key of now
	if again.String("jid") != got.JID || !same(field(again, "tgt"), []any{"m2", "m3"}) {
		t.Errorf("sent again: %v", again)
	}
}

// TestLossBeforePublication: right after a master died a job waits for the balancer, is held for
// who reconnects, and is sent again to those that have not returned, as a list.
func TestLossBeforePublication(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a", "b", "c"}, nil)
	ms.ready()
	a, c := ms.nodes["a"], ms.nodes["c"]
	ms.nodes["b"].server.Stop()
	waitFor(t, "the loss", func() bool { return len(a.mesh.Losses()) > 0 })
	lost := a.mesh.Losses()[0].At
	got := a.publish(PublishRequest{Tgt: "*", Fun: "test.ping"})
	const late = 10 * time.Second // on a busy machine
	if wait := a.subs.at[0].Sub(lost); wait < settle || wait > settle+late {
		t.Errorf("published %v after the loss", wait)
	}
	if hold := c.subs.get(0).Hold; hold < watchFor-settle-late || hold > watchFor {
		t.Errorf("held for %v", hold)
	}
	c.ret(got.JID, "m1")
	waitFor(t, "the second publication", func() bool { return c.subs.count() > 1 })
	again := c.read(c.subs.get(1))
	if again.String("jid") != got.JID || again.String("tgt_type") != "list" ||
		!same(field(again, "tgt"), []any{"m2", "m3"}) || again.String("fun") != "test.ping" {
		t.Errorf("sent again: %v", again)
	}
	c.ret(got.JID, "m2")
	c.ret(got.JID, "m3")
	waitFor(t, "the release", func() bool {
		c.subs.mu.Lock()
		defer c.subs.mu.Unlock()
		return slices.Contains(c.subs.released, got.JID)
	})
}

// TestLossBelowSyndics: a syndic that reconnects after a loss gets the job with its own target,
// whether minions of this master are missing, have all returned or are not meant.
func TestLossBelowSyndics(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a", "b", "c"}, func(o *Options) {
		o.OrderMasters, o.ZmqFiltering = true, true
	})
	ms.ready()
	a, c := ms.nodes["a"], ms.nodes["c"]
	ms.nodes["b"].server.Stop()
	waitFor(t, "the loss", func() bool { return len(a.mesh.Losses()) > 0 })
	ms.mu.Lock()
	delete(ms.nodes, "b") // else each sending to it counts as a loss
	ms.mu.Unlock()
	// pubs are the publications of a job at c.
	pubs := func(jid string) (out []Publication) {
		c.subs.mu.Lock()
		defer c.subs.mu.Unlock()
		for _, p := range c.subs.pubs {
			if p.JID == jid {
				out = append(out, p)
			}
		}
		return out
	}
	// Another master may miss a release: it drops the job when the hold ends.
	released := func(jid string) bool {
		a.subs.mu.Lock()
		defer a.subs.mu.Unlock()
		return slices.Contains(a.subs.released, jid)
	}
	jobs := map[string]string{}
	for _, tgt := range []string{"m[12]", "below*", "*"} {
		jobs[tgt] = a.publish(PublishRequest{Tgt: tgt, Fun: "test.ping"}).JID
	}
	c.ret(jobs["m[12]"], "m1")
	c.ret(jobs["m[12]"], "m2")
	// An order for these minions alone ends with them.
	alone := a.publish(PublishRequest{Tgt: "m3", Fun: "test.ping",
		Rights: acl.FromList([]any{dict("m3", []any{"test.*"})})}).JID
	c.ret(alone, "m3")
	waitFor(t, "the release of the job of this master", func() bool { return released(alone) })
	for tgt, jid := range jobs {
		waitFor(t, "the second publication to "+tgt, func() bool { return len(pubs(jid)) > 1 })
		sent := pubs(jid)
		if first, again := c.read(sent[0]), c.read(sent[1]); !same(again, first) ||
			!slices.Equal(sent[1].Topics, sent[0].Topics) || sent[1].Hold == 0 {
			t.Errorf("%s: sent again: %v to %v, held for %v", tgt, again, sent[1].Topics,
				sent[1].Hold)
		}
		if released(jid) {
			t.Errorf("%s: released before its syndics are back", tgt)
		}
	}
	// Another loss, such as an acknowledgement that came late, makes a watch longer, up to this:
	// the last sending may begin at its end.
	t.Cleanup(func() {
		if t.Failed() {
			c.subs.mu.Lock()
			defer c.subs.mu.Unlock()
			t.Logf("jobs %v; released %v, publications at %v; losses %v", jobs, c.subs.released,
				c.subs.at, a.mesh.Losses())
		}
	})
	for tgt, jid := range jobs {
		waitWithin(t, watchAtMost+resendFor+releaseTimeout, "the release of the job to "+tgt,
			func() bool { return released(jid) })
	}
}

// TestUnacknowledgedSendingsEnd: a sending that a master does not acknowledge is a loss, for which
// the job is sent again, but not for ever.
func TestUnacknowledgedSendingsEnd(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a", "b"}, nil)
	ms.ready()
	a := ms.nodes["a"]
	ms.nodes["b"].server.Stop()
	for _, at := range []struct {
		age    time.Duration
		losses int
	}{{watchAtMost - resendFor, 1}, {watchAtMost + time.Second, 0}} {
		sub, err := a.deps.Mesh.Subscribe(t.Context(), "salt/job/x/ret/")
		if err != nil {
			t.Fatal(err)
		}
		j := &job{m: a.Master, jid: "x", sub: sub, published: time.Now().Add(-at.age)}
		j.sentAt = j.published
		if err := j.send(t.Context(), dict("tgt", "*"), "glob", nil); err != nil ||
			len(j.losses) != at.losses {
			t.Errorf("sent %v after the publication: losses %v, %v", at.age, j.losses, err)
		}
		j.end()
	}
}

// TestLostSubscribersAfterPublication: a master whose subscribers all went is a loss as well, also
// if another master published.
func TestLostSubscribersAfterPublication(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a", "b"}, nil)
	ms.ready()
	a, b := ms.nodes["a"], ms.nodes["b"]
	got := a.publish(PublishRequest{Tgt: "*", Fun: "test.ping"})
	b.subs.mu.Lock()
	b.subs.losses = []time.Time{time.Now()}
	b.subs.mu.Unlock()
	waitFor(t, "the second publication", func() bool {
		return b.subs.count() > 1 &&
			a.subs.count() > 1
	})
	if p := b.subs.get(1); p.JID != got.JID || p.Hold == 0 {
		t.Errorf("second publication %+v", p)
	}
	for _, id := range []string{"m1", "m2", "m3"} {
		a.ret(got.JID, id)
	}
	n := b.subs.count()
	waitFor(t, "the release", func() bool {
		b.subs.mu.Lock()
		defer b.subs.mu.Unlock()
		return len(b.subs.released) > 0
	})
	if b.subs.count() != n {
		t.Error("sent again though all had returned")
	}
}

func TestPublishRetryOff(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a", "b"}, func(o *Options) { o.PublishRetry = false })
	ms.ready()
	a := ms.nodes["a"]
	ms.nodes["b"].server.Stop()
	waitFor(t, "the loss", func() bool { return len(a.mesh.Losses()) > 0 })
	began := time.Now()
	a.publish(PublishRequest{Tgt: "*", Fun: "test.ping"})
	if took := time.Since(began); took > settle || a.subs.get(0).Hold != 0 {
		t.Errorf("took %v, held %v", took, a.subs.get(0).Hold)
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	base := time.Now()
	at := func(s float64) time.Time { return base.Add(time.Duration(s * float64(time.Second))) }
	j := &job{sentAt: at(2.5), losses: []time.Time{at(0)}, tries: map[time.Time]bool{}}
	var fired []float64
	for s := 2.5; s < 20; s += 0.25 {
		if j.due(at(s)) {
			fired = append(fired, s)
			j.sentAt = at(s)
		}
	}
	if !slices.Equal(fired, []float64{3, 7, 12}) {
		t.Errorf("after a loss before: %v", fired)
	}
	j = &job{sentAt: at(0), losses: []time.Time{at(5)}, tries: map[time.Time]bool{}}
	fired = nil
	for s := 0.0; s < 20; s += 0.25 {
		if j.due(at(s)) {
			fired = append(fired, s)
			j.sentAt = at(s)
		}
	}
	if !slices.Equal(fired, []float64{6, 8, 12, 17}) {
		t.Errorf("after a loss afterwards: %v", fired)
	}
}

func TestDeliverRefuses(t *testing.T) {
	t.Parallel()
	ms := newMasters(t, []string{"a"}, nil)
	a := ms.nodes["a"]
	s := &publisherServer{m: a.Master}
	for _, r := range []Publication{{}, {JID: "x"}, {JID: "a/b", Payload: []byte("x")}} {
		if _, err := s.Deliver(context.Background(), deliverRequest(r)); err == nil {
			t.Errorf("%+v is taken", r)
		}
	}
	if a.subs.count() != 0 {
		t.Error("published")
	}
}

func BenchmarkPublish(b *testing.B) {
	k := newKit(b, func(o *Options, _ *Deps) { o.PublishRetry = false })
	k.accept("m1")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Publish(context.Background(),
			PublishRequest{Tgt: "*", Fun: "test.ping"}); err != nil {
			b.Fatal(err)
		}
	}
}

func deliverRequest(p Publication) *masterpb.DeliverRequest {
	return &masterpb.DeliverRequest{Jid: p.JID, Payload: p.Payload, AesEpoch: 1}
}
