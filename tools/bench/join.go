package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/serve/operator"
	"clustermaster/tools/dev"
	"clustermaster/tools/figure"
	"clustermaster/value"
)

const (
	joinMasters  = 3
	joinPatience = 30 * time.Minute
	lookEvery    = 50 * time.Millisecond // between two checks of a cluster
)

// joining measures one cluster, step by step.
type joining struct {
	o      *group
	client *operator.Client // of the first master, which runs throughout
	c      *Column
	flags  *flags
}

// join starts three masters with keys, roots and returns, and makes a fourth one join.
func (b *bencher) join(ctx context.Context, p product, dir string, r *Report) error {
	p.isolated, p.options = true, "runner_returns: false\n" // checks must add no records
	c := Column{Part: PartJoin, Name: fmt.Sprintf("%d masters and one more", joinMasters),
		Minions: b.flags.accepted, Workers: min(b.flags.workers, b.flags.accepted)}
	ctx, cancel := context.WithTimeoutCause(ctx, joinPatience,
		fmt.Errorf("not within %s", joinPatience))
	defer cancel()
	o, err := b.start(ctx, p, dir, joinMasters, &c)
	if err != nil {
		return err
	}
	defer o.stop()
	begun := time.Now()
	g, err := b.crowd(ctx, &c, "")
	if err != nil {
		return err
	}
	defer g.Close()
	c.add(figure.Plural(c.Minions, "minion key")+" accepted by their first sign-ins",
		time.Since(begun).Seconds(), "s", "")
	if err := b.fill(ctx, g, o, b.flags.returns, &c); err != nil {
		return err
	}
	g.Close()
	client, err := o.masters[0].operator(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	w := &joining{o: o, client: client, c: &c, flags: &b.flags}
	b.progress.show("sync the roots of three masters")
	if err := w.syncRoots(ctx); err != nil {
		return fmt.Errorf("sync roots: %w", errors.Join(err, context.Cause(ctx)))
	}
	b.progress.show("a fourth master joins")
	if err := w.join(ctx); err != nil {
		return fmt.Errorf("join: %w", errors.Join(err, context.Cause(ctx)))
	}
	r.Columns = append(r.Columns, c)
	printColumn(b.out, c)
	return nil
}

// syncRoots makes incompressible files of 1 MB in the first master's file_roots, and copies them to
// the two others. Its time is that of the whole order, including the source's check of its own
// files.
func (w *joining) syncRoots(ctx context.Context) error {
	files := make(map[string]string)
	content := make([]byte, 1<<20)
	for i := range w.flags.roots {
		var seed [32]byte
		binary.BigEndian.PutUint64(seed[:], uint64(i))
		mathrand.NewChaCha8(seed).Read(content)
		files[fmt.Sprintf("bulk/%06d.bin", i)] = string(content)
		if len(files) == 64 || i == w.flags.roots-1 {
			if err := makeRoot(filepath.Join(w.o.rootsOf(w.o.masters[0]), "files"), files); err != nil {
				return err
			}
			clear(files)
		}
	}
	begun := time.Now()
	v, err := w.order(ctx, "cluster.sync_roots", pairs("roots", "file"))
	if err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	for _, to := range w.o.masters[1:] {
		report := below(below(below(v, "file_roots"), "peers"), to.id)
		if number(report, "added") < float64(w.flags.roots) {
			return fmt.Errorf("%s did not take all roots: %v", to.id, report)
		}
	}
	w.c.add("cluster.sync_roots to two masters, for each", float64(w.flags.roots)/took, "MB/s",
		fmt.Sprintf("%d MB in %s s", w.flags.roots, figure.Number(took)))
	return nil
}

// join starts a fourth master and waits until it votes, is ready and has its share of the records.
func (w *joining) join(ctx context.Context) error {
	first := w.o.masters[0].host
	host := first[:strings.LastIndexByte(first, '.')+1] + strconv.Itoa(joinMasters+1)
	if !dev.Free(ctx, []string{host}, ports...) {
		return fmt.Errorf("a port of %s is taken", host)
	}
	m := w.o.member(host)
	if err := w.o.configure(m); err != nil {
		return err
	}
	begun := time.Now()
	if err := m.start(append(slices.Clone(w.o.product.argv), "-c", m.dir)); err != nil {
		return err
	}
	var voter time.Time
	var fetched []float64 // bytes of records, of roots
	for done := false; !done; {
		if !m.running() {
			return fmt.Errorf("%s ended (%v); its output is %s/out", m.id, m.Ended(), m.dir) //nolint:errorlint // nil after exit 0
		}
		members, err := w.order(ctx, "cluster.members", nil)
		if err != nil {
			return err
		}
		if voter.IsZero() && slices.Contains(list(members, "voters"), any(m.id)) {
			voter = time.Now()
		}
		fetched, err = m.metrics(ctx, "clustermaster_ring_transfer_bytes_total",
			"clustermaster_statesync_fetched_bytes_total") // an error: it doesn't answer yet
		done = err == nil && !voter.IsZero() && fetched[0] > 0 && fetched[1] > 0 &&
			readyz(ctx, m) && w.settled(ctx)
		if !done && !sleepUntil(ctx, time.Now().Add(lookEvery)) {
			return ctx.Err()
		}
	}
	w.c.add("start of a fourth master to voter", voter.Sub(begun).Seconds(), "s",
		fmt.Sprintf("with %s, %d MB of roots and %s", figure.Plural(w.flags.accepted, "key"),
			w.flags.roots, figure.Plural(w.flags.returns, "job return")))
	w.c.add("start of a fourth master to ready, with its share of records",
		time.Since(begun).Seconds(), "s", "")
	w.c.add("its copy of the roots", mb(int64(fetched[1])), "MB", "")
	w.c.add("its ring transfer, bytes", mb(int64(fetched[0])), "MB", "")
	return nil
}

// settled reports whether all masters are in the ring and none of them waits for copies.
func (w *joining) settled(ctx context.Context) bool {
	ring, err := w.order(ctx, "cluster.ring_info", nil)
	ok := err == nil && len(list(ring, "nodes")) == len(w.o.masters) &&
		len(list(ring, "transfers")) == 0 && number(ring, "hints_pending") == 0 &&
		number(ring, "under_replicated") == 0
	for _, m := range w.o.masters {
		v, err := m.metrics(ctx, "clustermaster_ring_pending_partitions", "clustermaster_ring_hints")
		ok = ok && err == nil && v[0] == 0 && v[1] == 0
	}
	return ok
}

// order runs a function of salt-run, which must succeed.
func (w *joining) order(ctx context.Context, fun string, kwargs value.Map, args ...any) (value.Map,
	error) {
	r, err := w.client.Run(ctx, operator.RunRequest{Fun: fun, Args: args, Kwargs: kwargs},
		func(string, any) {})
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", fun, err)
	}
	v, ok := r.Return.(value.Map)
	if !ok || !r.Success {
		return nil, fmt.Errorf("run %s: it returned %v", fun, r.Return)
	}
	return v, nil
}

func below(m value.Map, key string) value.Map {
	v, _ := m.Get(key)
	out, _ := v.(value.Map)
	return out
}

func list(m value.Map, key string) []any {
	v, _ := m.Get(key)
	items, _ := v.([]any)
	return items
}

func number(m value.Map, key string) float64 {
	v, _ := m.Get(key)
	n, _ := strconv.ParseFloat(fmt.Sprint(v), 64)
	return n
}

// metrics reads values of some names from /metrics of a master.
func (m *masterProcess) metrics(ctx context.Context, names ...string) ([]float64, error) {
	text, err := m.get(ctx, healthPort+1, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("ask %s for metrics: %w", m.id, err)
	}
	out := make([]float64, len(names))
	for i, name := range names {
		_, rest, _ := strings.Cut(text, "\n"+name+" ")
		written, _, _ := strings.Cut(rest, "\n")
		if out[i], err = strconv.ParseFloat(written, 64); err != nil {
			return nil, fmt.Errorf("read metric %s of %s: %w", name, m.id, err)
		}
	}
	return out, nil
}
