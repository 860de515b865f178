package miniondata

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"clustermaster/store/allotment"
	"clustermaster/store/ringstore"
	"clustermaster/value"
)

// Names of a minion's records; they are on disk.
const (
	grainsName = "grains"
	// then ":" and the environment, unless it is the one without a pillarenv
	pillarName   = "pillar"
	minePrefix   = "mine/"   // then the function's name as the minion gave it
	pillarPrefix = "pillar:" // of the environments
)

const (
	writeAtOnce = 256 // mine functions per write
	// the largest number of minions whose mines are read one by one; for more, one pass reads the
	// records of all minions
	readOneByOne  = 64
	readersAtOnce = 16 // of those
)

// Quotas bound the data stored of one minion; 0 means no bound.
type Quotas struct {
	MineBytes  int // of all functions, packed
	Pillarenvs int // pillars for different pillarenvs
}

// ErrNoID refuses data without a minion id.
var ErrNoID = errors.New("minion data without an id")

// records is the part of the ring store that this package uses.
type records interface {
	// Write stores records of one place and returns when they are durable on a write quorum.
	Write(ctx context.Context, place string, puts ...ringstore.Put) ([]ringstore.Result, error)
	// Delete removes records of a place by their names.
	Delete(ctx context.Context, space ringstore.Space, place string, names ...string) error
	// DeleteStored removes a record, and costs nothing if all masters agree that there is none.
	DeleteStored(ctx context.Context, k ringstore.Key) error
	// Get returns one record; found is false if there is none.
	Get(ctx context.Context, k ringstore.Key) (rec ringstore.Record, found bool, err error)
	// Names returns the names of such records, sorted.
	Names(ctx context.Context, space ringstore.Space, place, prefix string) ([]string, error)
	// List returns the records of a place whose names begin with prefix, by name.
	List(ctx context.Context, space ringstore.Space, place,
		prefix string) ([]ringstore.Record, error)
	// Scan calls fn with all records of a space whose names begin with prefix, not concurrently.
	Scan(ctx context.Context, space ringstore.Space, prefix string,
		fn func(ringstore.Record) error) (ringstore.Coverage, error)
	// Ask judges records on the masters that hold them and calls fn with each hit, not
	// concurrently.
	Ask(ctx context.Context, space ringstore.Space, question []byte, places []string,
		fn func(place string, hits []byte)) (ringstore.Coverage, error)
}

// Data is the minions' data of the whole cluster. It is safe for concurrent use.
type Data struct {
	store  records
	quotas Quotas
	log    *slog.Logger

	mu    sync.Mutex // guards mines
	mines map[string]mineSize
	// of writes that first read what a quota counts, by a hash of the id. N masters that write at
	// the same moment may exceed a quota by N-1 of them.
	turns [64]sync.Mutex
}

// mineSize is an upper bound for the mine of a minion, known without reading it: its size when it
// was last read, and the bytes written since.
type mineSize struct{ read, since int }

const (
	maxMineSizes = 1 << 17 // the most that are kept in memory
	// of the quota: after writing more than this, read the mine again, because other masters may
	// have written to it too
	mineShare = 16
)

// New makes the store of minions' data on the ring store. Log nil discards.
func New(store records, log *slog.Logger) *Data {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Data{store: store, log: log.With("component", "miniondata"),
		mines: make(map[string]mineSize)}
}

// Limit sets the quotas; call it before the first use.
func (d *Data) Limit(q Quotas) { d.quotas = q }

// turn returns the lock for writes that first read what a quota counts of a minion.
func (d *Data) turn(id string) *sync.Mutex {
	return &d.turns[xxhash.Sum64String(id)%uint64(len(d.turns))]
}

// SetGrains stores a minion's grains, a packed map.
func (d *Data) SetGrains(ctx context.Context, id string, grains value.Raw) error {
	return d.set(ctx, id, grainsName, grains)
}

// Grains returns a minion's grains; found is false if none are stored.
func (d *Data) Grains(ctx context.Context, id string) (grains value.Map, found bool, err error) {
	return d.get(ctx, id, grainsName)
}

// SetPillar stores the pillar that was last made for a minion and a pillarenv ("" for none).
func (d *Data) SetPillar(ctx context.Context, id, pillarenv string, pillar value.Map) error {
	packed, err := value.Pack(pillar)
	if err != nil {
		return fmt.Errorf("pack pillar of %q: %w", id, err)
	}
	if pillarenv != "" && d.quotas.Pillarenvs > 0 {
		turn := d.turn(id)
		turn.Lock()
		defer turn.Unlock()
		names, err := d.store.Names(ctx, ringstore.SpaceMinions, id, pillarPrefix)
		if err != nil {
			return fmt.Errorf("list pillars of %q: %w", id, err)
		}
		if len(names) >= d.quotas.Pillarenvs && !slices.Contains(names, pillarRecord(pillarenv)) {
			return fmt.Errorf("keep a pillar of %q for one more than %d pillarenvs: %w", id,
				len(names), allotment.ErrQuota)
		}
	}
	return d.set(ctx, id, pillarRecord(pillarenv), packed)
}

// Pillar returns a minion's pillar without a pillarenv; found is false if none is stored.
func (d *Data) Pillar(ctx context.Context, id string) (pillar value.Map, found bool, err error) {
	return d.get(ctx, id, pillarName)
}

// PillarOf returns a minion's pillar for a pillarenv.
func (d *Data) PillarOf(ctx context.Context, id, pillarenv string) (pillar value.Map, found bool,
	err error) {
	return d.get(ctx, id, pillarRecord(pillarenv))
}

// PillarMade returns a minion's pillar for a pillarenv ("" for none) and when it was stored.
func (d *Data) PillarMade(ctx context.Context, id, pillarenv string) (pillar value.Map,
	at time.Time, found bool, err error) {
	if id == "" {
		return nil, at, false, nil
	}
	r, found, err := d.store.Get(ctx, ringstore.Key{Space: ringstore.SpaceMinions, Place: id,
		Name: pillarRecord(pillarenv)})
	if err != nil || !found {
		return nil, at, false, err
	}
	pillar, err = value.UnpackMap(r.Value)
	if err != nil {
		return nil, at, false, fmt.Errorf("decode pillar of %q: %w", id, err)
	}
	return pillar, r.Version.Time(), true, nil
}

func pillarRecord(env string) string {
	if env == "" {
		return pillarName
	}
	return pillarPrefix + env
}

// MergeMine merges data into a minion's mine, function by function; with clear it removes the
// functions that data lacks.
func (d *Data) MergeMine(ctx context.Context, id string, data value.Map, clear bool) error {
	if id == "" {
		return ErrNoID
	}
	given := map[string]int{} // name to its place among the puts
	var puts []ringstore.Put
	for _, p := range data {
		fun, ok := p.Key.(string)
		if !ok {
			d.log.Debug("mine function with a name that is not text; it is left out", "minion", id)
			continue
		}
		packed, err := value.Pack(p.Value)
		if err != nil {
			return fmt.Errorf("pack mine of %q: %w", id, err)
		}
		name := minePrefix + fun
		if i, twice := given[name]; twice { // repeated in one map: the last counts
			puts[i].Value = packed
			continue
		}
		given[name] = len(puts)
		puts = append(puts, ringstore.Put{Space: ringstore.SpaceMinions, Name: name, Value: packed})
	}
	if d.quotas.MineBytes > 0 && (clear || !d.mineSurelyFits(id, puts)) {
		turn := d.turn(id)
		turn.Lock()
		defer turn.Unlock()
		if err := d.mineFits(ctx, id, puts, given, clear); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(puts, writeAtOnce) {
		if _, err := d.store.Write(ctx, id, some...); err != nil {
			return fmt.Errorf("save mine of %q: %w", id, err)
		}
	}
	if !clear {
		return nil
	}
	return d.remove(ctx, id, minePrefix,
		func(name string) bool { _, is := given[name]; return !is })
}

// mineFits reports whether the mine would stay within the quota.
func (d *Data) mineFits(ctx context.Context, id string, puts []ringstore.Put, given map[string]int,
	clear bool) error {
	more := 0
	for _, p := range puts {
		more += len(p.Name) + len(p.Value)
	}
	d.mu.Lock()
	before := d.mines[id].since
	d.mu.Unlock()
	total := more
	if more <= d.quotas.MineBytes && !clear {
		list, err := d.store.List(ctx, ringstore.SpaceMinions, id, minePrefix)
		if err != nil && !errors.Is(err, ringstore.ErrTooLarge) {
			return fmt.Errorf("read mine of %q: %w", id, err)
		}
		if err != nil {
			total = d.quotas.MineBytes + 1
		}
		for _, r := range list {
			if _, replaced := given[r.Name]; !replaced {
				total += len(r.Name) + len(r.Value)
			}
		}
	}
	if total > d.quotas.MineBytes {
		return fmt.Errorf("keep more than %d bytes of the mine of %q: %w", d.quotas.MineBytes, id,
			allotment.ErrQuota)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if clear { // if the store fails, the earlier functions may stay
		delete(d.mines, id)
		return nil
	}
	if len(d.mines) >= maxMineSizes {
		d.mines = make(map[string]mineSize)
	}
	d.mines[id] = mineSize{read: total, since: max(0, d.mines[id].since-before)}
	return nil
}

// mineSurelyFits reports whether puts fit, whatever they replace, and counts them. It reads nothing
// from the store.
func (d *Data) mineSurelyFits(id string, puts []ringstore.Put) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, known := d.mines[id]
	for _, p := range puts {
		m.since += len(p.Name) + len(p.Value)
	}
	if !known || m.since > d.quotas.MineBytes/mineShare || m.read+m.since > d.quotas.MineBytes {
		return false
	}
	d.mines[id] = m
	return true
}

// Mine returns a minion's mine, sorted by function; nil if it has none.
func (d *Data) Mine(ctx context.Context, id string) (value.Map, error) {
	if id == "" {
		return nil, nil
	}
	list, err := d.store.List(ctx, ringstore.SpaceMinions, id, minePrefix)
	if err != nil {
		return nil, fmt.Errorf("read mine of %q: %w", id, err)
	}
	var mine value.Map
	for _, r := range list {
		v, err := value.Unpack(r.Value)
		if err != nil {
			d.log.Warn("mine value does not decode; it is left out", "minion", id, "fun",
				mineFun(r), "err", err)
			continue
		}
		mine = append(mine, value.Pair{Key: mineFun(r), Value: v})
	}
	return mine, nil
}

// MineValues returns one function's values in the mines of these minions, still packed; it leaves
// out minions without one. Hold is called with the bytes of each, not concurrently; its error ends
// the reading.
func (d *Data) MineValues(ctx context.Context, fun string, ids []string,
	hold func(int64) error) (map[string]value.Raw, error) {
	if len(ids) > readOneByOne {
		return d.scanMines(ctx, fun, ids, hold)
	}
	out := make(map[string]value.Raw, len(ids))
	var mu sync.Mutex // guards out
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readersAtOnce)
	for _, id := range ids {
		g.Go(func() error {
			r, found, err := d.store.Get(ctx,
				ringstore.Key{Space: ringstore.SpaceMinions, Place: id, Name: minePrefix + fun})
			if err != nil {
				return fmt.Errorf("read mine of %q: %w", id, err)
			}
			if found {
				mu.Lock()
				defer mu.Unlock()
				if err := hold(int64(len(r.Value))); err != nil {
					return err
				}
				out[id] = r.Value
			}
			return nil
		})
	}
	return out, g.Wait()
}

// scanMines is MineValues in one pass over the records of all minions.
func (d *Data) scanMines(ctx context.Context, fun string, ids []string,
	hold func(int64) error) (map[string]value.Raw, error) {
	wanted := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		wanted[id] = struct{}{}
	}
	out := make(map[string]value.Raw, len(ids))
	name := minePrefix + fun
	cover, err := d.store.Scan(ctx, ringstore.SpaceMinions, name, func(r ringstore.Record) error {
		if _, is := wanted[r.Place]; !is || r.Name != name {
			return nil
		}
		if err := hold(int64(len(r.Value))); err != nil {
			return err
		}
		out[r.Place] = r.Value
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %q of %d mines: %w", fun, len(ids), err)
	}
	if !cover.Complete() { // use the live masters' records, as one-by-one reads do
		d.log.Warn("mines were read, but some masters that hold them did not answer; see salt-run cluster.ring_info",
			"fun", fun, "incomplete", cover.Incomplete, "partitions", cover.Partitions)
	}
	return out, nil
}

func mineFun(r ringstore.Record) string { return strings.TrimPrefix(r.Name, minePrefix) }

// DeleteMine removes one function from a minion's mine; an unknown function is not an error.
func (d *Data) DeleteMine(ctx context.Context, id, fun string) error {
	if id == "" {
		return ErrNoID
	}
	if err := d.store.DeleteStored(ctx, ringstore.Key{Space: ringstore.SpaceMinions, Place: id,
		Name: minePrefix + fun}); err != nil {
		return fmt.Errorf("delete %q of the mine of %q: %w", fun, id, err)
	}
	return nil
}

// FlushMine removes a minion's whole mine.
func (d *Data) FlushMine(ctx context.Context, id string) error {
	if id == "" {
		return ErrNoID
	}
	return d.remove(ctx, id, minePrefix, nil)
}

// Drop removes a minion's grains and pillar, and its mine unless keepMine.
func (d *Data) Drop(ctx context.Context, id string, keepMine bool) error {
	if id == "" {
		return ErrNoID
	}
	return d.remove(ctx, id, "", func(name string) bool {
		return !keepMine ||
			!strings.HasPrefix(name, minePrefix)
	})
}

// DropGrains removes a minion's grains.
func (d *Data) DropGrains(ctx context.Context, id string) error {
	if id == "" {
		return ErrNoID
	}
	// Delete even if this master sees no record: a master that is cut off may lack what others
	// have.
	if err := d.store.Delete(ctx, ringstore.SpaceMinions, id, grainsName); err != nil {
		return fmt.Errorf("delete grains of %q: %w", id, err)
	}
	return nil
}

// DropPillar removes a minion's pillars for all pillarenvs.
func (d *Data) DropPillar(ctx context.Context, id string) error {
	if id == "" {
		return ErrNoID
	}
	return d.remove(ctx, id, pillarName, nil)
}

// remove deletes the records of a minion whose names begin with prefix and that pick selects (nil:
// all).
func (d *Data) remove(ctx context.Context, id, prefix string, pick func(name string) bool) error {
	names, err := d.store.Names(ctx, ringstore.SpaceMinions, id, prefix)
	if err != nil {
		return fmt.Errorf("read data of %q: %w", id, err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return pick != nil && !pick(name) })
	if len(names) == 0 {
		return nil
	}
	if err := d.store.Delete(ctx, ringstore.SpaceMinions, id, names...); err != nil {
		return fmt.Errorf("delete data of %q: %w", id, err)
	}
	return nil
}

func (d *Data) set(ctx context.Context, id, name string, packed []byte) error {
	if id == "" {
		return ErrNoID
	}
	if _, err := d.store.Write(ctx, id, ringstore.Put{Space: ringstore.SpaceMinions, Name: name,
		Value: packed}); err != nil {
		return fmt.Errorf("save %s of %q: %w", name, id, err)
	}
	return nil
}

func (d *Data) get(ctx context.Context, id, name string) (value.Map, bool, error) {
	if id == "" {
		return nil, false, nil
	}
	r, found, err := d.store.Get(ctx, ringstore.Key{Space: ringstore.SpaceMinions, Place: id,
		Name: name})
	if err != nil || !found {
		return nil, false, err
	}
	m, err := value.UnpackMap(r.Value)
	if err != nil {
		return nil, false, fmt.Errorf("decode %s of %q: %w", name, id, err)
	}
	return m, true, nil
}
