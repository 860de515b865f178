package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// manyKeys writes accepted keys, all different, as a Salt master stores them.
func manyKeys(t *testing.T, dir string, n int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("web-%06d.example.com", i)),
			[]byte(madeKey(t, i)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJoinOverANarrowLine: a master behind a line of 50 Mbit/s, 20 ms from the others, joins a
// cluster with 100,000 keys. Meanwhile no master starts an election or is considered down, and the
// others serve. The short form has a tenth of the keys and a fifth of the line. It only logs
// elections: it runs beside other tests, which may keep a master from its processor.
func TestJoinOverANarrowLine(t *testing.T) {
	t.Parallel()
	complain := t.Logf
	keys, mbit, limit := 10_000, 10, 3*time.Minute
	if long() {
		keys, mbit, limit = e2e.Amount(100_000), 50, 10*time.Minute
		complain = t.Errorf
	}
	rate := mbit * 1_000_000 / 8
	links := newSlowLinks(t, 4, 10*time.Millisecond, 0)
	links.narrow, links.up, links.down = 3, &line{rate: rate}, &line{rate: rate}
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 2, Network: links})
	first, second := c.Masters[0], c.Masters[1]
	joiner := c.Stranger(t, same)
	manyKeys(t, filepath.Join(first.Dir, "pki", "minions"), keys)
	c.StartMasters(t)
	e2e.Eventually(t, limit, "all keys are taken in",
		func() error { return hasKeys(t, first, keys) })

	before, err := membersOf(t, first)
	if err != nil {
		t.Fatal(err)
	}
	offsets := []int64{logSize(first), logSize(second)}
	stop, wg := make(chan struct{}), sync.WaitGroup{}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond): // between looks
			}
			for _, m := range []*e2e.Master{first, second} {
				if err := m.Ready(); err != nil {
					complain("%s is not ready while another one joins: %v", m.ID, err)
				}
			}
		}
	})
	began := time.Now()
	joiner.Run(t)
	e2e.Eventually(t, limit, "the joiner is a voter and ready", func() error {
		if err := joiner.Ready(); err != nil {
			return err
		}
		v, err := membersOf(t, first)
		if err == nil && !slices.Contains(v.Voters, joiner.ID) {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
	took := time.Since(began)
	close(stop)
	wg.Wait()
	if err := hasKeys(t, joiner, keys); err != nil {
		t.Error(err)
	}
	after, err := membersOf(t, first)
	if err != nil {
		t.Fatal(err)
	}
	if after.Term != before.Term || after.Leader != before.Leader {
		complain("term and leader were %d, %s, and are %d, %s", before.Term, before.Leader,
			after.Term, after.Leader)
	}
	for i, m := range []*e2e.Master{first, second} {
		for _, word := range []string{"peer does not answer", "lost leadership",
			"entering candidate state"} {
			if logHas(t, m, offsets[i], word) == nil {
				complain("%s logged %q", m.ID, word)
			}
		}
	}
	down := links.down.carried()
	least := time.Duration(down) * time.Second / time.Duration(rate)
	if down < int64(keys)*400 {
		t.Errorf("%d bytes came through the line: that is not the keys", down)
	}
	t.Logf("%d keys over %d Mbit/s: a voter and ready after %v; %.1f MB came, which take %v", keys,
		mbit, took.Round(100*time.Millisecond),
		float64(down)/1e6, least.Round(100*time.Millisecond))
}

// hasKeys returns nil if a master lists that many accepted keys.
func hasKeys(t *testing.T, m *e2e.Master, n int) error {
	r := m.Key(t, "-l", "acc")
	if got := strings.Count(r.Stdout, "web-"); r.Code != 0 || got != n {
		return fmt.Errorf("%s lists %d keys of %d: %s", m.ID, got, n, r.Stderr)
	}
	return nil
}
