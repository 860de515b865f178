package saltlog

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Levels beside slog's own four.
const (
	LevelTrace    = slog.Level(-8)
	LevelCritical = slog.Level(12)
	levelQuiet    = slog.Level(1 << 20)
)

// ParseLevel maps one of Salt's level names (all, garbage, trace, debug,
// profile, info, warning, error, critical, quiet) to a slog level.
func ParseLevel(name string) (slog.Level, error) {
	switch strings.ToLower(name) {
	case "all", "garbage", "trace":
		return LevelTrace, nil
	case "debug":
		return slog.LevelDebug, nil
	case "profile", "info":
		return slog.LevelInfo, nil
	case "warning", "":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	case "critical":
		return LevelCritical, nil
	case "quiet":
		return levelQuiet, nil
	}
	return 0,
		fmt.Errorf("log level %q is unknown: use one of all, garbage, trace, debug, profile, info, warning, error, critical, quiet", name)
}

func levelName(l slog.Level) string {
	switch {
	case l >= LevelCritical:
		return "CRITICAL"
	case l >= slog.LevelError:
		return "ERROR"
	case l >= slog.LevelWarn:
		return "WARNING"
	case l >= slog.LevelInfo:
		return "INFO"
	case l >= slog.LevelDebug:
		return "DEBUG"
	}
	return "TRACE"
}

// Record is one log record, ready for a layout.
type Record struct {
	Time      time.Time
	Level     slog.Level
	Component string      // "" if the record names none
	Text      string      // the message on one line, without attributes
	Attrs     string      // the attributes, each as " key=value"
	Fields    []slog.Attr // the attributes with the names of their groups before the key
	PC        uintptr     // of the call, 0 when unknown
}

// Name is the logger name that lines show: clustermaster, or clustermaster.COMPONENT.
func (r *Record) Name() string {
	if r.Component == "" {
		return "clustermaster"
	}
	return "clustermaster." + r.Component
}

func (r *Record) frame() runtime.Frame {
	if r.PC == 0 {
		return runtime.Frame{}
	}
	f, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
	return f
}

// Layout turns a record into one line, with its line break.
type Layout interface {
	Append(b []byte, r *Record) []byte
}

// Sink writes lines. The Handler never calls a sink concurrently. One that is an io.Closer is
// closed when it is replaced.
type Sink interface {
	Write(r *Record, line []byte) error
}

// Output is one destination with its level and layout.
type Output struct {
	To     Sink
	Level  slog.Level
	Levels Levels // of single components; they override Level
	Layout Layout // nil for a sink that reads the record itself
}

// Handler is a slog.Handler over several outputs. The attribute "component"
// becomes the logger name of the line; other attributes follow the message
// as key=value.
type Handler struct {
	outs      *outputs
	component string
	attrs     string // rendered attributes of With
	fields    []slog.Attr
	prefix    string // group prefix
}

// outputs are shared by a handler and all handlers that With made from it.
type outputs struct {
	mu   sync.RWMutex // held to replace list, read-held while lines are put
	list atomic.Pointer[[]*writer]
	lost atomic.Int64 // lines, by all outputs
}

var _ slog.Handler = (*Handler)(nil)

// New returns a handler over the outputs.
func New(outs ...Output) *Handler {
	h := &Handler{outs: new(outputs)}
	h.outs.list.Store(new([]*writer))
	h.Replace(outs...)
	return h
}

// Replace replaces the outputs, for all loggers that were made from this handler. It returns when
// the previous ones have written what they were given, or hang.
func (h *Handler) Replace(outs ...Output) {
	next := make([]*writer, len(outs))
	for i, o := range outs {
		next[i] = startWriter(o, &h.outs.lost)
	}
	h.outs.mu.Lock()
	previous := h.outs.list.Swap(&next)
	h.outs.mu.Unlock()
	for _, w := range *previous {
		w.close()
	}
}

// Enabled reports whether any output takes the level.
func (h *Handler) Enabled(_ context.Context, l slog.Level) bool {
	for _, o := range *h.outs.list.Load() {
		if l >= o.least() {
			return true
		}
	}
	return false
}

func (o *Output) least() slog.Level {
	least := o.Level
	for _, l := range o.Levels {
		least = min(least, l.level)
	}
	return least
}

// Handle writes one record. It returns once that is written, unless an output hangs.
func (h *Handler) Handle(_ context.Context, rec slog.Record) error {
	r := Record{Time: rec.Time, Level: rec.Level, Component: h.component,
		Text: oneLine(rec.Message), PC: rec.PC, Fields: h.fields}
	var b strings.Builder
	b.WriteString(h.attrs)
	r.Fields = r.Fields[:len(r.Fields):len(r.Fields)]
	rec.Attrs(func(a slog.Attr) bool {
		if h.prefix == "" && a.Key == "component" {
			r.Component = a.Value.String()
			return true
		}
		r.Fields = appendAttr(&b, r.Fields, h.prefix, a)
		return true
	})
	r.Attrs = b.String()
	return h.outs.write(&r)
}

// write gives a record to each output that takes its level, and waits for those that don't hang.
func (o *outputs) write(r *Record) error {
	o.mu.RLock()
	list := *o.list.Load()
	put := make([]*line, len(list))
	var first error
	for i, w := range list {
		if r.Level < w.Levels.of(r.Component, w.Level) {
			continue
		}
		if put[i] = w.put(r); put[i] == nil {
			first = errLost
		}
	}
	o.mu.RUnlock()
	for i, l := range put {
		if l == nil {
			continue
		}
		if err := list[i].wait(l); err != nil && first == nil {
			first = fmt.Errorf("write log line: %w", err)
		}
	}
	return first
}

// WithAttrs returns a handler whose lines carry the attributes.
func (h *Handler) WithAttrs(as []slog.Attr) slog.Handler {
	c := *h
	c.fields = h.fields[:len(h.fields):len(h.fields)]
	var b strings.Builder
	b.WriteString(h.attrs)
	for _, a := range as {
		if h.prefix == "" && a.Key == "component" {
			c.component = a.Value.String()
			continue
		}
		c.fields = appendAttr(&b, c.fields, h.prefix, a)
	}
	c.attrs = b.String()
	return &c
}

// WithGroup returns a handler that prefixes attribute keys with name and a dot.
func (h *Handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.prefix = h.prefix + name + "."
	return &c
}

// appendAttr writes a as text to b and adds it to fields.
func appendAttr(b *strings.Builder, fields []slog.Attr, prefix string, a slog.Attr) []slog.Attr {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, g := range v.Group() {
			fields = appendAttr(b, fields, prefix, g)
		}
		return fields
	}
	if a.Key == "" {
		return fields
	}
	s := v.String()
	if s == "" || strings.ContainsAny(s, " \t\r\n\"=") ||
		strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		s = strconv.Quote(s)
	}
	b.WriteByte(' ')
	b.WriteString(prefix)
	b.WriteString(a.Key)
	b.WriteByte('=')
	b.WriteString(s)
	return append(fields, slog.Attr{Key: prefix + a.Key, Value: v})
}

// oneLine keeps a message from forging further log lines.
func oneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(s)
}
