package miniondata

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"clustermaster/salt/target"
	"clustermaster/value"

	"golang.org/x/sync/errgroup"
)

// fleet is how many minions the benchmarks have.
const fleet = 10_000

// grainsOf makes grains of the size that a real minion's have: 60 keys, 4 KB.
func grainsOf(i int, id string) value.Map {
	g := m("id", id, "os", []string{"Debian", "Ubuntu", "RedHat"}[i%3], "osrelease",
		fmt.Sprint(10+i%4), "num_cpus", int64(1<<(i%6)),
		"roles", []any{fmt.Sprintf("role%d", i%20), "all"}, "ipv4",
		[]any{"127.0.0.1", fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)},
		"ip_interfaces", m("eth0", []any{fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}, "lo",
			[]any{"127.0.0.1"}), "dc", m("name", fmt.Sprintf("dc%d", i%5), "rack", int64(i%40)))
	for k := range 52 {
		g = append(g, value.Pair{Key: fmt.Sprintf("grain%02d", k),
			Value: fmt.Sprintf("a value of some length, as grains have them %d/%d", i%7, k)})
	}
	return g
}

func (a *masters) fillFleet(b *testing.B) []string {
	b.Helper()
	ids := make([]string, fleet)
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(128)
	for i := range ids {
		id := fmt.Sprintf("minion%05d.example.net", i)
		ids[i] = id
		g.Go(func() error {
			packed, err := value.Pack(grainsOf(i, id))
			if err != nil {
				return err
			}
			d := a.node("m1/a").data
			if err := d.SetGrains(ctx, id, packed); err != nil {
				return err
			}
			pillar := m("env", []string{"prod", "test"}[i%2], "apps",
				m("nginx", m("port", int64(80+i%3))))
			for k := range 20 {
				pillar = append(pillar, value.Pair{Key: fmt.Sprintf("key%02d", k),
					Value: m("user", "svc", "secret",
						fmt.Sprintf("some secret text %d of %d", k, i))})
			}
			return d.SetPillar(ctx, id, "", pillar)
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	slices.Sort(ids)
	return ids
}

// processCPU is what this process has used of the processors: on a busy machine a better measure
// than the clock.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTarget resolves targets over 10,000 minions with 4 KB of grains and 1.5 KB of pillar
// each, on one store and on three that share this machine: with the parts that were read before
// still in memory, as for any question but the first about a grain, and from the disk, without
// them.
func BenchmarkTarget(b *testing.B) {
	for _, names := range [][]string{{"m1/a"}, {"m1/a", "m2/b", "m3/c"}} {
		b.Run(fmt.Sprintf("stores=%d", len(names)), func(b *testing.B) {
			a := newMasters(b, names...)
			ids := a.fillFleet(b)
			resolve := func(name, kind, tgt string, want int) {
				b.Run(name, func(b *testing.B) {
					src := NewWorld(accepted(ids), a.node("m1/a").data, true, nil)
					match := func() {
						got, err := target.Match(b.Context(), kind, tgt, "", src, true)
						if err != nil || got.Incomplete != "" || len(got.Minions) != want {
							b.Fatal(len(got.Minions), got.Incomplete, err)
						}
					}
					match()
					b.ReportAllocs()
					began := processCPU()
					for b.Loop() {
						match()
					}
					b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/target")
					b.ReportMetric((processCPU()-began).Seconds()*1000/float64(b.N),
						"cpu-ms/target")
				})
			}
			resolve("glob", "glob", "minion000*", 100)
			resolve("grain", "grain", "os:Debian", 3334)
			resolve("grain_all", "grain", "os:*", 10_000)
			resolve("grain_pcre", "grain_pcre", "osrelease:1[02]", 5000)
			resolve("grain_list", "grain", "roles:role7", 500)
			resolve("ipcidr", "ipcidr", "10.0.7.0/24", 256)
			resolve("pillar", "pillar", "env:prod", 5000)
			resolve("pillar_deep", "pillar", "apps:nginx:port:81", 3333)
			resolve("compound", "compound",
				"minion0* and G@os:Debian and not I@env:test or S@10.0.7.0/24", 1880)
			resolve("compound_two_ids", "compound",
				"L@minion00000.example.net,minion00001.example.net and G@os:Debian", 1)
			for _, n := range a.list() {
				n.kill()
			}
			a.opts.PartBytes = 1
			a.setRing(names...)
			a.settled()
			resolve("grain_from_disk", "grain", "os:Debian", 3334)
			resolve("compound_from_disk", "compound",
				"minion0* and G@os:Debian and not I@env:test or S@10.0.7.0/24", 1880)
		})
	}
}
