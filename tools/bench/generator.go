package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"clustermaster/tools/simminion"
)

// firstPatience is how long the first pillar after a start may take, as Salt's minions wait.
const firstPatience = time.Minute

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

// Generator is a crowd of signed-in minions on a number of connections.
type Generator struct {
	crews []*crew
	job   job
}

// Crowd says how many minions a Generator has and which masters they use.
type Crowd struct {
	// Masters are the request ports, host:port. Connections are spread over them evenly.
	Masters []string
	Minions int
	Workers int // connections, each with its share of the minions
	// Prefix of the minions' ids; a number from 1 follows.
	Prefix string
	// SaltEnv and File (a path below file_roots, "" for none) are requested.
	SaltEnv, File string
}

// newGenerator signs all minions in. It calls onPending, if not nil, once when the master lets one
// wait for its key to be accepted.
func newGenerator(ctx context.Context, c Crowd, keys []*simminion.Key, m *meter,
	onPending func()) (*Generator, error) {
	if c.Workers < 1 || c.Minions < c.Workers {
		return nil, fmt.Errorf("%d minions can't share %d connections: each connection needs one",
			c.Minions, c.Workers)
	}
	g := &Generator{job: job{saltenv: c.SaltEnv, file: c.File}}
	for i := range c.Workers {
		g.crews = append(g.crews, &crew{line: line{addr: c.Masters[i%len(c.Masters)]}, job: &g.job})
	}
	for i := range c.Minions {
		w := g.crews[i%c.Workers]
		w.sessions = append(w.sessions, newSession(fmt.Sprintf("%s%d", c.Prefix, i+1),
			keys[i%len(keys)]))
	}
	patience := signInPatience + time.Duration(c.Minions)*signInEach
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	all, ctx := errgroup.WithContext(ctx)
	var pending sync.Once
	for _, w := range g.crews {
		all.Go(func() error {
			return w.signInAll(ctx, m, func() {
				if onPending != nil {
					pending.Do(onPending)
				}
			})
		})
	}
	if err := all.Wait(); err != nil { // one failure is enough to give up
		g.Close()
		return nil, fmt.Errorf("sign minions in: %w", err)
	}
	return g, nil
}

// signInTries is how often a minion's sign-in may fail before the run ends: masters drop a few
// connections when hundreds come at once.
const signInTries = 5

func (c *crew) signInAll(ctx context.Context, m *meter, onPending func()) error {
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
				onPending()
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

// Check sends one request of a kind from the first minion of every connection, so that a kind that
// can't work fails before it is measured. It returns the first error.
func (g *Generator) Check(ctx context.Context, k kind) error {
	ctx, cancel := context.WithTimeout(ctx, RequestPatience)
	defer cancel()
	if k.prepare != nil {
		if err := k.prepare(ctx, g); err != nil {
			return err
		}
	}
	for _, c := range g.crews {
		send := k.send
		if k.name == "_pillar" {
			send = openPillar
		}
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

// drive measures one kind.
func (g *Generator) drive(ctx context.Context, k kind, p pace, m *meter,
	begin func() func()) account {
	workers := make([]requester, len(g.crews))
	for i, c := range g.crews {
		c.kind = k
		workers[i] = c
	}
	return drive(ctx, workers, p, m, begin)
}

// Close ends all connections.
func (g *Generator) Close() {
	for _, c := range g.crews {
		c.line.close()
	}
}
