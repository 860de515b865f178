package statesync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"clustermaster/statesync/syncpb"
)

// Request are the arguments of Sync.
type Request struct {
	Trees []Tree
	Env   string // one environment only; "": all
	Force bool   // replace changes on other masters, and keep them aside
	Test  bool   // report what would be done, and change nothing
}

// Result is what Sync did with one tree.
type Result struct {
	Tree      Tree
	Seq       uint64 // of the current head
	Published bool   // a new head; else the roots here equal the head already
	Items     int
	Bytes     int64
	Reports   []Report // of every member, this one first
}

// Watch gets another master's progress in fetching a tree. It is called from several goroutines.
type Watch func(tree Tree, node string, p Progress)

// Errors of Sync.
var (
	ErrBusy     = errors.New("another sync_roots runs on this master; wait for its end")
	ErrMajority = errors.New("less than a majority of the reachable masters hold the contents")
)

// Sync makes the roots of all masters like this master's, and returns when every reachable master
// has installed them or said why it can't.
func (s *Store) Sync(ctx context.Context, req Request, watch Watch) ([]Result, error) {
	if !s.opts.Isolated {
		return nil, errNotOwn
	}
	if err := s.opts.Low(); err != nil {
		return nil, fmt.Errorf("nothing was published: %w", err)
	}
	if !s.syncMu.TryLock() {
		return nil, ErrBusy
	}
	defer s.syncMu.Unlock()
	if watch == nil {
		watch = func(Tree, string, Progress) {}
	}
	if err := s.heads.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("learn the heads of the roots: %w", err)
	}
	var out []Result
	for _, tree := range req.Trees {
		o := &outing{Store: s, t: s.trees[tree], req: req, watch: watch, began: time.Now()}
		r, err := o.run(ctx)
		if err != nil {
			return out, fmt.Errorf("sync %s: %w", tree, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// outing is one run of Sync for one tree.
type outing struct {
	*Store
	t     *treeState
	req   Request
	watch Watch
	began time.Time

	head   Head // the current one
	behind bool // this master has not installed it
	m      *Manifest
	sum    Sum
	size   int64
}

func (o *outing) run(ctx context.Context) (Result, error) {
	own := Report{Tree: o.t.tree, Node: o.peers.Self()}
	if err := o.take(ctx, &own); err != nil {
		return Result{}, err
	}
	defer o.pins.drop(o.t.tree, o.sum)
	items, bytes := o.m.Totals()
	r := Result{Tree: o.t.tree, Seq: o.head.Seq, Items: items, Bytes: bytes}
	var others []Report
	switch {
	case o.req.Test:
		others = o.each(func(p *remote) (Report, error) { return p.plan(ctx, o.wanted()) })
	case o.sum == o.head.Manifest && !o.req.Force:
		others = o.each(func(p *remote) (Report, error) {
			return p.install(ctx, o.t.tree, o.head.Seq,
				func(now Progress) { o.watch(o.t.tree, p.node, now) })
		})
	default:
		var err error
		if o.behind { // it may lack contents of the roots that it took over
			if _, err = o.hold(ctx, o.t, o.sum, o.size, o.sources(o.head.Source), nil); err != nil {
				return Result{}, fmt.Errorf("nothing was published: %w", err)
			}
		}
		if others, err = o.publish(ctx); err != nil {
			return Result{}, err
		}
		r.Seq, r.Published = o.head.Seq, true
	}
	own.Seq, own.Seconds = r.Seq, time.Since(o.began).Seconds()
	r.Reports = append([]Report{own}, others...)
	return r, nil
}

// take makes the manifest of this master's roots.
func (o *outing) take(ctx context.Context, own *Report) error {
	o.t.mu.Lock()
	defer o.t.mu.Unlock()
	if err := o.replay(o.t); err != nil {
		return err
	}
	rec := o.t.rec
	head, ok := o.heads.Head(o.t.tree)
	if !rec.copied {
		return errCopying
	}
	if ok && !rec.head.is(head) && !o.req.Force {
		text := fmt.Sprintf("this master has head %d, and head %d was published by %s: run the command there, or here once this master has caught up; force=True publishes the roots of this master as they are", rec.head.Seq, head.Seq, head.Source)
		if why := o.t.trouble(); why != "" {
			text += " (it can't yet: " + why + ")"
		}
		return errors.New(text)
	}
	o.head, o.behind = head, ok && !rec.head.is(head)
	var err error
	if o.behind {
		if rec, err = o.asPublished(ctx, rec); err != nil {
			return err
		}
	}
	o.storing.RLock()
	defer o.storing.RUnlock()
	if o.m, err = o.capture(ctx, o.t.tree, o.req.Env, !o.req.Test, rec, own); err != nil {
		return err
	}
	if err := o.emptied(rec.manifest); err != nil && !o.req.Force {
		return err
	}
	b := o.m.Encode()
	o.size = int64(len(b))
	if o.sum, err = o.blobs.put(b); err != nil {
		return noSpace(err, o.blobs.dir)
	}
	o.pins.put(o.t.tree, o.sum, o.m)
	if err := o.fault("captured"); err != nil {
		return err
	}
	if o.req.Test {
		return nil
	}
	return o.blobs.flush()
}

// asPublished returns the record of a master that is behind with the manifest of the current head:
// roots that are not read here stay as they were published. If no master has that manifest, there
// must be none.
func (o *outing) asPublished(ctx context.Context, rec *record) (*record, error) {
	leave, err := o.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	next := *rec
	if next.manifest, err = o.fetchManifest(ctx, o.t, o.head.Manifest, o.head.Size,
		o.sources(o.head.Source)); err == nil {
		return &next, nil
	}
	refused := func(what string) (*record, error) {
		return nil, fmt.Errorf("the list of head %d, which this master has not installed, is not available, and "+
			"%s would go back to head %d everywhere: run the command on a master that has head %d: %w",
			o.head.Seq, what, rec.head.Seq, o.head.Seq, err)
	}
	if o.req.Env != "" {
		return refused("all environments but " + o.req.Env)
	}
	next.manifest = &Manifest{Tree: o.t.tree}
	if rec.manifest == nil {
		return &next, nil
	}
	own := o.scopes(o.t.tree, "")
	for _, r := range rec.manifest.Roots {
		switch {
		case slices.Contains(own, r.Scope):
			next.manifest.Roots = append(next.manifest.Roots, r)
		case len(r.Items) > 0:
			return refused("root " + r.Scope.String())
		}
	}
	return &next, nil
}

// emptied is an error if a root has lost all items of the last sync's manifest: it may be the place
// of a file system that is not mounted.
func (o *outing) emptied(last *Manifest) error {
	for _, r := range o.m.Roots {
		had, _ := last.Root(r.Scope)
		if len(had) == 0 || len(r.Items) > 0 {
			continue
		}
		dir, _, _ := o.place(o.t.tree, r.Scope)
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue // a deleted environment, as capture found
		}
		return fmt.Errorf("root %s of %s is empty, and the other masters have %d items of it: mount its "+
			"file system, or publish it with force=True if all of them are to be deleted", dir, r.Scope, len(had))
	}
	return nil
}

func (o *outing) wanted() *syncpb.HoldRequest {
	return &syncpb.HoldRequest{Tree: uint32(o.t.tree), Manifest: o.sum[:], Size: o.size,
		From: o.peers.Self(), Force: o.req.Force}
}

// each asks all other members concurrently.
func (o *outing) each(ask func(p *remote) (Report, error)) []Report {
	var nodes []string
	for _, node := range o.peers.Members() {
		if node != o.peers.Self() {
			nodes = append(nodes, node)
		}
	}
	out := make([]Report, len(nodes))
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() { out[i] = o.askOne(node, ask) })
	}
	wg.Wait()
	return out
}

func (o *outing) askOne(node string, ask func(p *remote) (Report, error)) Report {
	report := Report{Away: true}
	if o.peers.Alive(node) {
		p, err := o.remote(node)
		if err == nil {
			report, err = ask(p)
		}
		if err != nil {
			report = Report{Error: err.Error()}
		}
		report.Seconds = time.Since(o.began).Seconds()
	}
	report.Tree, report.Node = o.t.tree, node
	return report
}

// publish makes the manifest the head as soon as a majority of the reachable members hold its
// contents, and has it installed everywhere. It does not wait for a member that is slower or away;
// that member fetches what it lacks from any master that it can reach.
func (o *outing) publish(ctx context.Context) ([]Report, error) {
	reachable := 0
	for _, node := range o.peers.Members() {
		if node == o.peers.Self() || o.peers.Alive(node) {
			reachable++
		}
	}
	held := make(chan error) // one value from each member that is asked
	agreed := make(chan struct{})
	var published error // set before agreed is closed
	var reports []Report
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		reports = o.each(func(p *remote) (Report, error) {
			show := func(now Progress) { o.watch(o.t.tree, p.node, now) }
			err := p.hold(ctx, o.wanted(), show)
			select {
			case held <- err:
			case <-agreed:
			}
			if err != nil {
				return Report{}, err
			}
			<-agreed
			if published != nil {
				return Report{}, published
			}
			return p.install(ctx, o.t.tree, o.head.Seq, show)
		})
	}()
	holders := 1
	var failed []error
	for pending := true; pending && holders <= reachable/2; {
		select {
		case err := <-held:
			if err == nil {
				holders++
			} else {
				failed = append(failed, err)
			}
		case <-asked:
			pending = false
		}
		if holders+len(failed) >= reachable {
			pending = false
		}
	}
	if published = context.Cause(ctx); published == nil {
		published = o.agree(ctx, holders, reachable, failed)
	}
	close(agreed)
	var own error
	if published == nil {
		// Changes made here since the manifest stay, as drift.
		_, own = o.catchUp(ctx, o.t, nil)
	}
	<-asked
	return reports, errors.Join(published, own)
}

// agree publishes the head.
func (o *outing) agree(ctx context.Context, holders, reachable int, failed []error) error {
	if holders <= reachable/2 {
		return fmt.Errorf("%w: %d of %d; nothing was published: %w", ErrMajority, holders,
			reachable, errors.Join(failed...))
	}
	head := Head{
		Tree: o.t.tree, Seq: o.head.Seq + 1, Manifest: o.sum, Size: o.size, Source: o.opts.ID,
		Force: o.req.Force, At: time.Now().UTC(),
	}
	if err := o.fault("publish"); err != nil {
		return err
	}
	if err := o.heads.Publish(ctx, head); err != nil {
		return fmt.Errorf("publish head %d: %w", head.Seq, err)
	}
	o.head = head
	o.log.Info("head of roots published", "tree", o.t.tree.String(), "seq", head.Seq, "holders",
		holders, "reachable", reachable, "force", head.Force)
	return nil
}
