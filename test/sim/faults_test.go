package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// trouble causes faults on the masters until ctx ends. Several may be active at once; heal repairs
// them all.
func (w *world) trouble(ctx context.Context, chance *rand.Rand) {
	var under sync.WaitGroup
	defer under.Wait()
	for {
		select {
		case <-time.After(time.Duration(500+chance.IntN(4000)) * time.Millisecond):
		case <-ctx.Done():
			return
		}
		if w.hush.wanted() {
			continue
		}
		m := w.masters[chance.IntN(len(w.masters))]
		other := w.masters[(m.no+1+chance.IntN(len(w.masters)-1))%len(w.masters)]
		lasts := time.Duration(500+chance.IntN(9000)) * time.Millisecond
		kind, dice := chance.IntN(12), chance.IntN(100)
		// If that matters, only one master is away for long: two might both begin anew, and drop
		// what no other master has.
		if chance.IntN(4) < 2 && kind < 4 && (!w.forgetful() || m == w.absentee()) {
			lasts += 20 * time.Second // longer than deletions are remembered
		}
		slow := time.Duration(20+chance.IntN(400)) * time.Millisecond
		pause := func() {
			select {
			case <-time.After(lasts):
			case <-w.hush.begun():
			case <-ctx.Done():
			}
		}
		w.underWay.Add(1)
		under.Go(func() {
			defer w.underWay.Add(-1)
			w.one(kind, dice, m, other, slow, lasts, pause)
		})
	}
}

// one causes one fault.
func (w *world) one(kind, dice int, m, other *master, slow, lasts time.Duration, pause func()) {
	what := func(format string, args ...any) {
		w.note("fault: "+format+" for %v", append(args, lasts)...)
		w.mu.Lock()
		w.count++
		w.mu.Unlock()
	}
	a, b := m.ip.String(), other.ip.String()
	rest := func(f func(o string)) {
		for _, o := range w.masters {
			if o != m {
				f(o.ip.String())
			}
		}
	}
	switch kind {
	case 0, 1, 2:
		if !m.claim() {
			return
		}
		defer m.release()
		what("%s loses power (silently: %v)", m.id, dice < 30)
		m.kill(dice < 30)
		pause()
		if err := m.start(); err != nil {
			w.fault("%s does not start again: %v", m.id, err)
		}
	case 3:
		if !m.claim() {
			return
		}
		defer m.release()
		what("%s is restarted", m.id)
		m.stop()
		pause()
		if err := m.start(); err != nil {
			w.fault("%s does not start again: %v", m.id, err)
		}
	case 4, 5:
		what("%s is cut off", m.id)
		rest(func(o string) { w.net.cut(a, o); w.net.cut(o, a) })
		pause()
		rest(func(o string) { w.net.heal(a, o); w.net.heal(o, a) })
	case 6:
		what("%s and %s don't hear each other", m.id, other.id)
		w.net.cut(a, b)
		w.net.cut(b, a)
		pause()
		w.net.heal(a, b)
		w.net.heal(b, a)
	case 7:
		what("%s is not heard by others", m.id)
		rest(func(o string) { w.net.cut(a, o) })
		pause()
		rest(func(o string) { w.net.heal(a, o) })
	case 8:
		if dice < 35 {
			rate := (20 + 2*dice) << 10
			what("%s reads slowly, %d bytes/s", m.id, rate)
			w.net.slowReader(a, rate)
			pause()
			w.net.slowReader(a, 0)
			return
		}
		what("%s: slow and lossy lines, %v", m.id, slow)
		rest(func(o string) { w.net.disturb(a, o, slow, 0.1); w.net.disturb(o, a, slow, 0.1) })
		pause()
		rest(func(o string) { w.net.disturb(a, o, 0, 0); w.net.disturb(o, a, 0, 0) })
	case 9:
		what("connections of %s and %s are reset", m.id, other.id)
		w.net.reset(a, b)
	case 10:
		i := m.up()
		if i == nil {
			return
		}
		if dice < 50 {
			what("the disk of %s is full", m.id)
			i.files.setFull(true)
			pause()
			i.files.setFull(false)
			return
		}
		what("the disk of %s is slow, %v", m.id, slow)
		i.files.setSlow(slow)
		pause()
		i.files.setSlow(0)
	case 11:
		w.members(dice, m, other, what, pause)
	}
}

// members changes the membership by an operator's order at one master.
func (w *world) members(dice int, m, other *master, what func(string, ...any), pause func()) {
	order := func(say string, f func(context.Context, *instance) error) {
		err := m.on(f)
		w.note("order at %s: %s %s: ok %v", m.id, say, other.id, err == nil)
	}
	switch {
	case dice < 35:
		what("%s is demoted", other.id)
		order("demote", func(ctx context.Context, i *instance) error {
			_, _, err := i.node.Demote(ctx, other.id)
			return err
		})
		pause()
		order("promote", func(ctx context.Context, i *instance) error {
			_, _, err := i.node.Promote(ctx, other.id)
			return err
		})
	case dice < 60:
		what("%s is drained", other.id)
		order("drain", func(ctx context.Context, i *instance) error {
			_, err := i.node.Drain(ctx, other.id, true)
			return err
		})
		pause()
	default:
		what("%s is asked to lead", other.id)
		order("lead", transferTo(other.id))
	}
}

// claim makes the caller the only one that starts and stops a master.
func (m *master) claim() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claimed || m.now == nil {
		return false
	}
	m.claimed = true
	return true
}

func (m *master) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claimed = false
}

// heal ends all trouble: network and disks work, all masters run, no operator's order is in effect.
func (w *world) heal() error {
	for _, m := range w.masters {
		for _, o := range w.masters {
			if m != o {
				w.net.heal(m.ip.String(), o.ip.String())
			}
		}
		w.net.slowReader(m.ip.String(), 0)
		i := m.up()
		if i == nil {
			return fmt.Errorf("%s does not run", m.id)
		}
		i.files.setFull(false)
		i.files.setSlow(0)
		i.files.setStill(false)
		m.setClock(0)
	}
	return w.until(2*time.Minute, func() error {
		for _, m := range w.masters {
			err := w.masters[0].on(func(ctx context.Context, i *instance) error {
				if _, err := i.node.Drain(ctx, m.id, false); err != nil {
					return err
				}
				_, _, err := i.node.Promote(ctx, m.id)
				return err
			})
			if err != nil && len(w.masters) <= 5 {
				return err
			}
		}
		return w.allReady()
	})
}

// calm reports that no fault is active and what faults left behind is repaired.
func (w *world) calm() bool { return w.underWay.Load() == 0 && w.settled() == nil }

// found starts all masters for the first time. In half of the runs it starts them one by one, and
// some can't reach each other meanwhile.
func (w *world) found(chance *rand.Rand) error {
	rough := chance.IntN(2) == 0
	for _, m := range w.masters {
		if err := m.start(); err != nil {
			return err
		}
		if !rough {
			continue
		}
		if o := w.masters[chance.IntN(len(w.masters))]; o != m {
			w.net.cut(m.ip.String(), o.ip.String())
		}
		time.Sleep(time.Duration(chance.IntN(5000)) * time.Millisecond) // fake time
	}
	for _, m := range w.masters {
		for _, o := range w.masters {
			if m != o {
				w.net.heal(m.ip.String(), o.ip.String())
			}
		}
	}
	return nil
}

// majorityLost gives most masters empty disks, in some runs, and starts them before those that have
// the keys. They must not found another cluster.
func (w *world) majorityLost() {
	chance := rng(w.seed, "majority")
	if chance.IntN(4) > 0 {
		return
	}
	w.note("most disks are lost")
	lost := w.masters[:len(w.masters)/2+1]
	if chance.IntN(2) == 0 { // whichever master has the lowest address
		lost = w.masters[len(w.masters)-len(lost):]
	}
	for _, m := range lost {
		m.wipe()
		if err := m.start(); err != nil {
			w.fault("%s does not start with an empty disk: %v", m.id, err)
		}
	}
	time.Sleep(45 * time.Second) // fake time; founding never waits that long
	for _, i := range w.running() {
		if c, founded := i.node.State().Cluster(); founded {
			w.fault("%s has founded a cluster %s while others have the keys", i.m.id, c.UUID)
		}
	}
}
