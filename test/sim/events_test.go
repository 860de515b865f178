package sim

import (
	"fmt"
	"strings"
	"time"

	"clustermaster/value"
)

const (
	eventPrefix = "sim/"
	eventEvery  = 150 * time.Millisecond
)

// speak fires numbered events on an instance, under its own tag, until the instance ends.
func (l *load) speak(i *instance) {
	tag := fmt.Sprintf("%s%s/%d", eventPrefix, i.m.id, i.gen)
	t := time.NewTicker(eventEvery)
	defer t.Stop()
	for n := 1; ; n++ {
		i.bus.Fire(tag, value.Map{}.Set("n", int64(n)))
		select {
		case <-t.C:
		case <-i.life.Done():
			return
		}
	}
}

// noticed is how much later than the event after a gap the notice of the loss may come: a stream
// that was opened again may deliver events before its confirmation.
const noticed = 2 * time.Second

// listen checks that an instance hears the events of each tag in order, none twice, that it gets a
// notice with each gap, and once the cluster is whole, hears all.
func (l *load) listen(i *instance) {
	s, err := i.mesh.Subscribe(i.life, eventPrefix)
	if err != nil {
		if i.life.Err() == nil {
			l.w.fault("%s can't subscribe to events: %v", i.m.id, err)
		}
		return
	}
	defer s.Close()
	type hearing struct {
		n  int
		at time.Time
	}
	last := map[string]hearing{}
	gaps := map[string]time.Time{} // those without a notice yet
	var notice time.Time           // the latest
	own := eventPrefix + i.m.id + "/"
	for {
		select {
		case <-i.life.Done():
			return
		case <-s.Lost():
			notice = time.Now()
			clear(gaps)
		case e := <-s.C:
			data, err := e.Map()
			n, before := number1(data, "n"), last[e.Tag]
			if err != nil || n <= before.n {
				l.w.fault("%s hears event %d of %s after %d (%v)", i.m.id, n, e.Tag, before.n, err)
			}
			gap := before.n > 0 && n != before.n+1
			select {
			case <-s.Lost():
				notice = time.Now()
				clear(gaps)
			default:
			}
			if gap && notice.Before(before.at) {
				gaps[e.Tag] = time.Now()
			}
			for tag, at := range gaps {
				if time.Since(at) > noticed {
					l.w.fault("%s missed events of %s before %v, without a notice", i.m.id, tag, at.Sub(l.w.began))
					delete(gaps, tag)
				}
			}
			l.mu.Lock()
			if l.whole && i.heard[e.Tag] > 0 && gap {
				l.w.fault("%s hears event %d of %s after %d, though all is well", i.m.id, n, e.Tag, before.n)
			}
			i.heard[e.Tag]++
			if !strings.HasPrefix(e.Tag, own) {
				l.heard++
			}
			l.mu.Unlock()
			last[e.Tag] = hearing{n, time.Now()}
		}
	}
}

// inARow is how many events of each master all masters must hear at the end, without a gap.
const inARow = 20

// allHear waits until every master has heard so many events of every master. The end of a detour
// through another master breaks streams, so it comes first, and these get time to be opened again.
func (l *load) allHear() error {
	running := l.w.running()
	if err := l.w.until(6*time.Minute, func() error {
		for _, i := range running {
			for _, o := range running {
				if by := i.port.Through(o.node.Self().Node); by != "" {
					return fmt.Errorf("%s still reaches %s through %s", i.m.id, o.m.id, by)
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	l.hearAnew(running, true)
	defer l.hearAnew(running, false)
	return l.w.until(15*time.Second, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, i := range running {
			for _, o := range running {
				tag := fmt.Sprintf("%s%s/%d", eventPrefix, o.m.id, o.gen)
				if n := i.heard[tag]; n < inARow {
					return fmt.Errorf("%s hears %d events of %s", i.m.id, n, o.m.id)
				}
			}
		}
		return nil
	})
}

// hearAnew counts what instances hear from now on; whole says that they must hear everything.
func (l *load) hearAnew(running []*instance, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = whole
	for _, i := range running {
		clear(i.heard)
	}
}
