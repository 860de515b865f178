package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/fsm"
	"clustermaster/hashring"
	"clustermaster/keystore"
	"clustermaster/test/history"
	"clustermaster/transport/peer"
	"clustermaster/value"
)

// callLimit bounds a client's call.
const callLimit = 12 * time.Second

// errCrashed ends a call whose master lost power: the outcome is unknown.
var errCrashed = errors.New("the master crashed")

// errDown means that the call was not made: the master does not run.
var errDown = errors.New("the master is down")

// on calls f on a master, while the master is up.
func (m *master) on(f func(context.Context, *instance) error) error {
	m.mu.Lock()
	i := m.now
	if i == nil || i.life.Err() != nil {
		m.mu.Unlock()
		return errDown
	}
	i.parts.Add(1)
	m.mu.Unlock()
	defer i.parts.Done()
	ctx, cancel := context.WithTimeout(i.life, callLimit)
	defer cancel()
	err := f(ctx, i)
	if i.crash.Load() {
		return errCrashed
	}
	return err
}

// ack is an acknowledged write.
type ack struct {
	text      string
	by        *master
	begun, at time.Time
	// it was acknowledged below the write quorum, and this disk alone may have it
	thin bool
}

// excused reports that a write may be lost all the same: it was accepted while the other masters
// were out of reach, and its only copy was lost before the master had handed it over.
func (a ack) excused() bool { return a.thin && a.by.w.losses.took(a) }

// near counts the nodes that this instance reaches.
func (i *instance) near(nodes []string) (n int) {
	for _, node := range nodes {
		if i.node.Peers().Alive(node) {
			n++
		}
	}
	return n
}

// away counts the masters that this instance can't reach.
func (i *instance) away() int {
	return len(i.m.w.masters) - i.near(i.node.Peers().Members())
}

// members are those of the newest ring that the node or its store knows.
func (i *instance) members() (out []string) {
	ring, info := i.ring(), i.store.Info()
	if info.Epoch <= ring.Epoch() {
		return ring.Members()
	}
	for _, n := range info.Nodes {
		if n.Share > 0 {
			out = append(out, n.Node)
		}
	}
	return out
}

// look notes whether the instance is alone, which masters it reaches through others, whether it
// owes copies, and whether it began a new store.
func (i *instance) look() {
	if i.crash.Load() {
		return
	}
	members := i.members()
	if i.near(members) < 2 {
		i.alone.Store(time.Now().UnixNano())
	}
	i.detours.look(i.port, members)
	self := i.node.Self().Node
	for _, n := range i.store.Info().Nodes {
		if n.Node == self && n.Hints == 0 {
			i.m.owesNothing()
		}
	}
	i.m.lookAside(i.files)
}

const (
	// contactLimit is how long a master may need to notice that contact has ended, or is back.
	contactLimit = 1500 * time.Millisecond
	// contactTrips is how many messages and answers a slow line may need before contact is back.
	contactTrips = 6
)

// inContact counts the members of a ring, with this one, that no fault has kept from taking copies
// of a place from this instance since then: they were up, and no line was cut or held, or lost
// large messages, to them or to their relays. The disk of a stand-in must have taken all, for
// without a stand-in a write goes on; to an owner it is sent again. all means that each master is
// counted.
func (i *instance) inContact(place string, since time.Time) (n int, all bool) {
	ring, members := i.ring(), i.members()
	if len(ring.Members()) == 0 {
		return 0, false
	}
	owners := ring.Owners(ring.Partition(place))
	running := map[string]*instance{}
	for _, o := range i.m.w.running() {
		running[o.node.Self().Node] = o
	}
	for _, node := range members {
		o, by := running[node], i.detours.since(node, since.Add(-contactLimit))
		r := running[by]
		joined := o == i || i.joined(o, since) && (by == "" || i.joined(r, since) && r.joined(o, since))
		if joined && (slices.Contains(owners, node) || o.files.tookAll(since)) {
			n++
		}
	}
	return n, n == len(i.m.w.masters)
}

// joined reports that two instances were up and no fault has parted their lines since then, and
// that the other one, which may be nil, has compared its clock and knows this one as a member: else
// it refuses all. An instance that ends closes its port beside its clients' calls; the program does
// so after them.
func (i *instance) joined(o *instance, since time.Time) bool {
	if o == nil || o.life.Err() != nil || i.life.Err() != nil {
		return false
	}
	net, here, there := i.m.w.net, i.m.ip.String(), o.m.ip.String()
	since = since.Add(-contactLimit)
	since = since.Add(-contactTrips * net.roundTrip(here, there, since))
	_, member := o.node.State().MemberByNode(i.node.Self().Node)
	return member && o.node.ClockJudged() && o.began.Before(since) && i.began.Before(since) &&
		!net.parted(here, there, since)
}

// detours are the masters that an instance reached through others.
type detours struct {
	mu sync.Mutex // guards all
	by map[string]detour
}

type detour struct {
	by string
	at time.Time // when it was last seen
}

func (d *detours) look(port *peer.Port, nodes []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, node := range nodes {
		if by := port.Through(node); by != "" {
			d.by[node] = detour{by, time.Now()}
		}
	}
}

// since returns the master through which a node was reached at some moment since then, or "".
func (d *detours) since(node string, since time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last := d.by[node]; last.at.After(since) {
		return last.by
	}
	return ""
}

// writes is on for a write of a place to the ring store. Most owners may know a newer ring, be in
// contact and refuse the old one. Then it must not acknowledge the write, unless a fault ended
// contact for a moment: without it the store goes on below the write quorum, or with stand-ins that
// don't know the newer ring yet, and counts both. A store that was replaced meanwhile names no
// ring. A write below the quorum must be the work of faults, too.
func (m *master) writes(place string, f func(context.Context, *instance) error) (a ack, err error) {
	err = m.on(func(ctx context.Context, i *instance) error {
		since, ended := i.writing.begins()
		defer ended()
		begun, ring := time.Now(), i.ring()
		left, known := i.leftBy(ring, place), i.epoch()
		under, standIns := i.aroundOwners()
		settled := i.store.Settled()
		i.look()
		err := f(ctx, i)
		i.look()
		belowNow, standInsNow := i.aroundOwners()
		below := belowNow > under
		reached, all := i.inContact(place, since)
		a = ack{by: m, begun: begun, at: time.Now(), thin: below && i.alone.Load() >= begun.UnixNano()}
		same := max(known, i.epoch()) == ring.Epoch()
		if below && (all || same && settled && i.store.Settled() && reached >= ring.WriteQuorum()) {
			m.w.fault("%s acknowledged a write of %s below the quorum, although faults left it %d of the ring's %d",
				m.id, place, reached, len(ring.Members()))
		}
		if left = min(left, i.leftBy(ring, place)); err == nil && left > 0 &&
			min(3, len(ring.Members()))-left < ring.WriteQuorum() && same &&
			(!below && standInsNow == standIns || all) {
			m.w.fault("%s acknowledged a write of %s by ring %d, which %d owners had left for a newer one",
				m.id, place, ring.Epoch(), left)
		}
		return err
	})
	return a, err
}

// writing is the begins of the writes that an instance is making.
type writing struct {
	mu  sync.Mutex // guards all
	all []time.Time
}

// begins adds a write, and returns when the first of those began that run: its effects may show
// during this one.
func (r *writing) begins() (first time.Time, ended func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.all = append(r.all, now)
	return r.all[0], func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		at := slices.Index(r.all, now)
		r.all = slices.Delete(r.all, at, at+1)
	}
}

// ring is the newest ring that the node knows; an empty one while its master is in no cluster.
func (i *instance) ring() *hashring.Ring {
	if r := i.node.Ring(); r != nil {
		return r
	}
	return new(hashring.Ring)
}

// epoch is that of the newest ring that the node or its store knows.
func (i *instance) epoch() uint64 { return max(i.ring().Epoch(), i.store.Info().Epoch) }

// aroundOwners counts the writes that the store acknowledged below the write quorum, and the copies
// that it gave to stand-ins.
func (i *instance) aroundOwners() (under, standIns float64) {
	families, err := i.counts.Gather()
	if err != nil {
		panic(err)
	}
	found := 0
	for _, f := range families {
		switch f.GetName() {
		case "clustermaster_ring_under_replicated_writes_total":
			under = f.GetMetric()[0].GetCounter().GetValue()
			found++
		case "clustermaster_ring_stand_ins_total":
			standIns = f.GetMetric()[0].GetCounter().GetValue()
			found++
		}
	}
	if found != 2 {
		panic("the ring store does not count stand-ins and writes below the quorum")
	}
	return under, standIns
}

// leftBy counts the owners of a place in a ring that are in contact and whose disks refuse writes
// of that ring, because they know a newer one.
func (i *instance) leftBy(ring *hashring.Ring, place string) (n int) {
	if len(ring.Members()) == 0 {
		return 0
	}
	owners := ring.Owners(ring.Partition(place))
	for _, o := range i.m.w.running() {
		node := o.node.Self().Node
		if o.ring().Epoch() > ring.Epoch() && slices.Contains(owners, node) && o != i &&
			i.node.Peers().Alive(node) && o.store.Info().Epoch > ring.Epoch() {
			n++
		}
	}
	return n
}

// load is the clients of a run and the answers they got.
type load struct {
	w    *world
	keys *history.History
	ids  []string

	// of tokens and schedule entries that several clients change
	shared, claims *history.History
	sharedMade     atomic.Int64 // shared tokens whose storing has ended

	mu      sync.Mutex // guards the fields below, and registers
	calls   map[string]int
	acked   map[string]int
	returns map[string]ack // acknowledged ones, by jid
	jobs    map[string]*job
	cells   []*cell
	heard   int      // events from other masters
	whole   bool     // all is well: listeners miss nothing
	tokens  []*token // used by the token client alone
}

func newLoad(w *world) *load {
	return &load{w: w, keys: history.New(), shared: history.New(), claims: history.New(), ids: []string{"ada", "bob", "cyd"},
		calls: map[string]int{}, acked: map[string]int{}, returns: map[string]ack{}, jobs: map[string]*job{},
		cells: []*cell{{id: "web1", fun: "status"}, {id: "web2", fun: "status"}, {id: "web3", fun: "status"}}}
}

// count notes a call and its end, both in the trace.
func (l *load) count(client int, what string, m *master, err error, said string) {
	end := "ok"
	if err != nil {
		end = "failed"
	}
	l.w.note("client %d: %s at %s: %s %s", client, what, m.id, end, said)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[what]++
	if err == nil {
		l.acked[what]++
	}
}

// start starts all clients; they end with ctx.
func (l *load) start(ctx context.Context, wg *sync.WaitGroup, phase string) {
	for n := range 3 {
		wg.Go(func() { l.loop(ctx, n, l.w.masters, rng(l.w.seed, phase, "keys", fmt.Sprint(n)), l.keyCall) })
	}
	for n, c := range l.cells {
		wg.Go(func() {
			l.loop(ctx, 10+n, l.w.masters, rng(l.w.seed, phase, "data", c.id),
				func(n int, m *master, chance *rand.Rand) { l.dataCall(n, m, chance, c) })
		})
	}
	wg.Go(func() { l.loop(ctx, 20, l.w.masters, rng(l.w.seed, phase, "tokens"), l.tokenCall) })
	for n := range 2 {
		wg.Go(func() {
			l.loop(ctx, 30+n, l.w.masters, rng(l.w.seed, phase, "shared", fmt.Sprint(n)), l.sharedCall)
		})
		wg.Go(func() {
			l.loop(ctx, 40+n, l.w.masters, rng(l.w.seed, phase, "claims", fmt.Sprint(n)), l.claimCall)
		})
	}
}

// loop makes one call after the other on randomly chosen ones of the masters.
func (l *load) loop(ctx context.Context, number int, masters []*master, chance *rand.Rand,
	call func(int, *master, *rand.Rand)) {
	for ctx.Err() == nil {
		call(number, masters[chance.IntN(len(masters))], chance)
		select {
		case <-time.After(time.Duration(10+chance.IntN(240)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (l *load) keyCall(number int, m *master, chance *rand.Rand) {
	id := l.ids[chance.IntN(len(l.ids))]
	switch n := chance.IntN(20); {
	case n < 6:
		l.offer(number, m, id)
	case n < 14:
		l.change(number, m, id, []string{"accept", "accept", "reject", "delete"}[chance.IntN(4)])
	default:
		l.look(number, m)
	}
}

func (l *load) offer(number int, m *master, id string) {
	begun := l.keys.Now()
	var out keystore.Outcome
	var said string
	err := m.on(func(ctx context.Context, i *instance) (err error) {
		out, err = i.keys.Offer(ctx, id, minionKey(), keystore.Policy{MaxPending: 100, MaxPerSource: 100,
			Source: "192.0.2.1"})
		said = map[string]string{"pend": "pending", "reject": "rejected", "accept": "accepted"}[out.Act]
		return err
	})
	if said == "pending" && l.keys.Now() > begun { // else it was answered from memory
		said = "stored"
	}
	if !errors.Is(err, errDown) {
		l.keys.AddOffer(number, begun, history.Call{Register: id, Verb: "offer", At: m.id},
			history.Outcome{Unknown: err != nil || out.Undecided, Value: said})
		l.count(number, "offer", m, err, said)
	}
}

func (l *load) change(number int, m *master, id, action string) {
	states := map[string][]keystore.State{
		"accept": {keystore.Pending}, "reject": {keystore.Pending, keystore.Accepted},
		"delete": {keystore.Pending, keystore.Accepted, keystore.Rejected, keystore.Denied},
	}
	verb := map[string]keystore.Action{"accept": keystore.AcceptKeys, "reject": keystore.RejectKeys,
		"delete": keystore.DeleteKeys}
	begun := l.keys.Now()
	changed, known := false, l.accepted(id)
	err := m.on(func(ctx context.Context, i *instance) error {
		done, index, err := i.keys.Change(ctx, verb[action], []string{id}, states[action]...)
		changed = len(done) > 0
		if warning := (*keystore.Warning)(nil); errors.As(err, &warning) {
			err = nil
		} else if err == nil && changed && action != "accept" && !i.crash.Load() {
			l.revoked(i, id, index, known)
		}
		return err
	})
	unknown := (*cluster.UnknownOutcomeError)(nil)
	switch {
	case errors.Is(err, errDown):
		return
	case err != nil && !errors.Is(err, errCrashed) && !errors.As(err, &unknown) &&
		errors.Is(err, cluster.ErrNoQuorum):
		// The master says that nothing happened, and must be right.
	default:
		l.keys.Add(number, begun, history.Call{Register: id, Verb: action, At: m.id},
			history.Outcome{Unknown: err != nil, Changed: changed})
	}
	l.count(number, action, m, err, fmt.Sprint(changed))
}

// accepted is the lowest index of an accepted key in the memory of masters, 0 if none has it.
func (l *load) accepted(id string) (index uint64) {
	for _, i := range l.w.running() {
		if k, is := i.keys.Accepted(id); is && (index == 0 || k.Index < index) {
			index = k.Index
		}
	}
	return index
}

// revoked checks that no member signs a minion in by memory from before a change at index, which
// was answered without a warning. A master that was removed is no member, and needs a moment to
// notice it. It counts if a master had the key, of index known, in that memory before.
func (l *load) revoked(by *instance, id string, index, known uint64) {
	if known > 0 && known < index {
		l.mu.Lock()
		l.acked["revoked"]++
		l.mu.Unlock()
	}
	for _, i := range l.w.running() {
		if _, member := by.node.State().MemberByNode(i.node.Self().Node); !member {
			continue
		}
		ready := i.node.Ready()
		k, accepted := i.keys.Accepted(id)
		if ready && accepted && k.Index < index && i.node.State().AppliedIndex() < index && !i.crash.Load() {
			l.w.fault("%s still accepts the key of %s of index %d; %s said that all serving masters applied index %d",
				i.m.id, id, k.Index, by.m.id, index)
		}
	}
}

func (l *load) look(number int, m *master) error {
	begun := l.keys.Now()
	states := map[string]string{}
	err := m.on(func(ctx context.Context, i *instance) error {
		if err := i.keys.Fresh(ctx); err != nil {
			return err
		}
		for _, id := range l.ids {
			if k, ok := i.keys.Key(id); ok {
				states[id] = k.State.String()
			}
		}
		return nil
	})
	if errors.Is(err, errDown) {
		return err
	}
	l.count(number, "look", m, err, fmt.Sprint(states))
	if err == nil {
		for _, id := range l.ids {
			l.keys.Add(number, begun, history.Call{Register: id, Verb: "look", At: m.id},
				history.Outcome{Value: states[id]})
		}
	}
	return err
}

// cell is what one client writes for one minion: a mine value and grains. No other client writes
// it. So the right value is the last acknowledged one, or a later one whose outcome is unknown.
type cell struct {
	id, fun string
	n       int
	mine    register
	grains  register
	once    []*once

	unanswered *job // whose return has no acknowledgement yet
	answered   *job // the last one with an acknowledged return
}

// once is a mine value that is written once and may then be deleted once.
type once struct {
	fun     string
	n       int
	value   register
	deleted bool // or was tried
}

// register is a value with one writer; 0 means absent.
type register struct {
	acked int
	last  ack
	maybe []int // later tries with unknown outcome
	// its values before acknowledgements that may be excused
	before []int
}

// registers are those of all cells. Its caller holds l.mu, or runs alone.
func (l *load) registers() (all []*register) {
	for _, c := range l.cells {
		all = append(all, &c.mine, &c.grains)
		for _, o := range c.once {
			all = append(all, &o.value)
		}
	}
	return all
}

// sureOnes counts the values, and the deletions, of which only the last acknowledged one is right.
// Its caller holds l.mu, or runs alone.
func (l *load) sureOnes() (values, deletions int) {
	for _, r := range l.registers() {
		switch {
		case !r.sure():
		case r.acked > 0:
			values++
		case r.last.by != nil:
			deletions++
		}
	}
	return values, deletions
}

// sure reports that only the acknowledged value is right.
func (r *register) sure() bool { return len(r.maybe) == 0 && !r.last.excused() }

// wrote notes a write to a register. Only its client reads the register without l.mu.
func (l *load) wrote(r *register, n int, a ack, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && a.thin:
		// the earlier value comes back if this one is excused
		r.before = append(r.before, r.acked)
		r.before = append(r.before, r.maybe...)
		r.acked, r.maybe, r.last = n, nil, a
	case err == nil:
		r.acked, r.maybe, r.before, r.last = n, nil, nil, a
	case !errors.Is(err, errDown):
		r.maybe = append(r.maybe, n)
	}
}

func (r *register) allows(n int) bool {
	if n == r.acked {
		return true
	}
	return slices.Contains(r.maybe, n) || r.last.excused() && slices.Contains(r.before, n)
}

func (l *load) dataCall(number int, m *master, chance *rand.Rand, c *cell) {
	c.n++
	n := c.n
	text := fmt.Sprintf("%d of %s", n, c.id)
	switch k := chance.IntN(20); {
	case k < 7:
		if n%16 == 0 { // large enough that writers wait for a slow reader
			text += strings.Repeat("x", n*7919%(48<<10))
		}
		l.returnCall(number, m, chance, c, text)
	case k == 19:
		l.onceCall(number, m, c)
	case k < 10:
		a, err := m.writes(c.id, func(ctx context.Context, i *instance) error {
			return i.data.MergeMine(ctx, c.id, value.Map{}.Set(c.fun, int64(n)), false)
		})
		l.wrote(&c.mine, n, a, err)
		l.count(number, "mine", m, err, fmt.Sprint(n))
	case k < 12:
		a, err := m.writes(c.id, func(ctx context.Context, i *instance) error {
			return i.data.DeleteMine(ctx, c.id, c.fun)
		})
		l.wrote(&c.mine, 0, a, err)
		l.count(number, "mine.delete", m, err, "")
	case k < 14:
		packed, err := value.Pack(value.Map{}.Set("n", int64(n)))
		if err != nil {
			panic(err)
		}
		a, err := m.writes(c.id, func(ctx context.Context, i *instance) error {
			return i.data.SetGrains(ctx, c.id, packed)
		})
		l.wrote(&c.grains, n, a, err)
		l.count(number, "grains", m, err, fmt.Sprint(n))
	case k < 15:
		a, err := m.writes(c.id, func(ctx context.Context, i *instance) error {
			return i.data.DropGrains(ctx, c.id)
		})
		l.wrote(&c.grains, 0, a, err)
		l.count(number, "grains.drop", m, err, "")
	default:
		l.readCell(number, m, c)
	}
}

// onceCall writes a value that is not written again, or deletes the oldest such value.
func (l *load) onceCall(number int, m *master, c *cell) {
	if live := slices.IndexFunc(c.once, func(o *once) bool { return !o.deleted }); live >= 0 &&
		c.n-c.once[live].n > 8 {
		o := c.once[live]
		a, err := m.writes(c.id, func(ctx context.Context, i *instance) error {
			return i.data.DeleteMine(ctx, c.id, o.fun)
		})
		o.deleted = !errors.Is(err, errDown)
		l.wrote(&o.value, 0, a, err)
		l.count(number, "once.delete", m, err, o.fun)
		return
	}
	o := &once{fun: fmt.Sprintf("once%d", c.n), n: c.n}
	a, err := m.writes(c.id, func(ctx context.Context, i *instance) error {
		return i.data.MergeMine(ctx, c.id, value.Map{}.Set(o.fun, int64(o.n)), false)
	})
	l.wrote(&o.value, o.n, a, err)
	l.mu.Lock()
	c.once = append(c.once, o)
	l.mu.Unlock()
	l.count(number, "once", m, err, o.fun)
}

// readCell reads a cell from a master. The answer must be what was acknowledged, if the cluster was
// well all the time; a side that can't reach most owners serves what it has. An error says that it
// was not judged.
func (l *load) readCell(number int, m *master, c *cell) error {
	var mine, grains int
	values := map[string]int{}
	calm := l.w.calm()
	err := m.on(func(ctx context.Context, i *instance) error {
		have, err := i.data.Mine(ctx, c.id)
		if err != nil {
			return err
		}
		mine = number1(have, c.fun)
		for _, o := range c.once {
			values[o.fun] = number1(have, o.fun)
		}
		of, _, err := i.data.Grains(ctx, c.id)
		grains = number1(of, "n")
		return err
	})
	if errors.Is(err, errDown) {
		return err
	}
	l.count(number, "read", m, err, fmt.Sprint(mine, grains))
	if err != nil {
		return err
	}
	if !calm || !l.w.calm() {
		return errors.New("the cluster is not well")
	}
	l.mu.Lock()
	l.calls["read.judged"]++
	l.acked["read.judged"]++
	l.mu.Unlock()
	if !c.mine.allows(mine) {
		l.w.fault("%s shows mine value %d of %s; acknowledged is %d, unknown %v", m.id, mine, c.id,
			c.mine.acked, c.mine.maybe)
	}
	for _, o := range c.once {
		if !o.value.allows(values[o.fun]) {
			l.w.fault("%s shows %d as %s of %s; acknowledged is %d, unknown %v", m.id, values[o.fun],
				o.fun, c.id, o.value.acked, o.value.maybe)
		}
	}
	if !c.grains.allows(grains) {
		l.w.fault("%s shows grains %d of %s; acknowledged is %d, unknown %v", m.id, grains, c.id,
			c.grains.acked, c.grains.maybe)
	}
	return nil
}

func number1(m value.Map, key string) int {
	v, _ := m.Get(key)
	switch n := v.(type) {
	case int64:
		return int(n)
	case uint64:
		return int(n)
	case int:
		return n
	}
	return 0
}

// token is a token that a client took. Its fate is unknown after a call without an answer.
type token struct {
	hash        [32]byte
	there, sure bool
}

// tokenCall takes or drops a token. Only one client does so.
func (l *load) tokenCall(number int, m *master, chance *rand.Rand) {
	now := time.Now().UTC()
	if n := len(l.tokens); n > 0 && chance.IntN(3) == 0 {
		t := l.tokens[chance.IntN(n)]
		err := m.on(func(ctx context.Context, i *instance) error {
			_, _, err := i.node.Propose(ctx, &fsm.DropToken{Hash: t.hash, At: now})
			return err
		})
		if errors.Is(err, errDown) {
			return
		}
		if err == nil && t.sure {
			t.there = false
		} else {
			t.sure = false
		}
		l.count(number, "token.drop", m, err, "")
		return
	}
	t := &token{hash: sha256.Sum256(fmt.Append(nil, "token ", len(l.tokens)))}
	err := m.on(func(ctx context.Context, i *instance) error {
		r, _, err := i.node.Propose(ctx, &fsm.PutToken{Token: fsm.Token{Hash: t.hash,
			Owner: "file/carol", Data: []byte("x"), Expire: now.Add(24 * time.Hour)}, Max: 10000,
			MaxPerOwner: 10000, At: now})
		if err == nil && r.Refused != "" {
			err = errors.New(string(r.Refused))
		}
		return err
	})
	if errors.Is(err, errDown) {
		return
	}
	t.there, t.sure = err == nil, err == nil
	l.tokens = append(l.tokens, t)
	l.count(number, "token", m, err, "")
}

// sharedCall stores a token, or drops or looks for one that any client has stored.
func (l *load) sharedCall(number int, m *master, chance *rand.Rand) {
	if chance.IntN(3) > 0 {
		time.Sleep(time.Duration(chance.IntN(400)) * time.Millisecond) // fake time; a third of the load
	}
	begun, now := l.shared.Now(), time.Now().UTC()
	made := l.sharedMade.Load()
	verb := []string{"put", "drop", "look", "look"}[chance.IntN(4)]
	name := made - chance.Int64N(max(min(made, 3), 1)) // one of the last three
	if made == 0 || verb == "put" {
		if number != 30 { // one client stores them all, so that each is stored once
			return
		}
		verb, name = "put", made+1
	}
	hash := sha256.Sum256(fmt.Append(nil, "shared ", name))
	var out history.Outcome
	err := m.on(func(ctx context.Context, i *instance) (err error) {
		var r fsm.Result
		switch verb {
		case "put":
			r, _, err = i.node.Propose(ctx, &fsm.PutToken{Token: fsm.Token{Hash: hash,
				Owner: "file/dora", Data: []byte("x"), Expire: now.Add(24 * time.Hour)}, Max: 10000,
				MaxPerOwner: 10000, At: now})
			out.Changed = true
		case "drop":
			r, _, err = i.node.Propose(ctx, &fsm.DropToken{Hash: hash, At: now})
			out.Changed = r.Changed
		case "look":
			if err = i.node.ReadIndex(ctx); err == nil {
				if _, there := i.node.State().Token(hash); there {
					out.Value = "there"
				}
			}
		}
		if err == nil && r.Refused != "" {
			l.w.fault("%s of a token is refused at %s: %s", verb, m.id, r.Refused)
		}
		return err
	})
	if errors.Is(err, errDown) {
		return
	}
	if verb != "look" || err == nil {
		out.Unknown = err != nil
		call := history.Call{Register: fmt.Sprint("token ", name), Verb: verb, At: m.id}
		l.shared.Add(number, begun, call, out)
		if verb == "put" && out.Unknown {
			l.shared.Add(number, begun, call, out) // it may have been proposed twice
		}
	}
	if verb == "put" {
		l.sharedMade.Add(1)
	}
	l.count(number, "shared."+verb, m, err, fmt.Sprint(name, out))
}

// claimCall claims the next turn of a schedule entry, as the masters' schedulers do, or reads the
// turn. Of all claims from one turn only one may succeed.
func (l *load) claimCall(number int, m *master, chance *rand.Rand) {
	name := []string{"backup", "highstate"}[chance.IntN(2)]
	if chance.IntN(3) > 0 {
		time.Sleep(time.Duration(chance.IntN(400)) * time.Millisecond) // fake time; a third of the load
	}
	looks := chance.IntN(3) == 0
	begun := l.claims.Now()
	verb := "look"
	var out history.Outcome
	err := m.on(func(ctx context.Context, i *instance) error {
		if looks {
			if err := i.node.ReadIndex(ctx); err != nil {
				return err
			}
			e, _ := i.node.State().Scheduled(name)
			out.Value = strconv.FormatUint(e.Turn, 10)
			return nil
		}
		e, _ := i.node.State().Scheduled(name)
		verb = strconv.FormatUint(e.Turn, 10)
		r, _, err := i.node.Propose(ctx, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: name, Turn: e.Turn,
			At: time.Now().UTC()}, Node: m.id})
		out.Changed, out.Value = r.Changed, strconv.FormatUint(r.Epoch, 10)
		if err == nil && r.Refused != "" && r.Refused != fsm.RefusedStale {
			l.w.fault("a claim is refused at %s: %s", m.id, r.Refused)
		}
		return err
	})
	if errors.Is(err, errDown) || verb == "look" && err != nil {
		return
	}
	if err != nil {
		out = history.Outcome{Unknown: true}
	}
	l.claims.Add(number, begun, history.Call{Register: name, Verb: verb, At: m.id}, out)
	what := "claim"
	if looks {
		what = "claim.look"
	}
	l.count(number, what, m, err, fmt.Sprint(name, " ", verb, out))
}
