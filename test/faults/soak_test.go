package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/serve/daemon"
	"clustermaster/test/e2e"
	"clustermaster/tools/soak"
)

// soakFor is for how long TestSoak runs, such as 1h; soakFile is the file for its report.
const (
	soakFor  = "CLUSTERMASTER_SOAK"
	soakFile = "CLUSTERMASTER_SOAK_FILE"
)

// soaking is a cluster under faults. The first master's files are damaged, the second's disk is
// full at times, the third's clock is moved.
type soaking struct {
	*cluster
	rng    *rand.Rand
	w      *writer
	acked  map[string]string // of all rounds; by is their minions
	by     map[string]string
	disk   smallDisk
	clock  string // the file that moves the third master's clock
	fourth *e2e.Master
	// what masters that start run
	program e2e.Programs
	faults  []fault
	next    int // of faults
	report  soak.Report
}

// fault is a kind of trouble, which is over when cause returns.
type fault struct {
	name  string
	cause func(t *testing.T)
}

// TestSoak keeps three real masters under load and faults for as long as CLUSTERMASTER_SOAK says:
// kills, stops, partitions, slow and lossy lines, clock steps, a full disk, flipped bits on a
// minority, joins and removals, rotations, and halfway an upgrade to the next release. After each
// round of faults keys and members are linearizable, and every acknowledged return is on each
// master; at the end so are the returns of all rounds, and no master uses more than it did.
func TestSoak(t *testing.T) {
	text := os.Getenv(soakFor)
	if text == "" {
		t.Skip("takes hours; run make soak")
	}
	during, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Skipped() {
			t.Error("the soak was asked for and did not run")
		}
	})
	s := newSoaking(t)
	upgraded := false
	for n := 1; time.Since(s.report.Began) < during && !t.Failed(); n++ {
		if !upgraded && time.Since(s.report.Began) > during/2 {
			upgraded = true
			s.round(t, n, fault{"upgrade", s.upgrade})
			continue
		}
		s.round(t, n, s.some(3)...)
	}
	ended := t.Failed() // before its time
	for _, f := range append(s.faults, fault{name: "upgrade"}) {
		if s.report.Faults[f.name] == 0 && !ended {
			t.Errorf("%v were too short: no %s was caused", during, f.name)
		}
	}
	s.w.acked, s.w.by = s.acked, s.by
	s.w.found(t, s.Masters...)
	for _, grown := range s.report.Grown() {
		t.Error(grown)
	}
	if path := os.Getenv(soakFile); path != "" {
		b, err := json.MarshalIndent(s.report, "", "\t")
		if err == nil {
			err = os.WriteFile(path, b, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func newSoaking(t *testing.T) *soaking {
	t.Helper()
	s := &soaking{rng: seed(t), acked: map[string]string{}, by: map[string]string{},
		clock: filepath.Join(t.TempDir(), "clock"),
		report: soak.Report{Began: time.Now().UTC().Truncate(time.Second),
			Faults: map[string]int{}}}
	if id, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		s.report.Commit = strings.TrimSpace(string(id))
	}
	s.cluster, s.program = prepareCluster(t, 3, "runner_returns: False\n"), e2e.Ours(t)
	s.disk = mountSmallDisk(t, s.Masters[1], "1g")
	s.setClock(t, "0s")
	s.use(t, s.Masters[2], s.program)
	s.StartMasters(t)
	s.w = newWriter(t, s.cluster, s.Masters)
	s.faults = []fault{
		{"kill", s.lose((*e2e.Master).Kill, func(m *e2e.Master, t testing.TB) { m.Run(t) }, 4*time.Second)},
		{"stop", s.lose((*e2e.Master).Freeze, (*e2e.Master).Thaw, 8*time.Second)},
		{"partition", s.partition},
		{"slow and lossy lines", s.lossy},
		{"clock step", s.step},
		{"full disk", s.fill},
		{"flipped bits", s.flip},
		{"join and removal", s.join},
		{"rotation", s.rotate},
	}
	return s
}

// use has a master run a program; the third one's reads its clock's file.
func (s *soaking) use(t *testing.T, m *e2e.Master, p e2e.Programs) {
	t.Helper()
	if m == s.Masters[2] {
		p = p.WithVariable(t, daemon.ClockEnv, s.clock)
	}
	m.Use(p)
}

func (s *soaking) setClock(t *testing.T, off string) {
	t.Helper()
	if err := os.WriteFile(s.clock+".new", []byte(off), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.clock+".new", s.clock); err != nil {
		t.Fatal(err)
	}
}

// some are the next n faults, in an order that changes each time all have had their turn.
func (s *soaking) some(n int) (list []fault) {
	for range n {
		if s.next%len(s.faults) == 0 {
			s.rng.Shuffle(len(s.faults),
				func(i, j int) { s.faults[i], s.faults[j] = s.faults[j], s.faults[i] })
		}
		list = append(list, s.faults[s.next%len(s.faults)])
		s.next++
	}
	return list
}

// round causes faults under load, heals the cluster and checks it.
func (s *soaking) round(t *testing.T, n int, faults ...fault) {
	t.Helper()
	o := newOperators(s.rng, s.Masters, fmt.Sprintf("ada%d", n), fmt.Sprintf("bob%d", n),
		fmt.Sprintf("cyd%d", n))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := o.start(ctx, t, 3, s.rng)
	stop := s.w.during(t, 20, 1000)
	for _, f := range faults {
		t.Logf("round %d: %s", n, f.name)
		s.report.Faults[f.name]++
		f.cause(t)
		s.WaitReady(t, 2*healed, s.Masters...)
	}
	e2e.Eventually(t, healed, "enough calls have a known outcome", func() error {
		if few := o.few(); few != "" {
			return errors.New(few)
		}
		return nil
	})
	cancel()
	wait()
	stop()
	calls := o.judge(t)
	s.calm(t, o)
	s.w.found(t, s.Masters...)
	s.report.Rounds = append(s.report.Rounds, soak.Round{
		Minute:  time.Since(s.report.Began).Minutes(),
		Returns: len(s.w.acked), Lost: s.w.lost, Calls: calls, Masters: s.used(t),
	})
	maps.Copy(s.acked, s.w.acked)
	maps.Copy(s.by, s.w.by)
	s.w.acked, s.w.by, s.w.lost = map[string]string{}, map[string]string{}, 0
}

// calm takes back what the operators did, and waits until nothing moves any more.
func (s *soaking) calm(t *testing.T, o *operators) {
	t.Helper()
	first := s.Masters[0]
	for _, m := range s.Masters {
		e2e.Eventually(t, healed, m.ID+" votes and serves", func() error {
			now, err := membersOf(t, first)
			orders := []string{"cluster.undrain"}
			if !slices.Contains(now.Voters, m.ID) {
				orders = append(orders, "cluster.promote")
			}
			for _, order := range orders {
				if r := first.Runner(t, order, m.ID); err != nil || r.Code != 0 {
					return fmt.Errorf("%v, %v", err, r)
				}
			}
			return nil
		})
	}
	for _, id := range o.ids {
		first.Key(t, "-d", id, "-y") // it may not be there
	}
	s.WaitReady(t, healed, s.Masters...)
	oneHistory(t, s.Masters...)
	settled(t, s.cluster, s.Masters...)
}

// used is what the masters use.
func (s *soaking) used(t *testing.T) map[string]soak.Use {
	t.Helper()
	out := map[string]soak.Use{}
	for _, m := range s.Masters {
		out[m.ID] = soak.Use{Memory: metric(t, m, "process_resident_memory_bytes", ""),
			Files: metric(t, m, "process_open_fds", ""), Goroutines: metric(t, m, "go_goroutines", "")}
	}
	return out
}

func (s *soaking) any() *e2e.Master { return s.Masters[s.rng.IntN(len(s.Masters))] }

// pause is between half and all of a time.
func (s *soaking) pause(most time.Duration) {
	time.Sleep(most/2 + time.Duration(s.rng.Int64N(int64(most/2)))) // the fault lasts so long
}

// lose takes a master away for a time.
func (s *soaking) lose(away, back func(*e2e.Master, testing.TB), most time.Duration) func(*testing.T) {
	return func(t *testing.T) {
		m := s.any()
		away(m, t)
		s.pause(most)
		back(m, t)
	}
}

func (s *soaking) partition(t *testing.T) {
	m := s.any()
	switch other := s.others(m)[s.rng.IntN(2)]; s.rng.IntN(3) {
	case 0:
		isolate(t, s.net, s.Masters, m)
	case 1:
		cut(t, s.net, m.Number, other.Number)
	default:
		for _, o := range s.others(m) {
			s.net.cutOneWay(t, m.Number, o.Number)
		}
	}
	s.pause(10 * time.Second)
	s.net.heal(t)
}

// lossy makes a master's lines lose everything for moments, so that they are slow too: what was
// lost is sent again later.
func (s *soaking) lossy(t *testing.T) {
	m := s.any()
	for range 20 {
		isolate(t, s.net, s.Masters, m)
		s.pause(300 * time.Millisecond)
		s.net.heal(t)
		s.pause(600 * time.Millisecond)
	}
}

func (s *soaking) step(t *testing.T) {
	s.setClock(t, []string{"1h", "-1h", "26h", "-26h"}[s.rng.IntN(4)])
	s.pause(15 * time.Second)
	s.setClock(t, "0s")
}

func (s *soaking) fill(t *testing.T) {
	s.disk.fill(t, int64(s.rng.IntN(2))*(1<<20))
	s.pause(12 * time.Second)
	s.disk.empty(t)
}

// flip damages the table files of the first master's ring store while it is down.
func (s *soaking) flip(t *testing.T) {
	m := s.Masters[0]
	if code, _ := m.Stop(t, healed); code != 0 {
		t.Fatalf("%s ended with %d", m.ID, code)
	}
	ring := filepath.Join(m.Dir, "cache", "clustermaster", "ring")
	tables, _ := filepath.Glob(filepath.Join(ring, "*.sst"))
	if len(tables) == 0 { // all records are in the log still
		s.report.Faults["flipped bits"]--
	}
	for _, name := range tables {
		b, err := os.ReadFile(name)
		if err == nil {
			b[len(b)/2] ^= 1 << s.rng.IntN(8)
			err = os.WriteFile(name, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m.Run(t)
	s.WaitReady(t, 2*healed, m)
	var aside []string
	e2e.Eventually(t, healed, "a flipped bit in each table is noticed", func() error {
		if aside, _ = filepath.Glob(ring + ".damaged-*"); len(aside) == 0 && len(tables) > 0 {
			return fmt.Errorf("%d tables are in use", len(tables))
		}
		return nil
	})
	for _, dir := range aside {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// join adds a fourth master and removes it.
func (s *soaking) join(t *testing.T) {
	if s.fourth == nil {
		s.fourth = s.Stranger(t, same)
	} else {
		s.fourth.Wipe(t)
		e2e.Eventually(t, healed, "the fourth may come back", func() error {
			if r := s.any().Runner(t, "cluster.allow", s.fourth.ID); r.Code != 0 {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
	}
	s.fourth.Use(s.program)
	s.fourth.Run(t)
	e2e.Eventually(t, 2*healed, "the fourth is ready", s.fourth.Ready)
	e2e.Eventually(t, healed, "the fourth is removed", func() error {
		if r := s.any().Runner(t, "cluster.remove", s.fourth.ID, "keep_secret=True"); r.Code != 0 {
			m, err := membersOf(t, s.Masters[0])
			if err != nil || slices.Contains(slices.Concat(m.Voters, m.Learners), s.fourth.ID) {
				return fmt.Errorf("%v, %v", r, err)
			}
		}
		return nil
	})
	s.fourth.Kill(t)
}

func (s *soaking) rotate(t *testing.T) {
	e2e.Eventually(t, healed, "the keys are rotated", func() error {
		if r := s.any().Runner(t, "cluster.rotate_keys"); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}

// upgrade replaces the program of one master after the other by that of the next release.
func (s *soaking) upgrade(t *testing.T) {
	next := e2e.Next(t)
	for _, m := range s.Masters {
		if code, _ := m.Stop(t, healed); code != 0 {
			t.Fatalf("%s ended with %d", m.ID, code)
		}
		s.use(t, m, next)
		m.Run(t)
		s.WaitReady(t, 2*healed, s.Masters...)
	}
	s.program = next
}
