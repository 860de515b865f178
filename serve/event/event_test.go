package event

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"clustermaster/value"
	"clustermaster/wire"
)

func receive(t *testing.T, s *Subscription) Event {
	t.Helper()
	select {
	case e := <-s.C:
		return e
	case <-time.After(5 * time.Second):
		t.Fatal("no event within 5 s")
	}
	return Event{}
}

func TestBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBus(0, nil, nil)
		all, jobs := b.Subscribe(""), b.Subscribe("salt/job/")
		defer all.Close()
		defer jobs.Close()
		data := value.Map{{Key: "a", Value: int64(1)}}
		b.Fire("salt/auth", data)
		b.Fire("salt/job/1/new", value.Map{{Key: "_stamp", Value: "old"}, {Key: "b", Value: true}})
		// listeners would read the tag salt/key, and other data
		for _, tag := range []string{"", "salt/key\n\nx", "salt/key\n", "\n\n", "\n"} {
			b.Fire(tag, data)
			b.FireRaw(tag, value.Raw("\x80"))
			b.FireRawMap(tag, nil)
		}
		b.Fire("bad", value.Map{{Key: "x", Value: struct{}{}}})
		if len(data) != 1 {
			t.Error("the caller's data were changed")
		}
		want := wire.Stamp(time.Now())
		e := <-all.C
		m, err := e.Map()
		if err != nil || e.Tag != "salt/auth" || m.String("_stamp") != want {
			t.Errorf("got %s %v, %v", e.Tag, m, err)
		}
		if e = <-all.C; e.Tag != "salt/job/1/new" {
			t.Errorf("got %s", e.Tag)
		}
		b.Fire("one line\nand another", data) // a state's name
		if e = <-all.C; e.Tag != "one line\nand another" {
			t.Errorf("got %s", e.Tag)
		}
		if m, err = (<-jobs.C).Map(); err != nil || m.String("_stamp") != want {
			t.Errorf("the stamp is not the bus's: %v, %v", m, err)
		}
		synctest.Wait()
		select {
		case e := <-all.C:
			t.Errorf("refused events arrived: %v", e.Tag)
		default:
		}
		if !b.Wanted("salt/x") {
			t.Error("nobody wants what all wants")
		}
		all.Close()
		if b.Wanted("salt/x") {
			t.Error("a closed subscription still wants")
		}
	})
}

func TestFireRawMap(t *testing.T) {
	t.Parallel()
	b := NewBus(0, nil, nil)
	s := b.Subscribe("x")
	defer s.Close()
	packed, err := value.Pack(value.Map{{Key: "id", Value: "m1"},
		{Key: "_stamp", Value: "minion's"}, {Key: "return", Value: []any{int64(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	load, err := value.UnpackRawMap(packed)
	if err != nil {
		t.Fatal(err)
	}
	b.FireRawMap("x", load)
	m, err := receive(t, s).Map()
	if err != nil || len(m) != 3 || m.String("_stamp") == "minion's" || m.String("id") != "m1" {
		t.Errorf("got %v, %v", m, err)
	}
	if stamp := load.String("_stamp"); stamp != "minion's" {
		t.Errorf("the caller's load was changed: %s", stamp)
	}
}

func TestSlowSubscriberLosesTheOldest(t *testing.T) {
	t.Parallel()
	b := NewBus(0, nil, nil)
	slow, quick := b.Subscribe(""), b.Subscribe("last")
	defer slow.Close()
	defer quick.Close()
	const n = maxQueuedEvents + 1000
	for i := range n {
		b.Fire("t", value.Map{{Key: "i", Value: int64(i)}})
	}
	b.Fire("last", value.Map{{Key: "i", Value: int64(n)}})
	receive(t, quick)
	if got := slow.Dropped(); got < 900 || got > 1001 {
		t.Errorf("dropped %d", got)
	}
	got, lastI := 0, int64(-1)
	for {
		e := receive(t, slow)
		m, err := e.Map()
		if err != nil {
			t.Fatal(err)
		}
		got++
		v, _ := m.Get("i")
		if v.(int64) <= lastI {
			t.Fatalf("%d after %d", v, lastI)
		}
		lastI = v.(int64)
		if e.Tag == "last" {
			break
		}
	}
	if got+int(slow.Dropped()) != n+1 {
		t.Errorf("%d received and %d dropped of %d", got, slow.Dropped(), n+1)
	}
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := NewBus(8<<20, nil, nil)
	s := b.Subscribe("")
	defer s.Close()
	big, err := value.Pack(value.Map{{Key: "x", Value: strings.Repeat("x", 4<<20)}})
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		b.FireRaw("big", big)
	}
	if got := s.Dropped(); got < 20 {
		t.Errorf("dropped %d of 40 events of 4 MiB", got)
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	tests := []struct {
		name  string
		data  value.Map
		limit int
		want  string
	}{
		{"one large value", value.Map{{Key: "a", Value: long}, {Key: "b", Value: "small"},
			{Key: "_stamp", Value: "now"}}, 500, "a=VALUE_TRIMMED b=small _stamp=now"},
		{"inside a map",
			value.Map{{Key: "m", Value: value.Map{{Key: "a", Value: long},
				{Key: "b", Value: int64(1)}}}}, 500, "m={a=VALUE_TRIMMED b=1}"},
		{"only what must go", value.Map{{Key: "a", Value: long}, {Key: "b", Value: long[:100]}},
			500, "a=VALUE_TRIMMED b=" + long[:100]},
		{"many small ones", value.Map{{Key: "a", Value: long[:90]}, {Key: "b", Value: long[:90]},
			{Key: "c", Value: long[:20]}}, 140,
			"a=VALUE_TRIMMED b=VALUE_TRIMMED c=" + long[:20]},
		{"long keys", value.Map{{Key: long, Value: "v"}, {Key: "_stamp", Value: "now"}}, 100,
			"_stamp=now"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			packed, err := value.Pack(tt.data)
			if err != nil {
				t.Fatal(err)
			}
			b := NewBus(tt.limit, nil, nil)
			s := b.Subscribe("")
			defer s.Close()
			b.FireRaw("t", packed)
			e := receive(t, s)
			m, err := e.Map()
			if got := show(m); err != nil || got != tt.want || len(e.Data) > tt.limit {
				t.Errorf("got %s (%d bytes), %v; want %s", got, len(e.Data), err, tt.want)
			}
		})
	}
}

func show(m value.Map) string {
	var out []string
	for _, p := range m {
		if inner, ok := p.Value.(value.Map); ok {
			out = append(out, fmt.Sprintf("%v={%s}", p.Key, show(inner)))
			continue
		}
		out = append(out, fmt.Sprintf("%v=%v", p.Key, p.Value))
	}
	return strings.Join(out, " ")
}

// cluster is some masters in one process, connected by gRPC over loopback.
type cluster struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*node
}

type node struct {
	c      *cluster
	name   string
	bus    *Bus
	mesh   *Mesh
	server *grpc.Server
	addr   string
	conns  map[string]*grpc.ClientConn
}

func newCluster(t *testing.T, names ...string) *cluster {
	c := &cluster{t: t, nodes: make(map[string]*node)}
	for _, name := range names {
		c.start(name)
	}
	return c
}

func (c *cluster) start(name string) *node {
	c.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	n := &node{c: c, name: name, bus: NewBus(0, nil, nil), server: grpc.NewServer(),
		addr: ln.Addr().String(), conns: make(map[string]*grpc.ClientConn)}
	n.mesh = NewMesh(n.bus, n, nil)
	n.mesh.RegisterRPC(n.server)
	c.mu.Lock()
	c.nodes[name] = n
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = n.server.Serve(ln) })
	running.Go(func() { _ = n.mesh.Run(ctx) })
	c.t.Cleanup(func() {
		cancel()
		n.server.Stop()
		running.Wait()
		for _, conn := range n.conns {
			conn.Close()
		}
	})
	return n
}

func (c *cluster) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, name)
}

func (n *node) Self() string { return n.name }

func (n *node) Members() []string {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	var out []string
	for name := range n.c.nodes {
		out = append(out, name)
	}
	return out
}

func (n *node) Conn(name string) (grpc.ClientConnInterface, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	other := n.c.nodes[name]
	if other == nil {
		return nil, fmt.Errorf("no node %s", name)
	}
	if n.conns[other.addr] == nil {
		conn, err := grpc.NewClient("passthrough:///"+other.addr,
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		n.conns[other.addr] = conn
	}
	return n.conns[other.addr], nil
}

func (n *node) subscribe(t *testing.T, prefix string) *Subscription {
	t.Helper()
	s, err := n.mesh.Subscribe(context.Background(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestMeshReachesAllMasters(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	s := c.nodes["a"].subscribe(t, "salt/job/1/")
	if u := s.Unconfirmed(); len(u) != 0 {
		t.Fatalf("unconfirmed: %v", u)
	}
	// Confirmed means confirmed: an event fired at once arrives, from each master exactly once.
	for name, n := range c.nodes {
		n.bus.Fire("salt/job/1/ret/"+name, value.Map{})
		n.bus.Fire("salt/job/2/ret/"+name, value.Map{})
	}
	var got []string
	for range 3 {
		got = append(got, receive(t, s).Tag)
	}
	slices.Sort(got)
	if want := []string{"salt/job/1/ret/a", "salt/job/1/ret/b",
		"salt/job/1/ret/c"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	second := c.nodes["a"].subscribe(t, "salt/job/2/")
	c.nodes["b"].bus.Fire("salt/job/2/x", value.Map{})
	if e := receive(t, second); e.Tag != "salt/job/2/x" {
		t.Errorf("got %s", e.Tag)
	}
	select {
	case e := <-s.C:
		t.Errorf("one too many: %s", e.Tag)
	default:
	}
}

func TestMeshForgetsInterests(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	one, two := c.nodes["a"].subscribe(t, "x"), c.nodes["a"].subscribe(t, "x")
	one.Close()
	if !c.nodes["b"].bus.Wanted("x/1") {
		t.Error("the first of two closed subscriptions took the interest with it")
	}
	two.Close()
	waitFor(t, "the interest to go", func() bool { return !c.nodes["b"].bus.Wanted("x/1") })
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

func TestMeshNoticesLossAndReturn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	a := c.nodes["a"]
	s := a.subscribe(t, "x")
	stopped := time.Now()
	c.nodes["b"].server.Stop()
	waitFor(t, "the loss of b", func() bool { return len(a.mesh.Losses()) == 1 })
	if l := a.mesh.Losses()[0]; l.Node != "b" || l.At.Before(stopped) || l.At.After(time.Now()) {
		t.Errorf("lost %v", l)
	}
	told := func(what string) {
		t.Helper()
		select {
		case <-s.Lost():
		case <-time.After(20 * time.Second):
			t.Errorf("subscriber was not told of %s", what)
		}
	}
	told("the loss")
	// A master known to be broken is named, not waited for: a Subscribe whose time is over returns
	// once c has confirmed.
	defer a.mesh.Follow("y").Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var late *Subscription
	waitFor(t, "c to confirm", func() bool {
		var err error
		late, err = a.mesh.Subscribe(over, "y")
		return err == nil
	})
	defer late.Close()
	if u := late.Unconfirmed(); !slices.Equal(u, []string{"b"}) {
		t.Errorf("unconfirmed %v", u)
	}
	// A master that comes back is asked again for all that is wanted.
	c.start("b")
	waitFor(t, "b to be asked again", func() bool {
		return c.nodes["b"].bus.Wanted("x") &&
			c.nodes["b"].bus.Wanted("y")
	})
	told("what b may have fired meanwhile")
	c.nodes["b"].bus.Fire("x/back", value.Map{})
	if e := receive(t, s); e.Tag != "x/back" {
		t.Errorf("got %s", e.Tag)
	}
	// A removed member is not waited for and not named.
	c.remove("b")
	waitFor(t, "b to be forgotten",
		func() bool { return len(a.subscribe(t, "z").Unconfirmed()) == 0 })
	if l := a.mesh.Losses(); len(l) != 2 || l[1].Node != "b" {
		t.Errorf("leaving is no loss: %v", l)
	}
	told("what b took with it")
}

// TestMeshAfterGap: a master that lives drops out of the members for a while, as after a gap of its
// heartbeats. Subscribers are told when it is back, because it may have fired events meanwhile. A
// new member fired nothing that they miss.
func TestMeshAfterGap(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	a, b := c.nodes["a"], c.nodes["b"]
	s := a.subscribe(t, "x")
	told := func(what string) {
		t.Helper()
		select {
		case <-s.Lost():
		case <-time.After(20 * time.Second):
			t.Fatalf("subscriber was not told of %s", what)
		}
	}
	c.remove("b")
	told("the loss")
	waitFor(t, "the stream to end", func() bool { return !b.bus.Wanted("x") })
	b.bus.Fire("x/meanwhile", value.Map{})
	c.mu.Lock()
	c.nodes["b"] = b
	c.mu.Unlock()
	told("what b fired meanwhile")
	c.start("c")
	waitFor(t, "both to confirm",
		func() bool { return len(a.subscribe(t, "y").Unconfirmed()) == 0 })
	select {
	case <-s.Lost():
		t.Error("a new member counts as a loss")
	default:
	}
}

// deaf takes connections and never answers, as a stopped process does.
func TestMeshDoesNotWaitForTheDeaf(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	c.mu.Lock()
	c.nodes["deaf"] = &node{name: "deaf", addr: ln.Addr().String()}
	c.mu.Unlock()
	patient, stop := context.WithTimeout(t.Context(), 20*confirmTimeout)
	defer stop()
	s, err := c.nodes["a"].mesh.Subscribe(patient, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if u := s.Unconfirmed(); !slices.Equal(u, []string{"deaf"}) {
		t.Errorf("unconfirmed %v", u)
	}
	if l := c.nodes["a"].mesh.Losses(); len(l) != 1 || l[0].Node != "deaf" {
		t.Errorf("losses %v", l)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.nodes["a"].mesh.Subscribe(ctx, "y"); err == nil {
		t.Error("a cancelled subscription succeeds")
	}
}

func TestPeerBounds(t *testing.T) {
	t.Parallel()
	var i interests
	if err := i.change([]string{strings.Repeat("x", maxPrefixLength+1)}, nil); err == nil {
		t.Error("an endless prefix is taken")
	}
	var many []string
	for n := range maxPrefixes + 1 {
		many = append(many, fmt.Sprint(n))
	}
	if err := i.change(many, nil); err == nil {
		t.Error("endlessly many prefixes are taken")
	}
}

func BenchmarkFire(b *testing.B) {
	bus := NewBus(0, nil, nil)
	s := bus.Subscribe("salt/job/")
	defer s.Close()
	go func() {
		for range s.C {
		}
	}()
	data := value.Map{{Key: "id", Value: "m1"}, {Key: "return", Value: true},
		{Key: "jid", Value: "20261121093500438490"}}
	b.ReportAllocs()
	for b.Loop() {
		bus.Fire("salt/job/1/ret/m1", data)
	}
}

// TestLossIsTold: a subscriber that reads too slowly is told, and so are those of a master that
// takes another one's events too slowly.
func TestLossIsTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	a, b := c.nodes["a"], c.nodes["b"]
	near, far := a.subscribe(t, "salt/"), b.subscribe(t, "salt/job/2/")
	idle := b.bus.Subscribe("salt/job/3/")
	defer idle.Close()
	b.subscribe(t, "salt/job/1/")
	for _, s := range []*Subscription{near, far} {
		select {
		case <-s.Lost():
			t.Error("a notice without a loss")
		default:
		}
	}
	data := value.Map{{Key: "x", Value: strings.Repeat("x", DefaultMaxEventSize-100)}}
	b.mesh.mu.Lock() // b takes nothing
	for range 2 * maxQueuedBytes / DefaultMaxEventSize {
		a.bus.Fire("salt/job/1/ret/m", data)
	}
	b.mesh.mu.Unlock()
	for name, s := range map[string]*Subscription{"near": near, "far": far} {
		select {
		case <-s.Lost():
		case <-time.After(20 * time.Second):
			t.Errorf("no notice for %s", name)
		}
	}
	select {
	case <-idle.Lost():
		t.Error("a subscriber of one master's events was told of another one's")
	default:
	}
}
