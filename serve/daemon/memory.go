package daemon

import (
	"context"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
)

// memoryShare is the part of the memory of the machine, or of its control group, for the heap of
// this process. The rest is for template workers, the Python host, and the programs that they run.
const memoryShare = 0.8

// boundMemory makes the runtime collect garbage more often rather than exceed memoryShare.
// GOMEMLIMIT in the environment replaces it. Bounds of large requests and answers are parts of the
// runtime's limit.
func boundMemory(log *slog.Logger) {
	bytes, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(memory))
	if err != nil {
		log.Warn("the memory of this machine is unknown: set GOMEMLIMIT to what the master may use", "err", err)
		return
	}
	log.Debug("memory is bounded", "bytes", bytes)
}

// memory is how much this process may use, in bytes.
func memory() (uint64, error) {
	machine, err := memlimit.FromSystem()
	if err != nil {
		return 0, err
	}
	if group, err := memlimit.FromCgroup(); err == nil {
		return min(machine, group), nil
	}
	return machine, nil
}

// Times and bounds of returning memory.
const (
	calmLook   = 500 * time.Millisecond
	calmAllocs = 1 << 20 // maximum bytes allocated between two checks in a calm master
	// minimum bytes that a collection must return; of a large heap an eighth
	worthGiving = 3 << 20
	giveEvery   = 2 * time.Second
)

// memoryUse is the heap's state according to runtime/metrics, in bytes.
type memoryUse struct {
	allocated uint64 // since the start
	objects   uint64 // on the heap, including garbage
	live      uint64 // of these, found alive by the last collection
	free      uint64 // on the heap, returnable to the system
}

// garbage estimates what a collection would free, without grown stacks.
func (m memoryUse) garbage() uint64 { return m.objects - min(m.objects, m.live) }

// worth reports whether n bytes are worth a collection, whose cost depends on the live bytes.
func (m memoryUse) worth(n uint64) bool { return n >= max(worthGiving, m.live/8) }

func readMemory(samples []metrics.Sample) memoryUse {
	metrics.Read(samples)
	return memoryUse{samples[0].Value.Uint64(), samples[1].Value.Uint64(),
		samples[2].Value.Uint64(), samples[3].Value.Uint64()}
}

func memorySamples() []metrics.Sample {
	return []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
}

// NewGivenBack makes the counter for GiveMemoryBack.
func NewGivenBack(reg prometheus.Registerer) prometheus.Counter {
	times := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "clustermaster_memory_given_back_total",
		Help: "Times that memory was given back to the system after a burst.",
	})
	reg.MustRegister(times)
	return times
}

// GiveMemoryBack returns memory to the system after a burst, such as a sign-in of all minions.
// Without it the runtime keeps up to twice the live heap, and the grown stacks of all connections,
// until something is allocated again.
func GiveMemoryBack(ctx context.Context, times prometheus.Counter) {
	tick := time.NewTicker(calmLook)
	defer tick.Stop()
	samples := memorySamples()
	g := giver{before: readMemory(samples)}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !g.due(readMemory(samples), time.Now()) {
			continue
		}
		debug.FreeOSMemory()
		times.Inc()
		g.gave(readMemory(samples), time.Now())
	}
}

// giver decides when memory is given back.
type giver struct {
	before memoryUse // at the last check
	given  uint64    // allocated when memory was last given back; what the start left counts too
	stuck  uint64    // bytes that were free then: the runtime could not return them
	next   time.Time // not before then
}

func (g *giver) due(now memoryUse, at time.Time) bool {
	calm := now.allocated-g.before.allocated <= calmAllocs
	g.before, g.stuck = now, min(g.stuck, now.free)
	// What a burst allocated may have been alive at the last collection and be garbage now.
	// Only another collection shows that.
	worth := now.worth(now.free-g.stuck+now.garbage()) || now.worth(now.allocated-g.given)
	return calm && worth && !at.Before(g.next)
}

func (g *giver) gave(after memoryUse, at time.Time) {
	g.before, g.given, g.stuck, g.next = after, after.allocated, after.free, at.Add(giveEvery)
}
