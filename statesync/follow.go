package statesync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

const (
	longestPause = 30 * time.Second // between attempts after failures
	tidyEvery    = time.Hour
	sayEvery     = 5 * time.Second // between log lines on a joiner's copy
)

// Run keeps this master's roots at the heads until ctx ends: it copies what a joiner needs, and
// installs heads that this master missed.
func (s *Store) Run(ctx context.Context) error {
	tidied := time.Now()
	for {
		pause := s.opts.Tick
		for _, tree := range []Tree{FileRoots, PillarRoots} {
			s.follow(ctx, s.trees[tree])
			if !s.trees[tree].record().copied {
				pause = s.opts.Tick / 8 // a joiner is waiting for this
			}
		}
		if time.Since(tidied) > tidyEvery {
			tidied = time.Now()
			s.tidy()
		}
		wait := time.NewTimer(pause)
		select {
		case <-s.kick: // something changed, so what failed may succeed now
			for _, t := range s.trees {
				t.retryAt = time.Time{}
			}
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil
		}
		wait.Stop()
	}
}

// follow brings one tree up to the head. It logs a failure once, and tries again after increasing
// pauses.
func (s *Store) follow(ctx context.Context, t *treeState) {
	if time.Now().Before(t.retryAt) {
		return
	}
	err := s.advance(ctx, t)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		t.pause = 0
		t.setTrouble("")
		return
	}
	t.pause = min(max(s.opts.Tick/8, t.pause*2), longestPause)
	t.retryAt = time.Now().Add(t.pause)
	if t.setTrouble(err.Error()) {
		s.log.Warn("roots are behind; trying again", "tree", t.tree.String(), "err", err)
	}
}

func (s *Store) advance(ctx context.Context, t *treeState) error {
	if err := s.mend(t); err != nil {
		return err
	}
	if t.record().copied && s.current(t) {
		return nil
	}
	p := &progress{}
	t.setFetching(p)
	defer t.setFetching(nil)
	stop := s.sayProgress(t, p)
	defer stop()
	if !t.record().copied {
		if err := s.copyAsJoiner(ctx, t, p); err != nil || !t.record().copied {
			return err
		}
	}
	if s.current(t) {
		return nil
	}
	if head, _ := s.heads.Head(t.tree); t.record().head.Seq > head.Seq {
		// Either this master has not read all of its log since its start, or the masters were
		// restored to an older state. Ask which.
		if err := s.heads.Refresh(ctx); err != nil {
			return fmt.Errorf("learn the head of %s: %w", t.tree, err)
		}
	}
	_, err := s.catchUp(ctx, t, p)
	return err
}

// mend finishes an interrupted install.
func (s *Store) mend(t *treeState) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.replay(t)
}

// current reports whether the head is installed, or there is none.
func (s *Store) current(t *treeState) bool {
	head, ok := s.heads.Head(t.tree)
	return !ok || t.record().head.is(head)
}

// sources lists the other masters to fetch contents from, beginning with the one with this id or
// node name.
func (s *Store) sources(first string) []string {
	var out []string
	for _, node := range s.peers.Members() {
		switch {
		case node == s.peers.Self():
		case node == first || idOf(node) == first:
			out = append([]string{node}, out...)
		default:
			out = append(out, node)
		}
	}
	return out
}

// installHead installs the head with this number, or a newer one.
func (s *Store) installHead(ctx context.Context, t *treeState, seq uint64, p *progress) (*Report,
	error) {
	if head, _ := s.heads.Head(t.tree); head.Seq < seq {
		if err := s.heads.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	if head, _ := s.heads.Head(t.tree); head.Seq < seq {
		return nil, fmt.Errorf("head %d of %s is not known here; the newest is %d", seq, t.tree,
			head.Seq)
	}
	return s.catchUp(ctx, t, p)
}

// catchUp installs the current head and reports the result. If the head is installed already, the
// report is about that install, or about present drift.
func (s *Store) catchUp(ctx context.Context, t *treeState, p *progress) (*Report, error) {
	for {
		head, ok := s.heads.Head(t.tree)
		if !ok {
			return nil, fmt.Errorf("%s have no head", t.tree)
		}
		if t.record().head.is(head) {
			return s.installed(ctx, t, head)
		}
		began := time.Now()
		m, err := s.hold(ctx, t, head.Manifest, head.Size, s.sources(head.Source), p)
		if err != nil {
			return nil, err
		}
		if report, err := s.installIf(ctx, t, head, m, began); report != nil || err != nil {
			return report, err
		}
	}
}

// installed reports on a head that is installed, or that another goroutine is installing now.
func (s *Store) installed(ctx context.Context, t *treeState, head Head) (*Report, error) {
	t.mu.Lock() // the record names a head as installed before its report is complete
	defer t.mu.Unlock()
	if last, ok := t.lastInstall(head); ok {
		return last, nil
	}
	return s.foresee(ctx, t, t.rec.manifest, false)
}

// installIf installs a head if it is still the current one and no other goroutine has installed it;
// else it returns nil.
func (s *Store) installIf(ctx context.Context, t *treeState, head Head, m *Manifest,
	began time.Time) (*Report, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now, _ := s.heads.Head(t.tree); !now.is(head) || t.rec.head.is(head) {
		return nil, nil
	}
	// The head was made from the source's own tree, so later changes there are not drift to
	// overwrite.
	g := goal{want: m, sum: head.Manifest, source: head.Source, head: head, base: m,
		force: head.Force && head.Source != s.opts.ID}
	return s.apply(ctx, t, g, began)
}

// apply installs a goal, logs and counts it, and stores its report for later readers. The caller
// holds t.mu.
func (s *Store) apply(ctx context.Context, t *treeState, g goal, began time.Time) (*Report, error) {
	report, err := s.install(ctx, t, g)
	report.Bytes = t.takeMoved(g.sum)
	s.met.installed(report, err)
	if err != nil {
		return nil, err
	}
	t.setLast(report, g.head)
	level := slog.LevelInfo
	if report.items() == 0 {
		level = slog.LevelDebug // the source itself, for example
	}
	s.log.Log(ctx, level, fmt.Sprintf("state-sync %s installed %d items", t.tree, report.items()),
		"seq", g.head.Seq, "source", g.source,
		"added", report.Added, "changed", report.Changed, "deleted", report.Deleted, "bytes",
		report.Bytes, "took", time.Since(began).Round(time.Millisecond))
	if report.Drifted > 0 {
		s.log.Warn("files that were changed on this master since its last sync are left alone; see salt-run cluster.roots_status",
			"tree", t.tree.String(), "n", report.Drifted, "first", report.Drift[0].Scope.String()+
				" "+report.Drift[0].Path)
	}
	if len(report.Missing) > 0 {
		s.log.Warn("roots that this master's configuration lacks are not synced here", "tree",
			t.tree.String(), "n", len(report.Missing), "first", report.Missing[0].String())
	}
	if report.Kept > 0 {
		s.log.Info("replaced files are kept aside", "tree", t.tree.String(), "n", report.Kept,
			"path", strings.Join(report.KeptIn, ", "), "for", s.opts.KeepAside)
	}
	return report, nil
}

// tidy removes contents that no head needs.
func (s *Store) tidy() {
	keep := make(map[Sum]struct{})
	for _, tree := range []Tree{FileRoots, PillarRoots} {
		rec := s.trees[tree].record()
		if head, ok := s.heads.Head(tree); ok {
			keep[head.Manifest] = struct{}{}
			if !rec.head.is(head) {
				return // its contents are still on their way
			}
		}
		if rec.manifest != nil {
			for sum := range rec.manifest.sums() {
				keep[sum] = struct{}{}
			}
		}
	}
	if !s.storing.TryLock() {
		return // a sync is reading the roots, and no manifest lists what it has stored so far
	}
	defer s.storing.Unlock()
	s.pins.addTo(keep)
	n, freed, err := s.blobs.gc(keep, s.opts.BlobGrace)
	s.met.collected.Add(float64(freed))
	if err != nil {
		s.log.Warn("unused contents not removed; trying again later", "err", err)
	}
	if n > 0 {
		s.log.Info("unused contents removed", "n", n, "bytes", freed)
	}
}

// errNobody says that no master can give a joiner its roots now.
var errNobody = errors.New("no other master with usable roots is reachable")
