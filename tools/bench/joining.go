package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clustermaster/serve/operator"
	"clustermaster/tools/figure"
	"clustermaster/value"
)

// lookEvery is between two looks at a cluster.
const lookEvery = 50 * time.Millisecond

// joining measures one cluster, step by step.
type joining struct {
	o        *group
	client   *operator.Client // of the first master, which stays
	c        *Column
	plan     joinPlan
	distinct float64 // records, each counted once
}

// syncRoots brings the first master's file_roots to the two others. Its time is that of the whole
// order, with the source's look at its own files.
func (w *joining) syncRoots(ctx context.Context) error {
	begun := time.Now()
	v, err := order(ctx, w.client, "cluster.sync_roots", value.Map{{Key: "roots", Value: "file"}})
	if err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	tree, _ := v.Get("file_roots")
	m, _ := tree.(value.Map)
	found, _ := m.Get("peers")
	peers, _ := found.(value.Map)
	for _, to := range w.o.masters[1:] {
		report, _ := peers.Get(to.id)
		one, _ := report.(value.Map)
		if number(one, "added") < float64(w.plan.roots) {
			return fmt.Errorf("%s did not take all roots: %v", to.id, one)
		}
	}
	w.c.add("cluster.sync_roots to two masters, for each", float64(w.plan.roots)/took, "MB/s",
		fmt.Sprintf("%d MB in %s s", w.plan.roots, figure.Number(took)))
	return nil
}

// until looks again and again until enough says so.
func (w *joining) until(ctx context.Context, enough func(v clusterView) (bool, error)) error {
	for {
		v, err := look(ctx, w.client)
		if err != nil {
			return err
		}
		if ok, err := enough(v); ok || err != nil {
			return err
		}
		if !sleepUntil(ctx, time.Now().Add(lookEvery)) {
			return ctx.Err()
		}
	}
}

// living are the masters that run.
func (w *joining) living() []*masterProcess {
	return slices.DeleteFunc(slices.Clone(w.o.masters), (*masterProcess).ended)
}

// held is how many copies the living masters have, all together, and whether none of them waits for
// more.
func (w *joining) held(ctx context.Context) (copies float64, whole bool, err error) {
	whole = true
	for _, m := range w.living() {
		f, err := m.figures(ctx)
		if err != nil {
			return 0, false, err
		}
		copies += f.records
		whole = whole && f.pending == 0 && f.owed == 0
	}
	return copies, whole, nil
}

// count waits until each of the three masters has every record.
func (w *joining) count(ctx context.Context) error {
	return w.until(ctx, func(v clusterView) (bool, error) {
		copies, whole, err := w.held(ctx)
		w.distinct = copies / joinMasters
		return whole && v.settled(w.living()), err
	})
}

// join starts a fourth master and follows it until it votes, is ready and has its share of the
// records.
func (w *joining) join(ctx context.Context) error {
	m, err := w.o.add(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := m.start(append(slices.Clone(w.o.product.argv), "-c", m.dir)); err != nil {
		return err
	}
	// Both transfers begin when they were last seen not to have begun, and end when the last byte
	// was seen to have come.
	var voter, roots, rootsEnd, ring, ringEnd time.Time
	var had ringFigures
	roots, ring = begun, begun
	err = w.until(ctx, func(v clusterView) (bool, error) {
		if m.ended() {
			return false, fmt.Errorf("%s ended (%v); its output is %s", m.id, m.err, //nolint:errorlint // nil after exit 0
				filepath.Join(m.dir, "out"))
		}
		if had.blobs == 0 && !slices.Contains(v.members, m.id) {
			roots = v.at
		}
		if had.fetched == 0 && !slices.Contains(v.ring, m.id) {
			ring = v.at
		}
		if voter.IsZero() && slices.Contains(v.voters, m.id) {
			voter = v.at
		}
		f, err := m.figures(ctx)
		if err != nil { // it doesn't answer yet
			return false, nil // its end is noticed above
		}
		if f.blobs > had.blobs {
			rootsEnd = time.Now()
		}
		if f.fetched > had.fetched {
			ringEnd = time.Now()
		}
		had = f
		return !voter.IsZero() && f.blobs > 0 && f.fetched > 0 && f.pending == 0 &&
			v.settled(w.o.masters) && readyz(ctx, m), nil
	})
	if err != nil {
		return err
	}
	with := fmt.Sprintf("with %s, %d MB of roots and %s", figure.Plural(w.plan.keys, "key"), w.plan.roots,
		figure.Plural(w.plan.returns, "job return"))
	w.c.add("start of a fourth master to voter", voter.Sub(begun).Seconds(), "s", with)
	w.c.add("start of a fourth master to ready, with its share of records",
		time.Since(begun).Seconds(), "s", "")
	w.c.add("its copy of the roots", mb(int64(had.blobs))/rootsEnd.Sub(roots).Seconds(), "MB/s",
		fmt.Sprintf("%s MB in %s s from its admission on", figure.Number(mb(int64(had.blobs))),
			figure.Number(rootsEnd.Sub(roots).Seconds())))
	w.c.add("its ring transfer", ringEnd.Sub(ring).Seconds(), "s",
		"from the change of the ring to the last byte")
	w.c.add("its ring transfer, bytes", mb(int64(had.fetched)), "MB",
		fmt.Sprintf("%.0f records", had.records))
	return nil
}

// add makes one more master, with the others as its peers, and doesn't start it.
func (o *group) add(ctx context.Context) (*masterProcess, error) {
	first := o.masters[0].host
	id := fmt.Sprintf("m%d", len(o.masters)+1)
	m := &masterProcess{id: id, host: fmt.Sprintf("%s%d", first[:strings.LastIndex(first, ".")+1],
		len(o.masters)+1), dir: filepath.Join(o.dir, id)}
	if !portsFree(ctx, m.host) {
		return nil, fmt.Errorf("add master %s: a port of %s is taken", id, m.host)
	}
	o.masters = append(o.masters, m)
	return m, o.configure(m)
}

// dropped waits until no master keeps copies that it doesn't own any more.
func (w *joining) dropped(ctx context.Context) error {
	return w.until(ctx, func(clusterView) (bool, error) {
		copies, whole, err := w.held(ctx)
		return whole && copies <= joinCopies*w.distinct, err
	})
}

// lose kills a master and removes it, and follows the making of new copies.
func (w *joining) lose(ctx context.Context) error {
	dead := w.o.masters[1]
	killed := time.Now()
	if err := dead.kill(); err != nil {
		return err
	}
	copies, _, err := w.held(ctx)
	if err != nil {
		return err
	}
	w.c.add("copies per record after kill -9 of a master", copies/w.distinct, "copies",
		fmt.Sprintf("%.0f records", w.distinct))
	for {
		_, err := order(ctx, w.client, "cluster.remove", nil, dead.id)
		if err == nil {
			break
		}
		if !sleepUntil(ctx, time.Now().Add(lookEvery)) { // a leader may have to be elected first
			return err
		}
	}
	w.c.add("kill -9 to the end of cluster.remove", time.Since(killed).Seconds(), "s", "")
	var under float64
	err = w.until(ctx, func(v clusterView) (bool, error) {
		var whole bool
		var err error
		copies, whole, err = w.held(ctx)
		under = v.underReplicated
		return whole && v.settled(w.living()) && copies >= joinCopies*w.distinct, err
	})
	if err != nil {
		return fmt.Errorf("%.0f copies of %.0f records: %w", copies, w.distinct, err)
	}
	w.c.add("kill -9 to all copies again", time.Since(killed).Seconds(), "s",
		fmt.Sprintf("under_replicated %.0f", under))
	w.c.add("copies per record then", copies/w.distinct, "copies",
		fmt.Sprintf("on %s", figure.Plural(len(w.living()), "master")))
	return nil
}
