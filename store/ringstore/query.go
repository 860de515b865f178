package ringstore

import (
	"context"
	"time"

	"clustermaster/store/ringstore/query"
	"clustermaster/store/ringstore/rings"
)

// Questions and their coverage are in package query.
type (
	Compiler = query.Compiler
	Judge    = query.Judge
	Look     = query.Look
	Part     = query.Part
	Coverage = query.Coverage
)

// ErrTooCostly refuses a question on which a judge worked too long.
var ErrTooCostly = query.ErrTooCostly

// Ask sends a question about the records of a space to the masters that hold them, in parallel, and
// calls fn with each record for which a term holds; see query.Queries.
func (s *Store) Ask(ctx context.Context, space Space, question []byte, places []string,
	fn func(place string, hits []byte)) (Coverage, error) {
	return s.query.Ask(ctx, space, question, places, fn)
}

// Scan calls fn with every record of a space whose name begins with prefix, each once, in no
// particular order, not concurrently; see query.Queries.
func (s *Store) Scan(ctx context.Context, space Space, prefix string,
	fn func(Record) error) (Coverage, error) {
	return s.query.Scan(ctx, space, prefix, fn)
}

func (s *Store) newQueries() *query.Queries {
	return query.New(query.Options{
		Disk: s.disk, Parts: s.parts, Clock: s.clock, Members: members{s}, Peers: s.remote,
		Withheld: s.withheld, Spawn: s.spawn, Closed: s.closed, Now: s.opts.Now, Log: s.log,
		Timeout: s.opts.StreamTimeout, ReadTimeout: s.opts.ReadTimeout,
		LookAgain: s.opts.LookAgain, MaxList: s.opts.MaxList,
		Asked: func(took time.Duration, agreed, merged, unsure int) {
			s.met.askSeconds.Observe(took.Seconds())
			s.met.asked.WithLabelValues("agreed").Add(float64(agreed))
			s.met.asked.WithLabelValues("merged").Add(float64(merged))
			s.met.asked.WithLabelValues("unsure").Add(float64(unsure))
		},
		Retried: s.met.stale.Inc,
	})
}

// withheld returns why this master must not answer from its own disk alone, or nil.
func (s *Store) withheld() error {
	if s.disk.Refilling() || s.doubted() != nil {
		return errRefilling
	}
	return nil
}

// members gives queries their view of the masters.
type members struct{ s *Store }

func (m members) Self() string           { return m.s.self }
func (m members) Alive(node string) bool { return m.s.alive(node) }
func (m members) View() *rings.View      { return m.s.view.Load() }

func (m members) Current(ctx context.Context) (*rings.View, error) { return m.s.current(ctx) }

func (m members) Retry(ctx context.Context, read func() error) error {
	return m.s.notOvertaken(ctx, read)
}
