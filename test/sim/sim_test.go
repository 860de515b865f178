package sim

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/hashring"
	"clustermaster/store/jobcache"
	"clustermaster/store/miniondata"
	"clustermaster/store/ringstore"
	diskstore "clustermaster/store/ringstore/disk"
	"clustermaster/test/history"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc"
)

var (
	logs    = flag.String("logs", "", "keep what masters log in this folder as it comes, even if the process panics")
	oneSeed = flag.Uint64("seed", 0, "run this seed alone")
	replays = flag.Int("replays", 0, "run so many seeds twice and compare")
	scenes  = flag.Bool("scenes", long(), "play scenes of several steps, too")
	seeds   = flag.Int("seeds", 0, "run so many; 0: as many as make test does")
)

// A run has faults for as long as during, in fake time, or until enough happened, at most three
// times as long.
const during = 40 * time.Second

// afterwards is how long clients continue once all is well again, at least; at most three times as
// long, until enough values can be judged.
const afterwards = 4 * time.Second

// outcome is the result of a run.
type outcome struct {
	faults  []string
	trace   []string
	calls   map[string]int
	acked   map[string]int
	heard   int
	count   int // of faults
	waited  int // writes to connections that had to wait
	excused excused

	// all registers, and those of which only the last acknowledged value, or deletion, is right
	registers, values, deletions int

	log    string
	keys   *history.History
	shared *history.History // tokens
	claims *history.History
	real   time.Duration
	fake   time.Duration

	sent atomic.Int64 // messages between masters so far
}

// hangs is how long a run sends no message in real time before it counts as one that hangs. A run
// that needs long on busy processors sends some.
const hangs = 5 * time.Minute

// simulate runs one seed in a bubble of fake time.
func simulate(t *testing.T, seed uint64) *outcome {
	clusterKey()
	joinKey()
	out := &outcome{}
	began := time.Now()
	dir := dirOf(t)
	over := make(chan struct{})
	defer close(over)
	go func() { // in real time: if a run hangs, this names it
		for sent := int64(-1); ; sent = out.sent.Load() {
			select {
			case <-over:
				return
			case <-time.After(hangs):
			}
			if out.sent.Load() == sent {
				panic(fmt.Sprintf("seed %d hangs; repeat it: %s\n%s", seed, again(seed), allStacks()))
			}
		}
	}()
	bubble := ""
	func() {
		defer func() {
			if p := recover(); p != nil && !(strings.HasPrefix(fmt.Sprint(p), "deadlock: main bubble") &&
				onlyFutures(bubble)) {
				panic(p)
			}
		}()
		synctest.Test(t, func(t *testing.T) {
			bubble = bubbleOf()
			out.run(seed, dir)
		})
	}()
	out.real = time.Since(began)
	return out
}

var bubbles = regexp.MustCompile(`synctest bubble \d+\]`)

// bubbleOf is how stacks name the bubble of the caller.
func bubbleOf() string {
	b := make([]byte, 1<<10)
	return string(bubbles.Find(b[:runtime.Stack(b, false)]))
}

// onlyFutures reports that nothing is left of a bubble but goroutines that wait for Raft's answer.
// Raft 1.8.0 does not answer what it had passed to the state machine when it was shut down.
func onlyFutures(bubble string) bool {
	if bubble == "" {
		return false
	}
	for stack := range strings.SplitSeq(string(allStacks()), "\n\n") {
		first, _, _ := strings.Cut(stack, "\n")
		if strings.Contains(first, bubble) && !strings.Contains(stack, "clustermaster/cluster.await.func1(") {
			return false
		}
	}
	return true
}

func allStacks() []byte {
	stacks := make([]byte, 64<<20)
	return stacks[:runtime.Stack(stacks, true)]
}

func again(seed uint64) string {
	if long() {
		return fmt.Sprintf("CLUSTERMASTER_LONG=1 go test ./test/sim -run TestSeeds -seed=%d", seed)
	}
	return fmt.Sprintf("go test ./test/sim -run TestSeeds -seed=%d", seed)
}

// sizes are the numbers of masters that runs choose from.
var sizes = []int{3, 3, 3, 3, 4, 5, 5, 7}

func (out *outcome) run(seed uint64, dir string) {
	chance := rng(seed, "run")
	w := newWorld(seed, sizes[chance.IntN(len(sizes))], dir)
	w.net.sent = &out.sent
	l := newLoad(w)
	w.load = l
	w.onStart = func(i *instance) {
		i.heard = map[string]int{}
		i.parts.Go(func() { l.speak(i) })
		i.parts.Go(func() { l.listen(i) })
	}
	defer func() {
		w.ledger.mu.Lock()
		w.faults = append(w.faults, w.ledger.faults...)
		w.ledger.mu.Unlock()
		out.faults, out.trace, out.calls, out.acked = w.faults, w.trace, l.calls, l.acked
		out.excused = l.excuses()
		out.registers = len(l.registers())
		out.values, out.deletions = l.sureOnes()
		out.heard, out.count, out.keys = l.heard, w.count, l.keys
		out.shared, out.claims = l.shared, l.claims
		w.net.mu.Lock()
		out.waited = w.net.waited
		w.net.mu.Unlock()
		out.fake = time.Since(w.began)
		if len(w.faults) > 0 {
			var logs strings.Builder
			for _, m := range w.masters {
				fmt.Fprintf(&logs, "log of %s:\n%s\n", m.id, m.log)
			}
			out.log = logs.String()
		}
	}()
	defer w.zombies.Wait()
	defer func() {
		for _, m := range w.masters {
			m.stop()
		}
	}()
	if err := w.found(rng(seed, "found")); err != nil {
		w.fault("%v", err)
		return
	}
	if err := w.until(time.Minute, w.allReady); err != nil {
		w.fault("no start: %v", err)
		return
	}
	w.note("%d masters are ready", len(w.masters))
	ctx, cancel := context.WithTimeout(context.Background(), 3*during)
	defer cancel()
	go func() {
		for time.Sleep(during); ctx.Err() == nil && !l.enough(); {
			time.Sleep(during / 8)
		}
		cancel()
	}()
	var clients sync.WaitGroup
	l.start(ctx, &clients, "faults")
	played := make(chan struct{})
	go func() {
		defer close(played)
		if *scenes {
			w.scenes(ctx, rng(seed, "scenes"))
		}
	}()
	w.trouble(ctx, chance)
	<-played
	clients.Wait()
	if err := w.heal(); err != nil {
		w.fault("no healing: %v", err)
		return
	}
	w.note("healed")
	calm, endCalm := context.WithTimeout(context.Background(), 3*afterwards)
	defer endCalm()
	go func() {
		for time.Sleep(afterwards); calm.Err() == nil && !l.judgeable(len(l.cells)); {
			time.Sleep(afterwards / 8)
		}
		endCalm()
	}()
	l.start(calm, &clients, "calm")
	clients.Wait()
	l.final()
}

// settled waits until no copy is missing anywhere.
func (w *world) settled() error {
	if n := len(w.running()); n < len(w.masters) {
		return fmt.Errorf("%d of %d masters run", n, len(w.masters))
	}
	for _, i := range w.running() {
		i.look()
		info := i.store.Info()
		if !i.store.Settled() || info.Pending > 0 || info.HintsPending > 0 || info.UnderReplicated > 0 {
			return fmt.Errorf("%s: settled %v, %d partitions pending, %d copies owed", i.m.id,
				i.store.Settled(), info.Pending, info.HintsPending)
		}
		if len(info.Nodes) < len(w.masters) || i.away() > 0 {
			return fmt.Errorf("%s does not reach all masters", i.m.id)
		}
		for _, n := range info.Nodes {
			if !n.Answered || n.Refilling || n.Refuses != "" {
				return fmt.Errorf("%s: %s answered %v, refilling %v, refuses %q", i.m.id, n.Node,
					n.Answered, n.Refilling, n.Refuses)
			}
		}
	}
	return nil
}

// final checks what must hold once all is well again: on every master, then on every disk.
func (l *load) final() {
	w := l.w
	if err := w.until(3*time.Minute, w.settled); err != nil {
		w.fault("copies are missing for long: %v", err)
		return
	}
	time.Sleep(2 * time.Second) // fake time: other masters' figures are at most a second old
	for _, m := range w.masters {
		if err := w.until(20*time.Second, func() error { return l.look(100, m) }); err != nil {
			w.fault("keys can't be read at %s: %v", m.id, err)
		}
		for _, c := range l.cells {
			if err := w.until(20*time.Second, func() error { return l.readCell(100, m, c) }); err != nil {
				w.fault("data of %s can't be read at %s: %v", c.id, m.id, err)
			}
		}
		err := m.on(func(_ context.Context, i *instance) error {
			for n, tk := range l.tokens {
				if _, there := i.node.State().Token(tk.hash); tk.sure && there != tk.there {
					w.fault("token %d at %s: there %v, acknowledged %v", n, m.id, there, tk.there)
				}
			}
			return nil
		})
		if err != nil {
			w.fault("%s can't be asked: %v", m.id, err)
		}
	}
	l.finalReturns()
	if err := l.allHear(); err != nil {
		w.fault("%v", err)
	}
	members := map[string]int{}
	for _, m := range w.masters {
		m.on(func(_ context.Context, i *instance) error {
			var all []string
			for _, o := range i.node.Members() {
				all = append(all, o.Node)
			}
			slices.Sort(all)
			c, _ := i.node.State().Cluster()
			members[c.UUID+": "+strings.Join(all, " ")]++
			return nil
		})
	}
	if len(members) != 1 {
		w.fault("masters know different members: %v", members)
	}
	if err := w.until(20*time.Second, w.sameState); err != nil {
		w.fault("%v", err)
	}
	l.disks()
	w.majorityLost()
}

// sameState compares the whole replicated state of all masters once they have applied the same
// commands, and asks each master what its own comparison found.
func (w *world) sameState() error {
	sums := map[string][]string{}
	for _, i := range w.running() {
		index, sum := i.node.State().AppliedIndex(), sha256.New()
		if _, err := i.node.State().Snapshot().WriteTo(sum); err != nil {
			return err
		}
		text := fmt.Sprintf("%d %x", index, sum.Sum(nil)[:8])
		sums[text] = append(sums[text], i.m.id)
		if others, _ := i.node.StatesDiffer(); len(others) > 0 {
			return fmt.Errorf("%s finds that the states of %v differ from its own", i.m.id, others)
		}
	}
	if len(sums) != 1 {
		return fmt.Errorf("the replicated states differ: %v", sums)
	}
	return nil
}

func returned(ctx context.Context, jobs *jobcache.Cache, jid string) (string, error) {
	all, err := jobs.Returns(ctx, jid)
	if err != nil {
		return "", err
	}
	for _, r := range all {
		return string(r.Return), nil
	}
	return "", nil
}

func sorted[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// disks counts the disks that hold each acknowledged record. It opens each disk alone.
func (l *load) disks() {
	w := l.w
	copies := map[string]int{}
	kept := map[*register]int{} // disks that hold the acknowledged value
	names := map[*register]string{}
	promised := min(3, len(w.masters))
	for _, m := range w.masters {
		i := m.up()
		ring, self := i.ring(), i.node.Self().Node
		m.stop()
		store, err := ringstore.Open(ringDir, solitary{self, hashring.New([]string{self}, w.partitions, 3,
			ring.Epoch()+1000)}, ringstore.Options{FS: m.files, TombstoneFor: w.tombstones,
			BucketWidth: 4 * time.Second}, nil, nil)
		if err != nil {
			w.fault("open the disk of %s: %v", m.id, err)
			continue
		}
		jobs, data := jobcache.New(store, 86400, time.Now, nil), miniondata.New(store, nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		owns := func(place string) bool { return ring.Owns(self, ring.Partition(place)) }
		for jid, want := range l.returns {
			if got, err := returned(ctx, jobs, jid); err != nil {
				w.fault("return %s can't be read on the disk of %s: %v", jid, m.id, err)
			} else if got == want.text && owns(jid) {
				copies[jid]++
			}
		}
		for _, c := range l.cells {
			holds := func(r *register, name string, n int, err error) {
				names[r] = name
				switch {
				case err != nil:
					w.fault("%s can't be read on the disk of %s: %v", name, m.id, err)
				case !owns(c.id): // it may have an old copy
				case n == r.acked:
					kept[r]++
				case r.sure() && r.acked == 0:
					w.fault("%s is deleted; the disk of %s alone says %d", name, m.id, n)
				}
			}
			have, err := data.Mine(ctx, c.id)
			holds(&c.mine, "the mine value of "+c.id, number1(have, c.fun), err)
			for _, o := range c.once {
				holds(&o.value, o.fun+" of "+c.id, number1(have, o.fun), err)
			}
			of, _, err := data.Grains(ctx, c.id)
			holds(&c.grains, "the grains of "+c.id, number1(of, "n"), err)
		}
		cancel()
		if err := store.Close(); err != nil {
			w.fault("close the disk of %s: %v", m.id, err)
		}
	}
	for _, jid := range sorted(l.returns) {
		if copies[jid] != promised && !l.returns[jid].excused() {
			w.fault("return %s is on %d disks, promised are %d", jid, copies[jid], promised)
		}
	}
	for r, name := range names {
		if r.sure() && r.acked > 0 && kept[r] != promised {
			w.fault("%s is on %d disks, promised are %d", name, kept[r], promised)
		}
	}
}

// solitary is a cluster of one, to read one disk.
type solitary struct {
	self string
	ring *hashring.Ring
}

func (s solitary) Self() string         { return s.self }
func (s solitary) Ring() *hashring.Ring { return s.ring }
func (s solitary) Conn(n string) (grpc.ClientConnInterface, error) {
	return nil, fmt.Errorf("no way to %s", n)
}
func (s solitary) Alive(n string) bool   { return n == s.self }
func (s solitary) Members() []string     { return []string{s.self} }
func (s solitary) QuorumNeedsSelf() bool { return true }
func (s solitary) Disowned() bool        { return false }

// least is how many acknowledged calls a run needs to show anything: about a third of the fewest
// that 120 seeds had. Offers and changes of keys are those of History.Told.
var least = map[string]int{"offer": 12, "accept": 3, "reject": 3, "delete": 5, "look": 10, "return": 35,
	"mine": 12, "revoked": 3, "mine.delete": 5, "grains": 5, "grains.drop": 2, "read": 20, "token": 6,
	"token.drop": 2, "once": 3, "once.delete": 3, "read.judged": 8, "shared.put": 3, "shared.drop": 4,
	"shared.look": 10, "claim": 20, "claim.look": 10}

const (
	leastHeard  = 300 // events
	leastKept   = 30  // returns that are not excused
	leastJudged = 3   // values, and deletions, of which only one is right
	leastFaults = 5
)

// done counts acknowledged calls; of keys those that say what became of them.
func done(what string, acked map[string]int, keys *history.History) int {
	if slices.Contains(keyVerbs, what) {
		return keys.Told(what)
	}
	return acked[what]
}

var keyVerbs = []string{"offer", "accept", "reject", "delete"}

// enough reports that a run has what its verdict asks for.
func (l *load) enough() bool {
	l.w.mu.Lock()
	count := l.w.count
	l.w.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for what, n := range least {
		if done(what, l.acked, l.keys) < n {
			return false
		}
	}
	values, deletions := l.sureOnes()
	return count >= leastFaults && l.heard >= leastHeard && len(l.returns)-l.excuses().returns >= leastKept &&
		min(values, deletions) >= leastJudged
}

// judgeable reports that enough values and deletions can be judged even after so many more calls.
func (l *load) judgeable(calls int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	values, deletions := l.sureOnes()
	return min(values, deletions) >= leastJudged+calls
}

// excused counts the returns, and the values and deletions, about which nothing is claimed.
type excused struct{ returns, registers int }

// excuses counts what is excused. Its caller holds l.mu, or runs alone.
func (l *load) excuses() (n excused) {
	for _, a := range l.returns {
		if a.excused() {
			n.returns++
		}
	}
	for _, r := range l.registers() {
		if r.last.excused() {
			n.registers++
		}
	}
	return n
}

// TestEnough: what is excused doesn't count, as in the verdict.
func TestEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3, t.TempDir())
	w.count = leastFaults
	w.masters[0].loses()
	sure := ack{by: w.masters[0], at: w.began}
	may := ack{by: w.masters[0], at: w.began, thin: true}
	for _, tt := range []struct {
		excused           int
		values, deletions []ack
		want              bool
	}{
		{5, []ack{sure, sure, sure}, []ack{sure, sure, sure}, true},
		{6, []ack{sure, sure, sure}, []ack{sure, sure, sure}, false},
		{0, []ack{sure, sure, may}, []ack{sure, sure, sure}, false},
		{0, []ack{sure, sure, sure}, []ack{sure, may, sure}, false},
		{0, []ack{sure, {by: w.masters[1], at: w.began, thin: true}, sure}, []ack{sure, sure, sure}, true},
	} {
		l := newLoad(w)
		l.acked, l.heard = least, leastHeard
		for _, verb := range keyVerbs {
			for range least[verb] {
				l.keys.Add(0, -1, history.Call{Verb: verb}, history.Outcome{Changed: verb != "offer"})
			}
		}
		for n := range least["return"] {
			l.returns[strconv.Itoa(n)] = ack{by: w.masters[0], at: w.began, thin: n < tt.excused}
		}
		for n, c := range l.cells {
			l.wrote(&c.mine, 7, tt.values[n], nil)
			l.wrote(&c.grains, 0, tt.deletions[n], nil)
		}
		if l.enough() != tt.want {
			t.Errorf("with %d of %d returns excused, %v, %v: enough is %v", tt.excused, len(l.returns), tt.values,
				tt.deletions, !tt.want)
		}
	}
}

// TestExcused: a lone write is excused if the disk that has it was lost before the hand-over.
func TestExcused(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3, t.TempDir())
	m1, m2 := w.masters[0], w.masters[1]
	second := func(n int) time.Time { return w.began.Add(time.Duration(n) * time.Second) }
	w.losses.add(loss{of: m1, paid: second(10), at: second(20)})
	for _, tt := range []struct {
		what string
		a    ack
		want bool
	}{
		{"its disk was lost", ack{by: m1, begun: second(11), at: second(12), thin: true}, true},
		{"another disk was lost", ack{by: m2, begun: second(11), at: second(12), thin: true}, false},
		{"it was handed over before", ack{by: m1, begun: second(8), at: second(9), thin: true}, false},
		{"it came later", ack{by: m1, begun: second(21), at: second(22), thin: true}, false},
		{"a quorum had it", ack{by: m1, begun: second(11), at: second(12)}, false},
	} {
		if tt.a.excused() != tt.want {
			t.Errorf("%s: excused %v", tt.what, !tt.want)
		}
	}
	last := ack{by: m2, begun: w.began, at: w.began.Add(time.Nanosecond), thin: true}
	err := m2.files.MkdirAll(ringDir, 0o700)
	if err == nil {
		_, err = diskstore.MoveAside(ringDir, diskstore.Options{FS: m2.files})
	}
	if err != nil {
		t.Fatal(err)
	}
	m2.lookAside(m2.files)
	if !last.excused() {
		t.Error("a master that began a new store excuses nothing")
	}
}

// judged is a history, the model that it must fit, and what it is of.
type judged struct {
	what    string
	history *history.History
	model   history.Model
}

func (out *outcome) histories() []judged {
	if out.keys == nil {
		return nil
	}
	return []judged{{"keys", out.keys, history.KeyModel()}, {"tokens", out.shared, history.TokenModel()},
		{"schedule claims", out.claims, history.ClaimModel()}}
}

func unlinear(what string) string { return "the history of " + what + " is not linearizable" }

// verdict lists everything that is wrong with a run.
func (out *outcome) verdict() []string {
	wrong := slices.Clone(out.faults)
	for _, h := range out.histories() {
		switch h.history.Judge(h.model) {
		case porcupine.Illegal:
			wrong = append(wrong, unlinear(h.what))
		case porcupine.Unknown:
			wrong = append(wrong, "too little time to check the history of "+h.what)
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	for _, what := range sorted(least) {
		if n := done(what, out.acked, out.keys); n < least[what] {
			wrong = append(wrong, fmt.Sprintf("too little was done: %d of %s, at least %d", n, what, least[what]))
		}
	}
	if kept := out.acked["return"] - out.excused.returns; kept < leastKept {
		wrong = append(wrong, fmt.Sprintf("too little was done: %d returns without an excuse, at least %d",
			kept, leastKept))
	}
	if min(out.values, out.deletions) < leastJudged {
		wrong = append(wrong, fmt.Sprintf("too little was judged: %d values, %d deletions, at least %d",
			out.values, out.deletions, leastJudged))
	}
	if n := out.excused; n.returns > out.acked["return"]/10 || n.registers > out.registers/4 {
		wrong = append(wrong, fmt.Sprintf("too little is sure: %d of %d returns and %d of %d values are excused, at most a "+
			"tenth and a quarter", n.returns, out.acked["return"], n.registers, out.registers))
	}
	if out.heard < leastHeard || out.count < leastFaults {
		wrong = append(wrong, fmt.Sprintf("too little happened: %d events, %d faults", out.heard,
			out.count))
	}
	return wrong
}

// judge fails the test for everything that is wrong with a run.
func judge(t *testing.T, seed uint64, out *outcome) {
	t.Logf("seed %d: %v of fake time in %v, %d calls, %d events, %d faults, %d writes waited, "+
		"%d of %d returns and %d of %d values excused, %d values and %d deletions judged; acknowledged %v",
		seed, out.fake, out.real, total(out.calls), out.heard, out.count, out.waited,
		out.excused.returns, out.acked["return"], out.excused.registers, out.registers, out.values, out.deletions,
		out.acked)
	wrong := out.verdict()
	if len(wrong) == 0 {
		return
	}
	for n, w := range wrong {
		if n < 20 {
			t.Errorf("seed %d: %s", seed, w)
		}
	}
	t.Errorf("seed %d fails; repeat it: %s", seed, again(seed))
	for _, h := range out.histories() {
		if slices.Contains(wrong, unlinear(h.what)) {
			h.history.Check(t, h.what, h.model)
		}
	}
	name := filepath.Join(os.TempDir(), fmt.Sprintf("sim-%d.log", seed))
	text := strings.Join(out.trace, "\n") + "\n" + strings.Join(out.faults, "\n") + "\n" + out.log
	if err := os.WriteFile(name, []byte(text), 0o600); err == nil {
		t.Logf("calls, faults and logs are in %s", name)
	}
}

func total(calls map[string]int) int {
	n := 0
	for _, c := range calls {
		n += c
	}
	return n
}

// TestReplays runs each seed twice and compares the calls, their answers and times. It only
// measures: goroutines that are ready at the same moment run in any order, so not all pairs of runs
// can be equal.
func TestReplays(t *testing.T) {
	if *replays == 0 {
		t.Skip("measures how many runs repeat themselves; -replays=20 does so")
	}
	same, plans, share := 0, 0, 0.0
	for seed := uint64(1); seed <= uint64(*replays); seed++ {
		a, b := simulate(t, seed), simulate(t, seed)
		n := 0
		for n < min(len(a.trace), len(b.trace)) && a.trace[n] == b.trace[n] {
			n++
		}
		if n == len(a.trace) && n == len(b.trace) {
			same++
		}
		share += float64(n) / float64(max(len(a.trace), 1))
		if slices.Equal(planned(a.trace), planned(b.trace)) {
			plans++
		}
		t.Logf("seed %d: the first %d of %d lines are the same", seed, n, len(a.trace))
	}
	t.Logf("%d of %d runs are the same in all calls, answers and times; on average the first %.0f %%; %d have the same faults",
		same, *replays, 100*share/float64(*replays), plans)
}

// planned are the faults of a trace, without their times.
func planned(trace []string) []string {
	var out []string
	for _, line := range trace {
		if _, fault, is := strings.Cut(line, "fault: "); is {
			out = append(out, fault)
		}
	}
	return out
}

// long reports whether this is the long form.
func long() bool { return os.Getenv("CLUSTERMASTER_LONG") == "1" }

// pinned are seeds that found a bug: grains that came back after they were dropped; a record of
// which one copy was owed (6, with scenes; ringstore's TestAloneOwesAllOwners).
var pinned = []uint64{6, 71, 74}

// TestSeeds runs seeds; see docs/testing.md.
func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		judge(t, *oneSeed, simulate(t, *oneSeed))
		return
	}
	n := 50
	if long() {
		n = 1000
	}
	if *seeds > 0 {
		n = *seeds
	}
	list := slices.Clone(pinned)
	for seed := 1; seed <= n; seed++ {
		list = append(list, uint64(seed))
	}
	slices.Sort(list)
	var returns, excused atomic.Int64
	t.Cleanup(func() {
		all, without := returns.Load(), excused.Load()
		t.Logf("%d of %d returns are excused", without, all)
		if without > all/10 {
			t.Error("more than a tenth of all returns is excused")
		}
	})
	for _, seed := range slices.Compact(list) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			out := simulate(t, seed)
			returns.Add(int64(out.acked["return"]))
			excused.Add(int64(out.excused.returns))
			judge(t, seed, out)
		})
	}
}
