package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"clustermaster/serve/operator"
	"clustermaster/tools/figure"
)

// joinPlan is of the part join.
type joinPlan struct {
	keys    int // accepted minions
	workers int // connections that they share
	roots   int // MB of file_roots
	returns int // in the job cache
}

const (
	joinMasters  = 3 // before the join
	joinCopies   = 3 // of each record, the default of cluster_replicas
	joinPatience = 30 * time.Minute
)

// joinOne starts three masters with keys, roots and returns, lets a fourth one join, and kills one
// of them.
func (b *bencher) joinOne(ctx context.Context, s joinPlan, program, dir string, r *Report) error {
	p := clustermaster(program)
	p.isolated = true
	p.options = "runner_returns: false\n" // looking adds no records
	b.progress.show("start %d masters", joinMasters)
	o, err := startGroup(ctx, p, dir, joinMasters, "")
	if err != nil {
		return err
	}
	defer o.stop()
	c := Column{Part: PartJoin, Name: fmt.Sprintf("%d masters and one more", joinMasters),
		Masters: o.requestAddrs(), Minions: s.keys, Workers: s.workers}
	err = b.joinColumn(ctx, s, o, &c)
	r.Columns = append(r.Columns, c)
	if err != nil {
		return fmt.Errorf("measure %s: %w", c.Name, err)
	}
	printColumn(b.out, c)
	return nil
}

func (b *bencher) joinColumn(ctx context.Context, s joinPlan, o *group, c *Column) error {
	ctx, cancel := context.WithTimeoutCause(ctx, joinPatience,
		fmt.Errorf("not within %s", joinPatience))
	defer cancel()
	begun := time.Now()
	g, err := b.connect(ctx, Crowd{Masters: c.Masters, Minions: s.keys, Workers: s.workers,
		Prefix: "bench", SaltEnv: "base"})
	if err != nil {
		return err
	}
	c.add(figure.Plural(s.keys, "minion key")+" accepted by their first sign-ins",
		time.Since(begun).Seconds(), "s", "")
	err = b.fill(ctx, g, o, s.returns, c)
	g.Close()
	if err != nil {
		return err
	}
	b.progress.show("make %d MB of file_roots", s.roots)
	files, _ := o.rootsOf(o.masters[0])
	if err := makeBulk(filepath.Join(files, "bulk"), s.roots); err != nil {
		return err
	}
	client, err := operator.Dial(ctx, o.masters[0].sockDir())
	if err != nil {
		return fmt.Errorf("reach %s: %w", o.masters[0].id, err)
	}
	defer client.Close()
	w := &joining{o: o, client: client, c: c, plan: s}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"sync the roots of three masters", w.syncRoots}, {"count records", w.count},
		{"a fourth master joins", w.join},
		{"copies that others own now are dropped", w.dropped},
		{"kill -9 and cluster.remove of a master", w.lose},
	} {
		b.progress.show("%s", step.name)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, errors.Join(err, context.Cause(ctx)))
		}
	}
	return nil
}

// makeBulk makes n files of 1 MB that can't be compressed and are the same in each run.
func makeBulk(dir string, n int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make file root: %w", err)
	}
	content := make([]byte, 1<<20)
	for i := range n {
		var seed [32]byte
		binary.BigEndian.PutUint64(seed[:], uint64(i))
		mathrand.NewChaCha8(seed).Read(content)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d.bin", i)), content,
			0o644); err != nil {
			return fmt.Errorf("make file root: %w", err)
		}
	}
	return nil
}
