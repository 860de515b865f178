package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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

// reclaimable estimates what a collection would return, without grown stacks.
func (m memoryUse) reclaimable() uint64 {
	return m.free + m.objects - min(m.objects, m.live)
}

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
	before := readMemory(samples)
	var given uint64 // allocated when memory was last given back; what the start left counts too
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := readMemory(samples)
		calm := now.allocated-before.allocated <= calmAllocs
		before = now
		// What a burst allocated may have been alive at the last collection and be garbage now.
		// Only another collection shows that.
		if !calm || !now.worth(now.reclaimable()) && !now.worth(now.allocated-given) ||
			time.Now().Before(next) {
			continue
		}
		debug.FreeOSMemory()
		times.Inc()
		next = time.Now().Add(giveEvery)
		before = readMemory(samples)
		given = before.allocated
	}
}
