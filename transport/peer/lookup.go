package peer

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"os"
	"sync"
	"time"

	"clustermaster/store/durable"
)

// lookups knows the addresses at which masters were reached by name. While the name service is
// silent, or knows a name no more, these are used, also after a start. An address proves nothing:
// the key of the other end is checked.
type lookups struct {
	path string // file of the addresses; "": they are not kept
	log  *slog.Logger

	writes sync.Mutex // held while the file is written

	mu   sync.Mutex        // guards the rest
	last map[string]string // by name
	told time.Time
}

const (
	// lookupPatience is how long a name service may take for a name whose address is known.
	lookupPatience = time.Second
	// tellLookups is the time between lines in the log about a name service that gives nothing.
	tellLookups = time.Minute
)

// keptLookups is the file. A later release may write another level, which is not read.
type keptLookups struct {
	Level int               `json:"level"`
	Names map[string]string `json:"names"`
}

const lookupsLevel = 1

func newLookups(path string, log *slog.Logger) *lookups {
	l := &lookups{path: path, log: log, last: map[string]string{}}
	if path == "" {
		return l
	}
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return l
	}
	var kept keptLookups
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}
	if err != nil {
		log.Warn("the last addresses of other masters can't be read; only the name service gives them", "path", path, "err", err)
		return l
	}
	if kept.Level == lookupsLevel && kept.Names != nil {
		l.last = kept.Names
	}
	return l
}

// instead returns the last address of a name, if the name service gives none now, else "".
func (l *lookups) instead(ctx context.Context, name string) string {
	l.mu.Lock()
	last := l.last[name]
	l.mu.Unlock()
	if last == "" {
		return ""
	}
	look, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	_, err := net.DefaultResolver.LookupHost(look, name)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	l.mu.Lock()
	tell := time.Since(l.told) >= tellLookups
	if tell {
		l.told = time.Now()
	}
	l.mu.Unlock()
	if tell {
		l.log.Warn("the name service gives no address of a master; its last one is used", "name", name,
			"addr", last, "err", err)
	}
	return last
}

// reached notes the address at which a name was reached.
func (l *lookups) reached(name string, at net.Addr) {
	addr, _, err := net.SplitHostPort(at.String())
	if err != nil {
		return
	}
	l.mu.Lock()
	known := l.last[name] == addr
	l.last[name] = addr
	l.mu.Unlock()
	if !known && l.path != "" {
		l.keep()
	}
}

func (l *lookups) keep() {
	l.writes.Lock()
	defer l.writes.Unlock()
	l.mu.Lock()
	kept := keptLookups{lookupsLevel, maps.Clone(l.last)}
	l.mu.Unlock()
	b, err := json.Marshal(kept)
	if err == nil {
		err = durable.WriteFile(l.path, b)
	}
	if err != nil {
		l.log.Warn("the addresses of other masters can't be kept; after a start only the name service gives them", "path", l.path, "err", err)
	}
}
