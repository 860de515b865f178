package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// RequestPatience is how long one request may take. Salt's minions wait 60 s; 10 s are enough to
// characterize a master.
const RequestPatience = 10 * time.Second

// The sign-in of all minions together may take signInPatience plus signInEach for each: the key of
// an unknown minion is a change of the replicated state.
const (
	signInPatience = 2 * time.Minute
	signInEach     = 50 * time.Millisecond
)

// pendingPause is the time between two sign-ins of a minion whose key is not accepted yet.
const pendingPause = 2 * time.Second

// generator is a crowd of signed-in minions on a number of connections.
type generator struct {
	crews []*crew
	job   job
}

// signIn makes a column's minions, spreads their connections over its masters and signs them in.
func (b *bencher) signIn(ctx context.Context, c *Column) (*generator, error) {
	g := &generator{job: job{saltenv: b.flags.env, file: b.flags.file}}
	for i := range c.Workers {
		g.crews = append(g.crews, &crew{line: line{addr: c.Masters[i%len(c.Masters)]}, job: &g.job})
	}
	for i := range c.Minions {
		w := g.crews[i%c.Workers]
		w.sessions = append(w.sessions,
			newSession(fmt.Sprintf("%s%d", b.flags.prefix, i+1), b.key))
	}
	patience := signInPatience + time.Duration(c.Minions)*signInEach
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	m := new(meter)
	defer b.progress.follow(fmt.Sprintf("sign in %d minions", c.Minions), m.String)()
	pending := sync.OnceFunc(func() {
		b.say("The master has not accepted the minions' keys: accept %s*, or set auto_accept there; waiting.",
			b.flags.prefix)
	})
	all, ctx := errgroup.WithContext(ctx)
	for _, w := range g.crews {
		all.Go(func() error { return w.signInAll(ctx, m, pending) })
	}
	if err := all.Wait(); err != nil { // one failure is enough to give up
		g.close()
		return nil, fmt.Errorf("sign minions in: %w", err)
	}
	return g, nil
}

// close ends all connections.
func (g *generator) close() {
	for _, c := range g.crews {
		c.line.close()
	}
}

// crew is one worker: a connection and the minions that share it.
type crew struct {
	line     line
	sessions []*session
	turn     int
	job      *job
	kind     kind
}

// Request sends the next minion's request.
func (c *crew) Request(ctx context.Context) error {
	s := c.sessions[c.turn%len(c.sessions)]
	c.turn++
	return c.kind.send(ctx, s, &c.line, c.job)
}

// signInTries is how often a minion's sign-in may fail before the run ends: masters drop a few
// connections when hundreds come at once.
const signInTries = 5

// signInAll signs the minions in, one after the other. It calls pending if one has to wait for its
// key to be accepted.
func (c *crew) signInAll(ctx context.Context, m *meter, pending func()) error {
	for _, s := range c.sessions {
		for failed := 0; ; {
			try, cancel := context.WithTimeout(ctx, RequestPatience)
			err := s.signIn(try, &c.line)
			cancel()
			if err == nil {
				break
			}
			wait := failurePause
			if errors.Is(err, errPending) {
				pending()
				wait = pendingPause
			} else if failed++; failed == signInTries {
				return fmt.Errorf("%s at %s: %w", s.id, c.line.addr, err)
			}
			if !sleepUntil(ctx, time.Now().Add(wait)) {
				return fmt.Errorf("%s at %s: %w: %w", s.id, c.line.addr, context.Cause(ctx), err)
			}
		}
		m.answered.Add(1)
	}
	return nil
}

// checkPatience is as long as Salt's minions wait: the first pillar with Jinja after a start
// unpacks the embedded Python.
const checkPatience = time.Minute

// check sends one request of a kind from the first minion of every connection, so that a kind that
// can't work fails before it is measured. It returns the first error.
func (g *generator) check(ctx context.Context, k kind) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	if k.prepare != nil {
		if err := k.prepare(ctx, g); err != nil {
			return err
		}
	}
	send := k.send
	if k.name == "_pillar" {
		send = openPillar
	}
	for _, c := range g.crews {
		err := send(ctx, c.sessions[0], &c.line, &g.job)
		if err != nil { // keys may just have been rotated: try again
			err = send(ctx, c.sessions[0], &c.line, &g.job)
		}
		if err != nil && k.file {
			err = fmt.Errorf("ask for the file %s: %w", g.job.file, err)
		}
		if err != nil {
			return fmt.Errorf("check of %s: %w", c.line.addr, err)
		}
	}
	return nil
}
