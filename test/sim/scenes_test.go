package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermaster/cluster/fsm"
)

// Scenes are faults of several steps. At most one is played at a time, so no second disk is lost
// before the copies of the first are made up for. The faults of trouble go on meanwhile, unless a
// scene wants a cluster without faults to begin with.

// losses are the moments at which masters lost what only their disks had: they got other disks, or
// began new stores.
type losses struct {
	mu  sync.Mutex // guards all
	all []loss
}

type loss struct {
	of       *master
	paid, at time.Time // what it wrote until paid was handed over before
}

func (l *losses) add(lost loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, lost)
}

// took reports whether a write may have been lost that its master's disk alone had.
func (l *losses) took(a ack) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(lost loss) bool {
		return lost.of == a.by && a.at.After(lost.paid) && a.begun.Before(lost.at)
	})
}

// hush ends the faults of trouble, and lets none begin, while a scene wants it.
type hush struct {
	mu    sync.Mutex // guards the fields below
	on    bool
	begin chan struct{} // closed while on
}

func (h *hush) set(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begin == nil || h.on && !on {
		h.begin = make(chan struct{})
	}
	if on && !h.on {
		close(h.begin)
	}
	h.on = on
}

func (h *hush) wanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.on
}

func (h *hush) begun() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begin == nil {
		h.begin = make(chan struct{})
	}
	return h.begin
}

// leader is a master that says that it leads, or nil.
func (w *world) leader() *master {
	for _, i := range w.running() {
		if i.node.IsLeader() {
			return i.m
		}
	}
	return nil
}

// others calls f with the address of each other master.
func (w *world) others(m *master, f func(o string)) {
	for _, o := range w.masters {
		if o != m {
			f(o.ip.String())
		}
	}
}

// quiet ends all faults and waits until no copy is missing. It reports whether that was reached;
// the caller ends the quiet with hush.set(false).
func (w *world) quiet(ctx context.Context) bool {
	w.hush.set(true)
	for ctx.Err() == nil {
		if w.calm() {
			return true
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return false
}

// scenes plays scenes until ctx ends.
func (w *world) scenes(ctx context.Context, chance *rand.Rand) {
	defer w.hush.set(false)
	for first := true; ; first = false {
		select {
		case <-time.After(time.Duration(2000+chance.IntN(8000)) * time.Millisecond):
		case <-ctx.Done():
			return
		}
		s := &scene{w: w, ctx: ctx, chance: chance, m: w.masters[chance.IntN(len(w.masters))],
			dice: chance.IntN(100), lasts: time.Duration(1000+chance.IntN(6000)) * time.Millisecond}
		if l := w.leader(); l != nil && chance.IntN(2) == 0 {
			s.m = l
		}
		plays := []func(){s.lateLines, s.standsStill, s.refuses, s.clockStep, s.lostDisk, s.flippedBits,
			s.removed, s.leftBehind, s.narrowLines, s.diskHangs, s.handsOver, s.putBack,
			s.cloned}
		play := plays[chance.IntN(len(plays))]
		if w.forgetful() && first { // no later one has the time
			play = []func(){s.longAway, s.putBack, play, play}[chance.IntN(4)]
		}
		play()
		w.hush.set(false)
	}
}

// scene is one play of a scene.
type scene struct {
	w      *world
	ctx    context.Context
	chance *rand.Rand
	m      *master
	dice   int
	lasts  time.Duration
}

func (s *scene) note(format string, args ...any) {
	s.w.note("fault: "+format, args...)
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.count++
}

// pause waits on fake time, at most until the faults end.
func (s *scene) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

// busy counts the scene as a fault that is active.
func (s *scene) busy() func() {
	s.w.underWay.Add(1)
	return func() { s.w.underWay.Add(-1) }
}

// lateLines delays what others send to a master, and then cuts what it sends: it hears late that
// others have elected a new leader.
func (s *scene) lateLines() {
	defer s.busy()()
	late := time.Duration(500+s.chance.IntN(450)) * time.Millisecond
	s.note("scene: %s hears %v late for %v, then is not heard for %v", s.m.id, late, s.lasts/2, s.lasts)
	a := s.m.ip.String()
	s.w.others(s.m, func(o string) { s.w.net.disturb(o, a, late, 0) })
	s.pause(s.lasts / 2)
	s.w.others(s.m, func(o string) { s.w.net.cut(a, o) })
	s.pause(s.lasts)
	s.w.others(s.m, func(o string) { s.w.net.heal(o, a); s.w.net.heal(a, o) })
}

// standsStill holds a master's messages and syncs, as if the machine were paused. Its calculations
// go on, because the goroutines of one process can't be stopped.
func (s *scene) standsStill() {
	i := s.m.up()
	if i == nil {
		return
	}
	defer s.busy()()
	s.note("scene: %s stands still for %v", s.m.id, s.lasts)
	a := s.m.ip.String()
	hold := func(held bool) {
		i.files.setStill(held)
		s.w.others(s.m, func(o string) { s.w.net.hold(o, a, held); s.w.net.hold(a, o, held) })
	}
	hold(true)
	went := s.crowd()
	s.pause(s.lasts)
	hold(false)
	went()
}

// leaderGoes is how long the others may need to lead instead of a master whose disk hangs, or whose
// lines lose large packets: two to seven seconds until it is silent, and elections, the first of
// which may be lost.
const leaderGoes = 20 * time.Second

// diskHangs holds the syncs of the leader, and nothing else. Another master must lead soon. The
// disk stays so for a while, and then the former leader has entries that nobody else has.
func (s *scene) diskHangs() {
	i := s.reigns()
	if i == nil {
		return
	}
	defer s.m.release()
	defer s.busy()()
	s.note("scene: the disk of %s, which leads, hangs until another master leads, and %v more", s.m.id, s.lasts)
	i.files.setStill(true)
	written := s.burst(s.m, 3)
	s.otherLeads("its disk hangs")
	s.pause(s.lasts)
	i.files.setStill(false)
	written()
}

// narrowLines loses large packets between the leader and all others; small ones arrive. Another
// master must lead soon.
func (s *scene) narrowLines() {
	if s.reigns() == nil {
		return
	}
	defer s.m.release()
	defer s.busy()()
	s.note("scene: large packets of %s, which leads, get lost until another master leads, and for %v more",
		s.m.id, s.lasts)
	a := s.m.ip.String()
	s.w.others(s.m, func(o string) { s.w.net.narrow(o, a); s.w.net.narrow(a, o) })
	s.otherLeads("its large packets get lost")
	s.pause(s.lasts)
	s.w.others(s.m, func(o string) { s.w.net.heal(o, a); s.w.net.heal(a, o) })
}

// handsOver asks the leader to hand over to a master whose messages wait, and then those of all
// others wait, too. Afterwards it must be able to lead again, and to take commands.
func (s *scene) handsOver() {
	if s.reigns() == nil {
		return
	}
	defer s.m.release()
	defer s.busy()()
	w := s.w
	to := s.another(s.m)
	alone := time.Duration(500+s.chance.IntN(3500)) * time.Millisecond
	s.note("scene: %s, which leads, is asked to hand over to %s, which it does not reach, nor any other after %v, for %v",
		s.m.id, to.id, alone, s.lasts)
	a := s.m.ip.String()
	hold := func(o string, held bool) { w.net.hold(o, a, held); w.net.hold(a, o, held) }
	hold(to.ip.String(), true)
	written := s.burst(s.m, 3)
	var asked sync.WaitGroup
	asked.Go(func() {
		err := s.m.lead(to.id)
		w.note("order at %s: lead %s: %v", s.m.id, to.id, err)
	})
	s.pause(alone)
	w.others(s.m, func(o string) { hold(o, true) })
	s.pause(s.lasts)
	w.others(s.m, func(o string) { hold(o, false) })
	asked.Wait()
	written()
	command := s.chance.Uint64()
	if err := w.until(time.Minute, func() error {
		if err := s.m.lead(s.m.id); err != nil {
			return err
		}
		return s.m.token(command, 0)
	}); err != nil {
		w.fault("%s does not lead again, or takes no commands then: %v", s.m.id, err)
	}
}

// another picks a master other than m.
func (s *scene) another(m *master) *master {
	all := s.w.masters
	return all[(m.no+1+s.chance.IntN(len(all)-1))%len(all)]
}

// lead orders at a master that one leads.
func (m *master) lead(id string) error { return m.on(transferTo(id)) }

func transferTo(id string) func(context.Context, *instance) error {
	return func(ctx context.Context, i *instance) error {
		_, err := i.node.TransferLeader(ctx, id)
		return err
	}
}

// reigns makes s.m the leader and prepares the scene. It returns nil if that was not reached; else
// the caller releases s.m.
func (s *scene) reigns() *instance {
	if s.m = s.w.leader(); s.m == nil {
		return nil
	}
	if !s.prepare() {
		return nil
	}
	if i := s.m.up(); i != nil && i.node.IsLeader() {
		return i
	}
	s.m.release()
	return nil
}

// otherLeads waits until another master leads than s.m, whose office a fault should end.
func (s *scene) otherLeads(fault string) {
	began := time.Now()
	for !s.w.ledWithout(s.m) && s.ctx.Err() == nil {
		if time.Since(began) > leaderGoes {
			s.w.fault("%s leads for %v although %s", s.m.id, leaderGoes, fault)
			break
		}
		s.pause(100 * time.Millisecond)
	}
	s.w.note("another master leads after %v", time.Since(began))
}

// ledWithout reports whether another master says that it leads.
func (w *world) ledWithout(m *master) bool {
	return slices.ContainsFunc(w.running(), func(i *instance) bool { return i.m != m && i.node.IsLeader() })
}

// crowd lets more clients work for a while: some change keys at the other masters, and one looks at
// them at s.m all the time. Most of the other clients soon wait for a master that does not answer.
// The caller ends it with went.
func (s *scene) crowd() (went func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	var all sync.WaitGroup
	var others []*master
	for _, o := range s.w.masters {
		if o != s.m {
			others = append(others, o)
		}
	}
	for n := range 3 {
		chance, l := rand.New(rand.NewPCG(s.chance.Uint64(), 0)), s.w.load
		all.Go(func() {
			if n == 0 {
				l.loop(ctx, 50, []*master{s.m}, chance, func(n int, m *master, _ *rand.Rand) { l.look(n, m) })
				return
			}
			l.loop(ctx, 50+n, others, chance, l.keyCall)
		})
	}
	return func() { cancel(); all.Wait() }
}

// refuses fills the disk of a follower while many entries come, so that it refuses several.
func (s *scene) refuses() {
	l := s.w.leader()
	if l == nil {
		return
	}
	m := s.another(l)
	i := m.up()
	if i == nil {
		return
	}
	defer s.busy()()
	s.note("scene: the disk of %s is full while %s gets many entries, for %v", m.id, l.id, s.lasts)
	i.files.setFull(true)
	written := s.burst(l, 60)
	s.pause(s.lasts)
	i.files.setFull(false)
	written()
}

// burst lets a leader write n entries, one every 3 ms. The caller waits for them with written.
func (s *scene) burst(l *master, n int) (written func()) {
	burst := s.chance.Uint64()
	var all sync.WaitGroup
	for n := range n {
		all.Go(func() {
			s.pause(time.Duration(n) * 3 * time.Millisecond)
			_ = l.token(burst, n)
		})
	}
	return all.Wait
}

// token lets a master write a token that nobody reads.
func (m *master) token(burst uint64, n int) error {
	return m.on(func(ctx context.Context, i *instance) error {
		now := i.node.Now().UTC()
		_, _, err := i.node.Propose(ctx, &fsm.PutToken{Token: fsm.Token{
			Hash: sha256.Sum256(fmt.Append(nil, burst, n)), Owner: "file/burst", Data: []byte("x"),
			Expire: now.Add(24 * time.Hour)}, Max: 10000, MaxPerOwner: 10000, At: now})
		return err
	})
}

// leftBehind lets a master miss more entries than the others keep in their logs. Then another one
// becomes the leader and writes a snapshot at once, so that it may end with what a new leader
// writes, before any command. The master gets this snapshot, and loses power soon after.
func (s *scene) leftBehind() {
	w, l := s.w, s.w.leader()
	if l == nil {
		return
	}
	if s.m == l {
		s.m = s.another(l)
	}
	next := s.another(l)
	if next == s.m || !s.m.claim() {
		return
	}
	defer s.busy()()
	defer s.m.release()
	n := 3*int(w.snapshotAfter) + 40
	s.note("scene: %s is down while %s gets %d entries and %s becomes the leader; then it loses power again",
		s.m.id, l.id, n, next.id)
	again := func() {
		if err := s.m.start(); err != nil {
			w.fault("%s does not start again: %v", s.m.id, err)
		}
	}
	s.m.kill(false)
	s.burst(l, n)()
	_ = l.lead(next.id)
	for range 2000 {
		if now := w.leader(); now != nil && now != l {
			err := now.on(func(_ context.Context, i *instance) error { return i.node.Snapshot() })
			w.note("snapshot at %s: %v", now.id, err)
			break
		}
		time.Sleep(time.Millisecond) // fake time
	}
	again()
	i := s.m.up()
	for range 50 {
		if s.pause(100 * time.Millisecond); i == nil || i.node.Ready() || s.ctx.Err() != nil {
			break
		}
	}
	s.pause(s.lasts / 8)
	if i == nil {
		return
	}
	s.m.kill(s.dice < 50)
	s.pause(s.lasts / 4)
	again()
}

// clockStep sets a master's clock. Two sides of a partition can't order their writes if the clock
// of one is wrong. So nobody may be cut off during a small step, which no master corrects, and
// until the time has overtaken the versions of all; and a large one, which the others correct, ends
// with its master, which might start alone. A master that has not compared its clock since it began
// would stamp writes with it; minions don't reach it yet, these clients do.
func (s *scene) clockStep() {
	by := time.Duration(1+s.chance.IntN(60)) * []time.Duration{time.Second, time.Minute,
		time.Hour}[s.chance.IntN(3)]
	if s.dice < 50 {
		by = -by
	}
	small := by.Abs() <= 30*time.Second // cluster.Config.ClockLimit
	if small && !s.w.quiet(s.ctx) {
		return
	}
	s.m.setClock(by)
	if i := s.m.up(); !small && (i == nil || time.Until(i.node.Now()).Abs() > time.Second) {
		s.m.setClock(0)
		return
	}
	s.note("scene: the clock of %s is set by %v for %v", s.m.id, by, s.lasts)
	for end := time.Now().Add(s.lasts); time.Now().Before(end) && s.m.up() != nil && s.ctx.Err() == nil; {
		s.pause(100 * time.Millisecond)
	}
	s.m.setClock(0)
	if small {
		s.pause(max(0, by) + 2*time.Second) // clocks are compared each second
	}
}

// lostDisk gives a master an empty disk after a loss of power. All copies were there before; its
// lines are slow in the last moments, so that writes are under way.
func (s *scene) lostDisk() {
	if !s.prepare() {
		return
	}
	defer s.m.release()
	slow := time.Duration(100+s.chance.IntN(300)) * time.Millisecond
	s.note("scene: %s has slow lines, %v, then loses its disk, and is back after %v", s.m.id, slow, s.lasts)
	a := s.m.ip.String()
	if s.dice < 70 {
		s.w.others(s.m, func(o string) { s.w.net.disturb(a, o, slow, 0) })
		s.pause(time.Second)
	}
	s.m.kill(false)
	s.m.loses()
	s.m.wipe()
	s.w.others(s.m, func(o string) { s.w.net.disturb(a, o, 0, 0) })
	s.w.hush.set(false)
	s.pause(s.lasts)
	s.comesBack()
}

// prepare waits until all is well and makes the caller the only one that starts and stops s.m. In
// runs with long absences it does not, because a second master might begin anew.
func (s *scene) prepare() bool { return !s.w.forgetful() && s.well() && s.m.claim() }

// well waits until no copy is missing, and reports whether enough masters vote.
func (s *scene) well() bool { return s.w.quiet(s.ctx) && s.w.voters() >= 3 }

// voters counts the masters with a vote. While some are demoted, the others may not do without one
// that begins anew.
func (w *world) voters() (n int) {
	leader := w.leader()
	if leader == nil {
		return 0
	}
	if i := leader.up(); i != nil {
		for _, m := range i.node.Members() {
			if m.Voter {
				n++
			}
		}
	}
	return n
}

// comesBack starts a master that lacks records and waits until it has them or the faults end.
func (s *scene) comesBack() {
	if err := s.m.start(); err != nil {
		s.w.fault("%s does not start again: %v", s.m.id, err)
		return
	}
	for s.ctx.Err() == nil && s.w.settled() != nil {
		s.pause(500 * time.Millisecond)
	}
}

// longAway keeps a master away for longer than deletions are remembered, while nothing keeps the
// others from forgetting them.
func (s *scene) longAway() {
	s.m = s.w.absentee()
	if !s.w.quiet(s.ctx) || !s.m.claim() {
		return
	}
	defer s.busy()()
	defer s.m.release()
	away := s.w.tombstones + 10*time.Second + s.lasts
	s.note("scene: %s is away for %v, the others are not disturbed", s.m.id, away)
	s.m.kill(s.dice < 50)
	s.pause(away)
	s.w.hush.set(false)
	s.comesBack()
}

// putBack puts a master's machine back to a snapshot. In runs with long absences the snapshot is
// older than deletions are remembered. The others have elected a leader by then, so at least one of
// them knows each command that was acknowledged.
func (s *scene) putBack() {
	w := s.w
	ago := s.lasts
	if w.forgetful() {
		s.m = w.absentee()
		ago += w.tombstones + 10*time.Second
	}
	if !s.well() || !s.m.claim() {
		return
	}
	defer s.m.release()
	old := s.m.image()
	w.hush.set(w.forgetful()) // faults would keep the others from forgetting
	s.pause(ago)
	if !s.well() {
		return
	}
	s.note("scene: the machine of %s is put back to a snapshot made %v ago", s.m.id, ago)
	s.m.kill(false)
	s.m.loses()
	if err := w.until(leaderGoes, func() error {
		if !w.ledWithout(s.m) {
			return errors.New("nobody leads")
		}
		return nil
	}); err != nil {
		w.note("%s is away: %v", s.m.id, err)
	}
	s.pause(s.lasts)
	s.m.putBack(old)
	s.comesBack()
}

// cloned starts a clone of a running master at another address. It would vote as the same member,
// and what it stores would count as stored by the other one: it is refused, and ends by itself.
func (s *scene) cloned() {
	if !s.prepare() {
		return
	}
	defer s.m.release()
	c := s.m.clone(s.m.image())
	s.note("scene: a clone of %s is started at %s", s.m.id, c.addr)
	if err := c.start(); err != nil {
		s.w.fault("the clone of %s does not start: %v", s.m.id, err)
		return
	}
	select {
	case err := <-c.over:
		if err == nil || !strings.Contains(err.Error(), " runs at "+s.m.addr+" already") {
			s.w.fault("the clone of %s ends with %v", s.m.id, err)
		}
	case <-time.After(cloneEnds):
		s.w.fault("the clone of %s still runs after %v", s.m.id, cloneEnds)
	}
	c.stop()
}

// cloneEnds is how long a clone may run, while all lines are well.
const cloneEnds = time.Minute

// flippedBits damages the ring store of a master that is down.
func (s *scene) flippedBits() {
	if !s.prepare() {
		return
	}
	defer s.m.release()
	s.m.stop()
	s.m.mu.Lock()
	files := s.m.files
	s.m.mu.Unlock()
	names := ""
	for range 1 + s.chance.IntN(3) {
		name, err := files.flip(s.chance)
		if err != nil {
			s.w.fault("flip a bit of %s: %v", s.m.id, err)
		}
		names += " " + name
	}
	s.m.loses()
	s.note("scene: %s is down for %v, bits are flipped in%s", s.m.id, s.lasts, names)
	s.w.hush.set(false)
	s.pause(s.lasts)
	s.comesBack()
}

// removed removes a master by an operator's order and lets it join again with an empty disk.
// Another one may not hear the leader meanwhile, so that it writes by an old ring.
func (s *scene) removed() {
	if !s.prepare() {
		return
	}
	defer s.m.release()
	w := s.w
	order := func(what string, f func(context.Context, *instance) error) bool {
		for range 40 {
			for _, at := range w.masters {
				if at != s.m && at.on(f) == nil {
					w.note("order at %s: %s %s", at.id, what, s.m.id)
					return true
				}
			}
			time.Sleep(500 * time.Millisecond) // fake time
		}
		w.note("order: %s %s: failed", what, s.m.id)
		return false
	}
	var deaf *master
	lead := w.leader()
	if o := w.masters[s.chance.IntN(len(w.masters))]; s.dice < 60 && o != s.m && o != lead && lead != nil &&
		w.voters() > 3 { // else no quorum is left for the removal
		deaf = o
	}
	s.note("scene: %s is removed and joins again after %v; deaf for the leader: %v", s.m.id, s.lasts,
		deaf != nil)
	listens := func() {}
	if deaf != nil {
		a, b := deaf.ip.String(), lead.ip.String()
		w.net.cut(a, b)
		w.net.cut(b, a)
		listens = func() { w.net.heal(a, b); w.net.heal(b, a) }
	}
	defer listens()
	gone := order("remove", func(ctx context.Context, i *instance) error {
		_, err := i.node.Remove(ctx, s.m.id, true)
		return err
	})
	changed := false
	allow := func() bool {
		return order("allow", func(ctx context.Context, i *instance) error {
			did, err := i.node.Allow(ctx, s.m.id)
			changed = changed || did
			return err
		})
	}
	if gone {
		s.pause(s.lasts)
	} else {
		// It may have taken effect, or still will: not after another order.
		listens()
		if !allow() || !changed {
			return
		}
	}
	s.m.stop()
	s.m.loses()
	s.m.wipe()
	if gone {
		allow()
	}
	w.hush.set(false)
	s.comesBack()
}
