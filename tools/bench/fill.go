package bench

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"clustermaster/serve/operator"
	"clustermaster/tools/figure"
)

// fill stores n returns in the job cache, of jobs that all minions of the crowd return for. It
// measures their size on disk, and the time to look a job up and to list all jobs.
func (b *bencher) fill(ctx context.Context, g *Generator, o *group, n int, c *Column) error {
	bytesBefore, filesBefore, err := o.disk()
	if err != nil {
		return err
	}
	var todo atomic.Int64
	todo.Store(int64(n))
	m := new(meter)
	done := b.progress.watch(fmt.Sprintf("fill the job cache with %d returns", n), m)
	start := time.Now()
	var crews sync.WaitGroup
	for _, w := range g.crews {
		w.kind = kind{send: returnOf("test.ping", true, (*job).sharedJID)}
		crews.Go(func() {
			for ctx.Err() == nil && todo.Add(-1) >= 0 {
				one, cancel := context.WithTimeout(ctx, RequestPatience)
				if w.Request(one) == nil {
					m.answered.Add(1)
				}
				cancel()
			}
		})
	}
	crews.Wait()
	done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	took := time.Since(start)
	kept := int(m.answered.Load())
	bytes, files, err := o.disk()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s in the job cache: ", figure.Plural(kept, "return"))
	c.add(what+"time to take them", took.Seconds(), "s", "")
	c.add(what+"disk, all masters", mb(bytes), "MB",
		fmt.Sprintf("%s before", figure.Number(mb(bytesBefore))))
	c.add(what+"files, all masters", float64(files), "files",
		fmt.Sprintf("%d before", filesBefore))
	client, err := o.masters[0].operator(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, q := range []operator.RunRequest{{Fun: "jobs.lookup_jid",
		Args: []any{g.job.shared[0]}}, {Fun: "jobs.list_jobs"}} {
		var times []time.Duration
		for range 5 {
			start := time.Now()
			if _, err := client.Run(ctx, q, func(string, any) {}); err != nil {
				return fmt.Errorf("look into the job cache: %s: %w", q.Fun, err)
			}
			times = append(times, time.Since(start))
		}
		c.addMedian(what+q.Fun, times, "")
	}
	return nil
}

// disk is the size of all masters' folders: bytes in blocks, and files.
func (o *group) disk() (bytes int64, files int, err error) {
	for _, m := range o.masters {
		err := filepath.WalkDir(m.dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // a file may disappear meanwhile
			}
			if info, err := d.Info(); err == nil {
				files++
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					bytes += st.Blocks * 512
				}
			}
			return nil
		})
		if err != nil {
			return 0, 0, fmt.Errorf("measure folder of %s: %w", m.id, err)
		}
	}
	return bytes, files, nil
}
