package ringstore

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkPutFirst writes returns of one job after the other, as minions send them: durable on a
// write quorum, over real gRPC between stores that share this machine's processors and disk.
// writes/s is the figure to compare with Salt's 340 returns/s (not durable, not copied).
func BenchmarkPutFirst(b *testing.B) {
	for _, names := range [][]string{{"m1/a"}, {"m1/a", "m2/b", "m3/c"}} {
		for _, callers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("stores=%d/callers=%d", len(names), callers), func(b *testing.B) {
				k := newKit(b, names...)
				k.settled()
				value := make([]byte, 300)
				var i atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(max(callers/runtime.GOMAXPROCS(0), 1))
				if callers == 1 {
					b.SetParallelism(1)
				}
				ctx := context.Background()
				expires := time.Now().Add(time.Hour)
				b.ResetTimer()
				began := processCPU()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						n := int(i.Add(1))
						s := k.store(names[n%len(names)])
						res, err := s.Write(ctx, fmt.Sprintf("202611210933%08d", n/1000), Put{
							Space: SpaceJobs, Name: fmt.Sprintf("r/minion%d", n), Value: value,
							Expires: expires, First: true, Exact: true,
						})
						if err != nil || !res[0].Stored {
							b.Error(res, err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
				b.ReportMetric(float64(processCPU()-began)/float64(b.N), "cpu-ns/op")
			})
		}
	}
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

// BenchmarkGet reads one record from a read quorum.
func BenchmarkGet(b *testing.B) {
	for _, names := range [][]string{{"m1/a"}, {"m1/a", "m2/b", "m3/c"}} {
		b.Run(fmt.Sprintf("stores=%d", len(names)), func(b *testing.B) {
			k := newKit(b, names...)
			k.settled()
			ctx := context.Background()
			key := Key{Space: SpaceMinions, Place: "web1", Name: "grains"}
			if err := k.store("m1/a").Put(ctx, key, make([]byte, 4000), time.Time{}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, found, err := k.store("m1/a").Get(ctx, key); err != nil || !found {
					b.Fatal(found, err)
				}
			}
		})
	}
}

// BenchmarkList reads the 1000 returns of one job out of 100,000.
func BenchmarkList(b *testing.B) {
	s, err := Open(b.TempDir(), newAlone(), Options{}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	for job := range 100 {
		var puts []Put
		for m := range 1000 {
			puts = append(puts, Put{Space: SpaceJobs, Name: fmt.Sprintf("r/minion%d", m),
				Value: make([]byte, 300), First: true, Exact: true,
				Expires: time.Now().Add(time.Duration(job%24+1) * time.Hour)})
		}
		if _, err := s.Write(ctx, fmt.Sprint("job", job), puts...); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		list, err := s.List(ctx, SpaceJobs, "job7", "r/")
		if err != nil || len(list) != 1000 {
			b.Fatal(len(list), err)
		}
	}
}

// BenchmarkAsk puts a question about 1000 records to three stores that agree.
func BenchmarkAsk(b *testing.B) {
	k := newKit(b, "m1/a", "m2/b", "m3/c")
	k.settled()
	ctx := context.Background()
	want := k.fill(ctx, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if got, _, err := asks(ctx, k.store("m1/a"), "grains os=Debian"); err != nil ||
			len(got) != len(want) {
			b.Fatal(len(got), err)
		}
	}
}

// BenchmarkScan reads 1000 records of three stores that agree.
func BenchmarkScan(b *testing.B) {
	k := newKit(b, "m1/a", "m2/b", "m3/c")
	k.settled()
	ctx := context.Background()
	k.fill(ctx, 1000)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if _, err := k.store("m1/a").Scan(ctx, SpaceMinions, "grains",
			func(Record) error { n++; return nil }); err != nil || n != 1000 {
			b.Fatal(n, err)
		}
	}
}
