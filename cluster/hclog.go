package cluster

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// raftLog passes raft's messages to slog. Raft's info is debug detail to an operator. What raft
// repeats at every heartbeat while a peer is away is logged once per repeatEvery.
type raftLog struct {
	log  *slog.Logger
	name string
	seen *seenLines
	args []any
}

var _ hclog.Logger = (*raftLog)(nil)

const (
	repeatEvery = 30 * time.Second
	maxSeen     = 256
)

type seenLines struct {
	mu sync.Mutex // guards at
	at map[string]time.Time
}

// again reports whether the line was logged within repeatEvery.
func (s *seenLines) again(line string) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.at[line]; ok && now.Sub(last) < repeatEvery {
		return true
	}
	if len(s.at) >= maxSeen {
		clear(s.at)
	}
	s.at[line] = now
	return false
}

func newRaftLog(l *slog.Logger) *raftLog {
	return &raftLog{log: l.With("part", "raft"), name: "raft",
		seen: &seenLines{at: make(map[string]time.Time)}}
}

func slogLevel(l hclog.Level) slog.Level {
	switch l {
	case hclog.Warn, hclog.Error: // raft's errors are nearly always about a peer that is away
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

// Log implements hclog.Logger.
func (r *raftLog) Log(l hclog.Level, msg string, args ...any) {
	lvl := slogLevel(l)
	if !r.log.Enabled(context.Background(), lvl) {
		return
	}
	// raft logs this at each start without a commit index; nothing was skipped
	if msg == "skipping application of old log" {
		lvl = slog.LevelDebug
	}
	if msg == "heartbeat timeout reached, starting election" &&
		slices.Equal(args, []any{"last-leader-addr", raft.ServerAddress(""), "last-leader-id",
			raft.ServerID("")}) {
		// no leader was lost: this master has just started, and may be the only voter
		lvl = slog.LevelDebug
	}
	all := append(append([]any{}, r.args...), args...)
	for i := 1; i < len(all); i += 2 {
		if f, ok := all[i].(hclog.Format); ok && len(f) > 0 {
			if text, ok := f[0].(string); ok {
				all[i] = fmt.Sprintf(text, f[1:]...)
			}
		}
	}
	if lvl > slog.LevelDebug {
		line := msg
		for i := 1; i < len(all); i += 2 {
			if all[i-1] == "peer" || all[i-1] == "server-id" {
				line += fmt.Sprint(" ", all[i])
			}
		}
		if r.seen.again(line) {
			lvl = slog.LevelDebug
		}
	}
	r.log.Log(context.Background(), lvl, msg, all...)
}

// Trace implements hclog.Logger; so do the rest below.
func (r *raftLog) Trace(msg string, args ...any) { r.Log(hclog.Trace, msg, args...) }
func (r *raftLog) Debug(msg string, args ...any) { r.Log(hclog.Debug, msg, args...) }
func (r *raftLog) Info(msg string, args ...any)  { r.Log(hclog.Info, msg, args...) }
func (r *raftLog) Warn(msg string, args ...any)  { r.Log(hclog.Warn, msg, args...) }
func (r *raftLog) Error(msg string, args ...any) { r.Log(hclog.Error, msg, args...) }

func (r *raftLog) enabled(l slog.Level) bool { return r.log.Enabled(context.Background(), l) }

func (r *raftLog) IsTrace() bool { return r.enabled(slog.LevelDebug) }
func (r *raftLog) IsDebug() bool { return r.enabled(slog.LevelDebug) }
func (r *raftLog) IsInfo() bool  { return r.enabled(slog.LevelDebug) }
func (r *raftLog) IsWarn() bool  { return r.enabled(slog.LevelWarn) }
func (r *raftLog) IsError() bool { return r.enabled(slog.LevelWarn) }

func (r *raftLog) ImpliedArgs() []any { return r.args }

func (r *raftLog) With(args ...any) hclog.Logger {
	c := *r
	c.args = append(append([]any{}, r.args...), args...)
	return &c
}

func (r *raftLog) Name() string { return r.name }

func (r *raftLog) Named(name string) hclog.Logger { return r.ResetNamed(r.name + "." + name) }

func (r *raftLog) ResetNamed(name string) hclog.Logger {
	c := *r
	c.name = name
	return &c
}

func (r *raftLog) SetLevel(hclog.Level) {}

func (r *raftLog) GetLevel() hclog.Level { return hclog.Debug }

func (r *raftLog) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(r.log.Handler(), slog.LevelDebug)
}

func (r *raftLog) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return r.StandardLogger(o).Writer()
}
