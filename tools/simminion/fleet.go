package simminion

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Fleet is a number of minions that share a few keys.
type Fleet struct {
	Minions []*Minion
	// Starting, if not 0, bounds how many minions are between their start and their first start
	// event: a master that gets thousands of sign-ins at once answers many after they gave up, and
	// then again.
	Starting int
	perStep  time.Duration
}

// NewFleet makes n minions from template with ids prefix1 to prefixN, and assigns the keys in turn.
// perSecond bounds how many start in a second; 0 starts all at once.
func NewFleet(template Config, prefix string, n int, keys []*Key, perSecond int) (*Fleet, error) {
	if len(keys) == 0 {
		return nil, errors.New("make fleet: no keys")
	}
	f := &Fleet{Minions: make([]*Minion, n)}
	if perSecond > 0 {
		f.perStep = time.Second / time.Duration(perSecond)
	}
	for i := range f.Minions {
		cfg := template
		cfg.ID = fmt.Sprintf("%s%d", prefix, i+1)
		cfg.Key = keys[i%len(keys)]
		m, err := New(cfg)
		if err != nil {
			return nil, fmt.Errorf("make fleet: %w", err)
		}
		f.Minions[i] = m
	}
	return f, nil
}

// Run runs the minions until ctx ends; it returns the errors of those that ended before.
func (f *Fleet) Run(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, len(f.Minions))
	var starting chan struct{}
	if f.Starting > 0 {
		starting = make(chan struct{}, f.Starting)
	}
	for i, m := range f.Minions {
		if f.perStep > 0 && i > 0 && pause(ctx, f.perStep) != nil {
			break
		}
		if starting != nil {
			select {
			case starting <- struct{}{}:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		ended := make(chan struct{})
		all.Go(func() { errs[i] = m.Run(ctx); close(ended) })
		if starting != nil {
			all.Go(func() {
				select {
				case <-m.Ready():
				case <-ended:
				}
				<-starting
			})
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// Started returns how many have fired their first start event.
func (f *Fleet) Started() (n int) {
	for _, m := range f.Minions {
		select {
		case <-m.Ready():
			n++
		default:
		}
	}
	return n
}

// WaitReady waits until every minion has fired its first start event.
func (f *Fleet) WaitReady(ctx context.Context) error {
	for i, m := range f.Minions {
		select {
		case <-m.Ready():
		case <-ctx.Done():
			return fmt.Errorf("wait for minion %q, %d of %d are ready: %w", m.ID(), i,
				len(f.Minions), ctx.Err())
		}
	}
	return nil
}

// Counts sums up what all minions did.
func (f *Fleet) Counts() (sum Counts) {
	for _, m := range f.Minions {
		c := m.Counts()
		sum.SignIns += c.SignIns
		sum.Pending += c.Pending
		sum.Jobs += c.Jobs
		sum.Duplicates += c.Duplicates
		sum.Foreign += c.Foreign
		sum.Undecoded += c.Undecoded
		sum.Returns += c.Returns
		sum.Lost += c.Lost
		sum.Reconnects += c.Reconnects
	}
	return sum
}
