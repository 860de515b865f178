package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"clustermaster/hashring"
	"clustermaster/store/jobcache"
	"clustermaster/store/miniondata"
	"clustermaster/store/ringstore"
	"clustermaster/test/e2e"
	"clustermaster/value"
)

// lone is the only master of a cluster, for its ring store.
type lone struct {
	node string
	ring *hashring.Ring
}

func (l lone) Self() string         { return l.node }
func (l lone) Ring() *hashring.Ring { return l.ring }
func (l lone) Conn(node string) (grpc.ClientConnInterface, error) {
	return nil, fmt.Errorf("no way to %s", node)
}
func (l lone) Alive(string) bool     { return false }
func (l lone) Members() []string     { return []string{l.node} }
func (l lone) QuorumNeedsSelf() bool { return true }
func (l lone) Disowned() bool        { return false }

// heap is the content of a master's store.
type heap struct{ minions, jobs, returns, size int }

func (h heap) bytes() int { return h.jobs * h.returns * h.size }

// fill writes jobs, returns and grains into the store of a stopped master, through its own
// packages.
func (h heap) fill(t *testing.T, m *e2e.Master, self string, epoch int64, replicas int) {
	t.Helper()
	ring := hashring.New([]string{self}, 256, replicas, uint64(epoch))
	store, err := ringstore.Open(filepath.Join(m.Dir, "cache", "clustermaster", "ring"),
		lone{self, ring}, ringstore.Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	jobs, data := jobcache.New(store, 86400, time.Now, nil), miniondata.New(store, nil)
	now := time.Now()
	const writers = 16
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			random := rand.NewChaCha8([32]byte{byte(w)})
			val := make([]byte, h.size)
			for i := w; i < h.jobs; i += writers {
				jid := now.Add(-20*time.Hour +
					time.Duration(i)*3*time.Second).Format("20060102150405.000000")
				jid = strings.Replace(jid, ".", "", 1)
				load := value.Map{{Key: "jid", Value: jid}, {Key: "fun", Value: "state.apply"},
					{Key: "tgt", Value: "*"}, {Key: "tgt_type", Value: "glob"},
					{Key: "arg", Value: []any{"web", "test=True"}}, {Key: "user", Value: "root"}}
				if err := jobs.SaveLoad(t.Context(), jid, load,
					[]string{webID(0), webID(1)}); err != nil {
					t.Error(err)
					return
				}
				for r := range h.returns {
					random.Read(val)
					packed, err := value.Pack(val)
					if err == nil {
						_, err = jobs.SaveReturn(t.Context(), jid, webID(r),
							jobcache.Return{Return: packed}, nil)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			}
			for i := w; i < h.minions; i += writers {
				grains := value.Map{{Key: "id", Value: webID(i)},
					{Key: "os", Value: []string{"Debian", "Rocky"}[i%2]},
					{Key: "notes", Value: strings.Repeat("x", 3000)}}
				packed, err := value.Pack(grains)
				if err == nil {
					err = data.SetGrains(t.Context(), webID(i), packed)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func webID(n int) string { return fmt.Sprintf("web-%06d.example.com", n) }

// TestStartWithMuchInTheStore: with 5 GB in its store (500 MB under the race detector), a master
// lists jobs and resolves targets as soon after its start as with little.
func TestStartWithMuchInTheStore(t *testing.T) {
	if !long() {
		t.Skip("takes minutes; run make test-long")
	}
	t.Parallel()
	h := heap{minions: e2e.Amount(10_000), jobs: e2e.Amount(20_000), returns: 5, size: 50_000}
	c := prepareCluster(t, 1, "")
	m := c.Masters[0]
	manyKeys(t, filepath.Join(m.Dir, "pki", "minions"), h.minions)
	start := func() (ready time.Duration) {
		began := time.Now()
		m.Run(t, "--found")
		e2e.Eventually(t, 3*time.Minute, "the master is ready", m.Ready)
		return time.Since(began)
	}
	empty := start()
	e2e.Eventually(t, 3*time.Minute, "all keys are taken in",
		func() error { return hasKeys(t, m, h.minions) })
	var v ring
	if err := m.RunnerJSON(t, &v, "cluster.ring_info"); err != nil {
		t.Fatal(err)
	}
	m.Stop(t, 30*time.Second)
	began := time.Now()
	h.fill(t, m, nodeOf(t, m), v.Epoch, v.Replicas)
	t.Logf("%d MB of returns were written in %v", h.bytes()>>20,
		time.Since(began).Round(time.Second))
	for range 3 {
		ready := start()
		began := time.Now()
		r := m.Runner(t, "jobs.list_jobs", "--out=json")
		listed := time.Since(began)
		var jobs map[string]json.RawMessage
		if err := json.Unmarshal([]byte(r.Stdout), &jobs); err != nil || len(jobs) < h.jobs {
			t.Errorf("%d jobs of %d are listed: %v, %.300s", len(jobs), h.jobs, err, r.Stderr)
		}
		began = time.Now()
		r = m.Salt(t, "-G", "os:Debian", "--preview-target", "--out=json")
		resolved := time.Since(began)
		if n := strings.Count(r.Stdout, "web-"); r.Code != 0 || n != (h.minions+1)/2 {
			t.Errorf("%d of %d minions are resolved: %.300v", n, (h.minions+1)/2, r)
		}
		t.Logf("ready after %v (%v with nothing in the store), then list_jobs of %d jobs took %v and a target on grains of %d minions %v",
			ready.Round(time.Millisecond), empty.Round(time.Millisecond), len(jobs),
			listed.Round(time.Millisecond), h.minions, resolved.Round(time.Millisecond))
		if (listed > 2*time.Second || resolved > 2*time.Second) && e2e.RatesCount(t) {
			t.Errorf("an answer took more than 2 s: %v, %v", listed, resolved)
		}
		m.Stop(t, 30*time.Second)
	}
}

// nodeOf is the name of a master's node in the ring.
func nodeOf(t *testing.T, m *e2e.Master) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.Dir, "cache", "clustermaster", "cluster",
		"identity.json"))
	if err != nil {
		t.Fatal(err)
	}
	var id struct {
		ID          string `json:"id"`
		Incarnation string `json:"incarnation"`
	}
	if err := json.Unmarshal(b, &id); err != nil {
		t.Fatal(err)
	}
	return id.ID + "/" + id.Incarnation
}
