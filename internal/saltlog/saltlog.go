package saltlog

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
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
	return 0, fmt.Errorf("log level %q is unknown: use one of all, garbage, trace, debug, profile, info, warning, error, critical, quiet", name)
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

// Output is one destination: a writer, its least level, and whether lines
// carry date, component, source line and pid as in Salt's log file.
type Output struct {
	W     io.Writer
	Level slog.Level
	File  bool
}

// Handler is a slog.Handler over several outputs. The attribute "component"
// becomes the logger name of the line; other attributes follow the message
// as key=value.
type Handler struct {
	mu        *sync.Mutex // guards the writers
	outs      []Output
	least     slog.Level
	component string
	attrs     string // rendered attributes of With
	prefix    string // group prefix
}

var _ slog.Handler = (*Handler)(nil)

// New returns a handler over the outputs.
func New(outs ...Output) *Handler {
	h := &Handler{mu: new(sync.Mutex), outs: outs, least: levelQuiet}
	for _, o := range outs {
		h.least = min(h.least, o.Level)
	}
	return h
}

// Enabled reports whether any output wants the level.
func (h *Handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.least }

// Handle writes one record.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	component := h.component
	var b strings.Builder
	b.WriteString(oneLine(r.Message))
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		if h.prefix == "" && a.Key == "component" {
			component = a.Value.String()
			return true
		}
		appendAttr(&b, h.prefix, a)
		return true
	})
	msg := b.String()
	var file, console []byte
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.outs {
		if r.Level < o.Level {
			continue
		}
		line := &console
		if o.File {
			line = &file
		}
		if *line == nil {
			*line = h.format(o.File, component, msg, r)
		}
		if _, err := o.W.Write(*line); err != nil {
			return fmt.Errorf("write log line: %w", err)
		}
	}
	return nil
}

func (h *Handler) format(file bool, component, msg string, r slog.Record) []byte {
	if !file {
		return fmt.Appendf(nil, "[%-8s] %s\n", levelName(r.Level), msg)
	}
	if component == "" {
		component = "clustermaster"
	} else {
		component = "clustermaster." + component
	}
	line := 0
	if r.PC != 0 {
		f, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
		line = f.Line
	}
	t := r.Time
	return fmt.Appendf(nil, "%s,%03d [%-17s:%-4d][%-8s][%d] %s\n",
		t.Format("2006-01-02 15:04:05"), t.Nanosecond()/int(time.Millisecond), component, line, levelName(r.Level), os.Getpid(), msg)
}

// WithAttrs returns a handler whose lines carry the attributes.
func (h *Handler) WithAttrs(as []slog.Attr) slog.Handler {
	c := *h
	var b strings.Builder
	b.WriteString(h.attrs)
	for _, a := range as {
		if h.prefix == "" && a.Key == "component" {
			c.component = a.Value.String()
			continue
		}
		appendAttr(&b, h.prefix, a)
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

func appendAttr(b *strings.Builder, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, g := range v.Group() {
			appendAttr(b, prefix, g)
		}
		return
	}
	if a.Key == "" {
		return
	}
	s := v.String()
	if s == "" || strings.ContainsAny(s, " \t\r\n\"=") || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		s = strconv.Quote(s)
	}
	b.WriteByte(' ')
	b.WriteString(prefix)
	b.WriteString(a.Key)
	b.WriteByte('=')
	b.WriteString(s)
}

// oneLine keeps a message from forging further log lines.
func oneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(s)
}

// OpenFile opens a log file for appending, mode 0640, and makes its folder.
func OpenFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open log file: %w", err)
	}
	return f, nil
}
