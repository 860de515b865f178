package conformance

import (
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// BenchmarkExtPillar has 16 minions ask for pillars that one ext_pillar in Python makes, of Salt's
// master and of ours in turns, for 8 seconds each, and reports the rates and their ratio.
//
//	CLUSTERMASTER_SALT_VENVS=.build/venvs go test ./test/conformance -run NONE \
//		-bench ExtPillar -benchtime 1x
func BenchmarkExtPillar(b *testing.B) {
	rates := map[kind][]float64{}
	for range 2 * b.N {
		for _, k := range []kind{theirs, ours} {
			rates[k] = append(rates[k], extPillarRate(b, k))
		}
	}
	mean := func(k kind) (sum float64) {
		for _, r := range rates[k] {
			sum += r / float64(len(rates[k]))
		}
		return sum
	}
	b.ReportMetric(mean(theirs), "salt/s")
	b.ReportMetric(mean(ours), "ours/s")
	b.ReportMetric(mean(ours)/mean(theirs), "ratio")
}

// extPillarRate is how many pillars a master makes in a second.
func extPillarRate(b *testing.B, k kind) float64 {
	b.Helper()
	c := e2e.NewCluster(b, e2e.ClusterOptions{Masters: 1, Plain: true, Programs: programs(b, k)})
	m := &subject{Master: c.Masters[0], kind: k, cfg: "rate", base: c.Base}
	options := "auto_accept: True\nworker_threads: 5\nextension_modules: " + m.path("ext") +
		"\next_pillar: [{owners: {}}]\n"
	if k == ours {
		options += "python_host: " +
			filepath.Join(e2e.Venvs(b), "salt-"+reference, "bin", "python3") + "\n"
	} else {
		options += "enable_fqdns_grains: False\n"
	}
	m.Configure(b, m.Config(b)+options)
	m.write(b, "base: {'*': [a]}\n", "pillar/top.sls")
	m.write(b, "a: {{ grains.os }}\n", "pillar/a.sls")
	m.write(b, "def ext_pillar(minion_id, pillar):\n    return {'owner': minion_id}\n",
		"ext/pillar/owners.py")
	m.start(b)
	defer m.Stop(b, 30*time.Second)
	var made atomic.Int64
	var all sync.WaitGroup
	begin := make(chan struct{})
	var end time.Time
	for i := range 16 {
		id := "m" + strconv.Itoa(i)
		c := m.signIn(b, id, 3)
		all.Go(func() {
			<-begin
			for time.Now().Before(end) {
				p, err := c.pillar(b)
				if err != nil || p.String("owner") != id {
					b.Errorf("%s: %v, %v", id, p, err)
					return
				}
				made.Add(1)
			}
		})
	}
	if _, err := m.pillarOf(b, "m0"); err != nil { // starts what is needed
		b.Fatal(err)
	}
	started := time.Now()
	end = started.Add(8 * time.Second)
	close(begin)
	all.Wait()
	return float64(made.Load()) / time.Since(started).Seconds()
}
