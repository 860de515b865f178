package sim

import (
	"context"
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

// listen checks that an instance hears the events of each tag in order, and none twice.
func (l *load) listen(i *instance) {
	ctx, cancel := context.WithTimeout(i.life, callLimit)
	s, err := i.mesh.Subscribe(ctx, eventPrefix)
	cancel()
	if err != nil {
		return
	}
	defer s.Close()
	last := map[string]int{}
	own := eventPrefix + i.m.id + "/"
	for {
		select {
		case <-i.life.Done():
			return
		case e := <-s.C:
			data, err := e.Map()
			n := number1(data, "n")
			if err != nil || n <= last[e.Tag] {
				l.w.fault("%s hears event %d of %s after %d (%v)", i.m.id, n, e.Tag, last[e.Tag], err)
			}
			last[e.Tag] = n
			if !strings.HasPrefix(e.Tag, own) {
				l.mu.Lock()
				l.heard++
				i.heard[e.Tag] = n
				l.mu.Unlock()
			}
		}
	}
}

// allHear waits until every master hears a new event from every other master.
func (l *load) allHear() error {
	running := l.w.running()
	for _, i := range running {
		l.mu.Lock()
		clear(i.heard)
		l.mu.Unlock()
	}
	return l.w.until(15*time.Second, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, i := range running {
			for _, o := range running {
				tag := fmt.Sprintf("%s%s/%d", eventPrefix, o.m.id, o.gen)
				if i != o && i.heard[tag] == 0 {
					return fmt.Errorf("%s hears no event of %s", i.m.id, o.m.id)
				}
			}
		}
		return nil
	})
}
