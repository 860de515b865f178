package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/serve/operator"
)

// stalledPlan measures what some subscribers do to the others.
type stalledPlan struct {
	subscribers  int // all together
	bad          int // of these
	publications int
	size         int           // bytes of a job's argument
	every        time.Duration // between two publications
	queue        int           // pub_hwm of the master
	putOut       bool          // wait until those that take nothing are disconnected
}

// stalledPatience is how long the last publication may take to reach all.
const stalledPatience = time.Minute

// putOutPatience is how long a master may keep a subscriber that takes nothing: it is silent to a
// PING after 10 s for 30 s more, or a write makes no progress for 30 s.
const putOutPatience = 60 * time.Second

// stalled measures the delivery of publications to all, and then with some that ail in each way,
// each time by a new master.
func (b *bencher) stalled(ctx context.Context, s stalledPlan, program, dir string,
	r *Report) error {
	for i, ails := range []ailment{healthy, stalls, vanishes, readsSlow} {
		c := Column{Part: partStalled, Name: fmt.Sprintf("%s, all read",
			plural(s.subscribers, "subscriber")), Minions: s.subscribers}
		if ails != healthy {
			c.Name = fmt.Sprintf("%s, %d of them %s", plural(s.subscribers, "subscriber"),
				s.bad, ails)
		}
		err := b.stalledColumn(ctx, s, ails, program,
			filepath.Join(dir, fmt.Sprintf("stalled%d", i)), &c)
		r.Columns = append(r.Columns, c)
		if err != nil {
			return fmt.Errorf("measure %s: %w", c.Name, err)
		}
		printColumn(b.out, c)
	}
	return nil
}

func (b *bencher) stalledColumn(ctx context.Context, s stalledPlan, ails ailment, program,
	dir string, c *Column) error {
	b.progress.show("start a master")
	p := clustermaster(program)
	p.options = fmt.Sprintf("pub_hwm: %d\n", s.queue)
	o, err := startGroup(ctx, p, dir, 1, "")
	if err != nil {
		return err
	}
	defer o.stop()
	c.Masters = o.requestAddrs()
	// a job must be for somebody
	g, err := b.connect(ctx, Crowd{Masters: c.Masters, Minions: 1, Workers: 1, Prefix: "bench"})
	if err != nil {
		return err
	}
	g.Close()
	client, err := operator.Dial(ctx, o.masters[0].sockDir())
	if err != nil {
		return fmt.Errorf("reach %s: %w", o.masters[0].id, err)
	}
	defer client.Close()
	b.progress.show("%s: connect", c.Name)
	a, err := subscribe(ctx, net.JoinHostPort(o.masters[0].host, strconv.Itoa(pubPort)),
		o.sources(), s.subscribers, s.bad, ails, s.publications)
	if err != nil {
		return err
	}
	open := true
	shut := func() {
		if open {
			open = false
			a.close()
		}
	}
	defer shut()
	if err := o.masters[0].awaitSubscribers(ctx,
		func(n int) bool { return n == s.subscribers }); err != nil {
		return err
	}
	if err := a.sicken(s.every); err != nil {
		return err
	}
	before, err := o.memory()
	if err != nil {
		return err
	}
	peak := before
	look := func() {
		if now, err := o.memory(); err == nil {
			peak = maxima(peak, now)
		}
	}
	stopLooking := every(ctx, sampleEvery, look)
	own, theirs, begun := ownCPU(), cpuOf(o.pids()), time.Now()
	err = s.publish(ctx, b, client, a)
	c.share("generator's CPU", ownCPU()-own, begun)
	c.share("master's CPU", cpuOf(o.pids())-theirs, begun)
	stopLooking()
	if err != nil {
		return err
	}
	counted, err := o.masters[0].metrics(ctx)
	if err != nil {
		return err
	}
	var putOut time.Duration
	if s.putOut && (ails == stalls || ails == vanishes) {
		b.progress.show("%s: wait until the master puts them out", c.Name)
		if err := o.masters[0].awaitSubscribers(ctx,
			func(n int) bool { return n <= s.subscribers-s.bad }); err != nil {
			return err
		}
		putOut = time.Since(begun)
	}
	shut()
	return s.figures(a, counted, before[0], peak[0], putOut, c)
}

// publish orders the publications at their times, and waits until all healthy subscribers have the
// last one.
func (s stalledPlan) publish(ctx context.Context, b *bencher, client *operator.Client,
	a *audience) error {
	var sent atomic.Int64
	defer b.progress.follow("publications", s.publications,
		func() int { return int(sent.Load()) })()
	arg := strings.Repeat("x", s.size)
	start := time.Now()
	for i := range s.publications {
		if !sleepUntil(ctx, start.Add(time.Duration(i)*s.every)) {
			return ctx.Err()
		}
		a.editions.sent[i].Store(time.Now().UnixNano())
		_, err := client.Publish(ctx, gather.Publish{Tgt: []string{"bench1"}, TgtType: "list",
			Fun: "test.echo", Arg: []any{arg}, User: "root"})
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		sent.Add(1)
	}
	late := time.Now().Add(stalledPatience)
	for healthy := len(a.all) - a.bad(); a.complete(s.publications) < healthy &&
		time.Now().Before(late); {
		if !sleepUntil(ctx, time.Now().Add(20*time.Millisecond)) {
			return ctx.Err()
		}
	}
	return nil
}

// bad is how many ail.
func (a *audience) bad() (n int) {
	for _, s := range a.all {
		if s.ails != healthy {
			n++
		}
	}
	return n
}

// Names of figures, which the page of growth looks for.
const (
	figureDelay   = "delivery to the others, median"
	figureDelay99 = "delivery to the others, 99 %"
	figureDelayX  = "delivery to the others, the slowest"
	figureMissed  = "publications that others missed"
	figureDropped = "publications not queued for those that ail, each"
	figureQueued  = "publications queued for those that ail at the end, each"
	figurePeak    = "memory (PSS) of the master, greatest"
	figureRise    = "memory (PSS) of the master, rise"
	figurePutOut  = "first publication to the last of those that ail put out"
)

func (s stalledPlan) figures(a *audience, counted map[string]float64, before, peak int64,
	putOut time.Duration, c *Column) error {
	missed := 0
	for i, x := range a.all {
		if x.strange {
			return fmt.Errorf("subscriber %d got publication %d out of order", i+1, x.got+1)
		}
		if x.ails == healthy {
			missed += s.publications - x.got
		}
	}
	h := a.latency()
	c.add(figureDelay, ms(h.Quantile(0.5)), "ms",
		fmt.Sprintf("of %s, from the order of a job to its arrival", thousands(int(h.Count()))))
	c.add(figureDelay99, ms(h.Quantile(0.99)), "ms", "")
	c.add(figureDelayX, ms(h.Max()), "ms", "")
	c.add(figureMissed, float64(missed), "publications", "")
	c.add(figurePeak, mb(peak), "MB", "")
	c.add(figureRise, mb(peak-before), "MB",
		fmt.Sprintf("from %.0f MB with all connected", mb(before)))
	if bad := float64(a.bad()); bad > 0 {
		copies := func(result string) float64 {
			return counted[`clustermaster_minion_publication_copies_total{endpoint="publish",result="`+result+`"}`]
		}
		c.add(figureDropped, copies("slow")/bad, "publications",
			fmt.Sprintf("of %d", s.publications))
		c.add(figureQueued, (copies("queued")-copies("sent"))/bad, "publications",
			fmt.Sprintf("pub_hwm is %d", s.queue))
	}
	if putOut > 0 {
		c.add(figurePutOut, putOut.Seconds(), "s", "")
	}
	return nil
}

// share notes what part of all processors was used since a time.
func (c *Column) share(name string, used time.Duration, since time.Time) {
	c.add(name, 100*used.Seconds()/time.Since(since).Seconds()/float64(thisMachine().CPUs), "%", "")
}

// awaitSubscribers waits until a master's number of subscribers is enough.
func (m *masterProcess) awaitSubscribers(ctx context.Context, enough func(n int) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, putOutPatience,
		fmt.Errorf("not within %s", putOutPatience))
	defer cancel()
	for {
		v, err := m.metrics(ctx)
		if err != nil {
			return err
		}
		n := int(v[`clustermaster_minion_subscribers{endpoint="publish"}`])
		if enough(n) {
			return nil
		}
		if !sleepUntil(ctx, time.Now().Add(lookEvery)) {
			return fmt.Errorf("wait for subscribers of %s, there are %d: %w", m.id, n,
				context.Cause(ctx))
		}
	}
}
