package peer

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"clustermaster/store/durable"
)

// lookups turns names of masters into addresses. While the name service is silent, or no longer
// knows a name, it gives the addresses that were reached last, also after a start. An address alone
// is no proof of anything: the key of the other end is checked.
type lookups struct {
	path string // file of the addresses; "": they are not kept
	log  *slog.Logger

	writes sync.Mutex // held while the file is written

	mu   sync.Mutex          // guards the rest
	last map[string][]string // by name, sorted
	told time.Time
}

const (
	// lookupPatience is how long a name service may take for a name whose addresses are known.
	lookupPatience = time.Second
	// tellLookups is the time between lines in the log about a name service that gives nothing.
	tellLookups = time.Minute
)

// keptLookups is the file. A later release may write another level, which is not read.
type keptLookups struct {
	Level int                 `json:"level"`
	Names map[string][]string `json:"names"`
}

const lookupsLevel = 1

func newLookups(path string, log *slog.Logger) *lookups {
	l := &lookups{path: path, log: log, last: map[string][]string{}}
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

// of returns the addresses of a host, which may be one itself.
func (l *lookups) of(ctx context.Context, host string) ([]string, error) {
	l.mu.Lock()
	last := l.last[host]
	l.mu.Unlock()
	look := ctx
	if len(last) > 0 {
		var cancel context.CancelFunc
		look, cancel = context.WithTimeout(ctx, lookupPatience)
		defer cancel()
	}
	found, err := net.DefaultResolver.LookupHost(look, host)
	if err == nil || len(last) == 0 || ctx.Err() != nil {
		return found, err
	}
	l.mu.Lock()
	tell := time.Since(l.told) >= tellLookups
	if tell {
		l.told = time.Now()
	}
	l.mu.Unlock()
	if tell {
		l.log.Warn("the name service gives no address of a master; its last one is used", "name", host,
			"addr", last, "err", err)
	}
	return last, nil
}

// reached notes the addresses under which a host was reached.
func (l *lookups) reached(host string, addrs []string) {
	addrs = slices.Sorted(slices.Values(addrs)) // a name service may rotate them
	l.mu.Lock()
	known := slices.Equal(l.last[host], addrs)
	l.last[host] = addrs
	l.mu.Unlock()
	if known || l.path == "" {
		return
	}
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
