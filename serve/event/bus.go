package event

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/value"
	"clustermaster/wire"
)

// Event is one event as sent: the tag and the packed map, which has its _stamp.
type Event struct {
	Tag  string
	Data value.Raw // shared by all receivers; must not be changed
}

// Map decodes the event's data.
func (e Event) Map() (value.Map, error) { return e.Data.Map() }

// DefaultMaxEventSize is Salt's max_event_size in bytes.
const DefaultMaxEventSize = 1 << 20

// Bus carries the events of one master to its subscribers. It is safe for concurrent use.
type Bus struct {
	max     int
	log     *slog.Logger
	metrics *metrics
	now     func() time.Time

	keeps func(tag string) bool
	keep  func(Event)

	mu   sync.RWMutex // guards subs
	subs map[*Subscription]struct{}
}

// NewBus makes a bus. Events above maxEventSize bytes are trimmed; 0 or less means
// DefaultMaxEventSize.
func NewBus(maxEventSize int, log *slog.Logger, reg prometheus.Registerer) *Bus {
	if maxEventSize <= 0 {
		maxEventSize = DefaultMaxEventSize
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Bus{
		max:     maxEventSize,
		log:     log.With("component", "event"),
		metrics: newMetrics(reg),
		now:     time.Now,
		subs:    make(map[*Subscription]struct{}),
	}
}

// Keep makes the bus call keep with each event whose tag keeps accepts, before any subscriber gets
// it. keep must not block. Call Keep once, before the first event.
func (b *Bus) Keep(keeps func(tag string) bool, keep func(Event)) { b.keeps, b.keep = keeps, keep }

// Wanted reports whether tag has a subscriber, so that callers need not make events in vain.
func (b *Bus) Wanted(tag string) bool {
	if b.keeps != nil && b.keeps(tag) {
		return true
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for s := range b.subs {
		if s.wants(tag) {
			return true
		}
	}
	return false
}

var errTag = errors.New("no tag, or one with an empty line or a line end at its end")

// Fire sends data, stamped with the present time, to the subscribers of tag. It drops and counts
// events without a ValidTag and data that can't be packed. It does not change data.
func (b *Bus) Fire(tag string, data value.Map) {
	if !b.accept(tag) {
		return
	}
	stamped := make(value.Map, len(data), len(data)+1)
	copy(stamped, data)
	packed, err := value.Pack(stamped.Set("_stamp", wire.Stamp(b.now())))
	if err != nil {
		b.refuse(tag, err)
		return
	}
	b.send(Event{Tag: tag, Data: packed})
}

// FireRawMap is Fire for data whose values are still encoded.
func (b *Bus) FireRawMap(tag string, data value.RawMap) { b.fireMap(tag, data, false) }

// Pass is FireRawMap for an event of another process. It keeps the time that the process gave the
// event, as Salt does: a process may look for its own event by all of its data.
func (b *Bus) Pass(tag string, data value.RawMap) { b.fireMap(tag, data, true) }

// fireMap sends data stamped with the present time, or with its own, if that is to be kept and is
// a time.
func (b *Bus) fireMap(tag string, data value.RawMap, keepStamp bool) {
	if !b.accept(tag) {
		return
	}
	if !keepStamp || !wire.IsStamp(data.String("_stamp")) {
		stamp, err := value.Pack(wire.Stamp(b.now()))
		if err != nil {
			b.refuse(tag, err)
			return
		}
		data = data.Without("_stamp").Append("_stamp", stamp)
	}
	packed, err := data.Pack()
	if err != nil {
		b.refuse(tag, err)
		return
	}
	b.send(Event{Tag: tag, Data: packed})
}

// FireRaw sends data, a packed map with its _stamp, unchanged (but trimmed if too large).
func (b *Bus) FireRaw(tag string, data value.Raw) {
	if b.accept(tag) {
		b.send(Event{Tag: tag, Data: data})
	}
}

// ValidTag reports whether a tag may be fired: it is not empty, and Salt's listeners, for whom two
// line ends are the end of a tag (salt.utils.event, TAGEND), read it as it is.
func ValidTag(tag string) bool {
	return tag != "" && !strings.Contains(tag, "\n\n") && !strings.HasSuffix(tag, "\n")
}

// accept counts the event and reports whether anything needs it.
func (b *Bus) accept(tag string) bool {
	if !ValidTag(tag) {
		b.refuse(tag, errTag)
		return false
	}
	b.metrics.fired.Inc()
	return b.Wanted(tag)
}

func (b *Bus) refuse(tag string, err error) {
	b.metrics.refused.Inc()
	b.log.Debug("event dropped", "tag", tag, "err", err)
}

func (b *Bus) send(e Event) {
	if len(e.Data) > b.max {
		trimmed, err := trim(e.Data, b.max)
		if err != nil {
			b.refuse(e.Tag, err)
			return
		}
		b.metrics.trimmed.Inc()
		e.Data = trimmed
	}
	if b.keeps != nil && b.keeps(e.Tag) {
		b.keep(e)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for s := range b.subs {
		if s.wants(e.Tag) {
			s.offer(e)
		}
	}
}

// Subscribe returns the events of this master whose tag begins with prefix, from now on. The caller
// closes the subscription.
func (b *Bus) Subscribe(prefix string) *Subscription {
	s := newSubscription(b.metrics, func(tag string) bool { return strings.HasPrefix(tag, prefix) })
	b.attach(s)
	return s
}

// SubscribeWhere is Subscribe for the tags that wants accepts. It calls wants for each event, from
// several goroutines; wants must not block.
func (b *Bus) SubscribeWhere(wants func(tag string) bool) *Subscription {
	s := newSubscription(b.metrics, wants)
	b.attach(s)
	return s
}

func (b *Bus) attach(s *Subscription) {
	s.detach = func() {
		b.mu.Lock()
		delete(b.subs, s)
		b.mu.Unlock()
	}
	b.mu.Lock()
	b.subs[s] = struct{}{}
	b.mu.Unlock()
}
