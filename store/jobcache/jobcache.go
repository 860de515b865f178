package jobcache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"clustermaster/store/allotment"
	"clustermaster/store/ringstore"
	"clustermaster/value"

	"github.com/cespare/xxhash/v2"
)

// Return is what one minion returned for a job. The values are packed and passed on unchanged; nil
// if the minion sent none.
type Return struct {
	Return  value.Raw
	Retcode value.Raw // a number, or a map from function to number
	Success value.Raw
	Out     string // outputter, "" if the minion named none
	FunArgs value.Raw
	Stamp   string // when it arrived, as wire.Stamp writes it
	// End is when the job ended if this is its last return, as wire.JIDTime writes times; "" stores
	// none. It is stored with the job, not with the return.
	End string
	// Own says that no publication of the job is known: the return then counts towards the limit on
	// such jobs. Own is not stored.
	Own bool
}

// Job is one published job.
type Job struct {
	JID     string
	Load    value.Map // the publish request, redacted; empty if only returns are known
	Minions []string  // union of what all sources named, sorted
	EndTime string    // as wire.JIDTime writes times; "" if none is stored
}

// Names of a job's records. Heads have their own space, so that listing jobs reads no returns.
const (
	headLoad = "load"
	headEnd  = "end"
	peerName = "peer" // the minion that ordered it; in the job's space
	noCache  = "nocache"

	// then the source, "/" and a hash of the list, because lists of one source add up too
	minionsPrefix = "m/"
	returnPrefix  = "r/" // then the minion id

	// ownPrefix, followed by a minion's id, is a head of a job without a known publication: it
	// holds the number of bytes stored of that minion's returns for it. Without an id it counts
	// what a syndic reported of the job.
	ownPrefix = "own/"
)

// ownCost is the size of such a job beside its content, in bytes: keys, and the store's overhead.
const ownCost = 1024

// ErrNoJID refuses a job without an id.
var ErrNoJID = errors.New("job without a jid")

// records is the part of the ring store that the cache uses.
type records interface {
	// Write stores records of one place and returns when they are durable on a write quorum.
	Write(ctx context.Context, place string, puts ...ringstore.Put) ([]ringstore.Result, error)
	// Get returns one record; found is false if there is none.
	Get(ctx context.Context, k ringstore.Key) (rec ringstore.Record, found bool, err error)
	// List returns the records of a place whose names begin with prefix, by name.
	List(ctx context.Context, space ringstore.Space, place,
		prefix string) ([]ringstore.Record, error)
	// Names is List without values, and without its size limit.
	Names(ctx context.Context, space ringstore.Space, place, prefix string) ([]string, error)
	// Scan calls fn with all records of a space.
	Scan(ctx context.Context, space ringstore.Space, prefix string,
		fn func(ringstore.Record) error) (ringstore.Coverage, error)
}

// Cache is the job cache of the whole cluster. It is safe for concurrent use.
type Cache struct {
	store records
	kept  *allotment.Meter // of jobs without a known publication
	keep  time.Duration    // 0: forever
	log   *slog.Logger
	now   func() time.Time
}

// New makes a cache on the ring store. keepSeconds is keep_jobs_seconds; 0 keeps forever. now is
// the ring store's clock: by a slower one, new records could have expired already. Log nil
// discards.
func New(store records, keepSeconds int, now func() time.Time, log *slog.Logger) *Cache {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Cache{
		store: store, keep: time.Duration(max(keepSeconds, 0)) * time.Second,
		log: log.With("component", "jobcache"), now: now,
	}
}

// Limit bounds what is stored of jobs without a known publication; call it before the first use.
// Beyond the limits writes fail with allotment.ErrSpent.
func (c *Cache) Limit(l allotment.Limits) { c.kept = allotment.New(l, c.count, c.now) }

// count adds up what is stored of jobs without a known publication.
func (c *Cache) count(ctx context.Context, add func(id string, bytes int64)) error {
	_, err := c.store.Scan(ctx, ringstore.SpaceJobHeads, ownPrefix, func(r ringstore.Record) error {
		if n, size := binary.Uvarint(r.Value); size > 0 {
			add(strings.TrimPrefix(r.Name, ownPrefix), int64(min(n, math.MaxInt64/2)))
		}
		return nil
	})
	return err
}

// saveOwn writes records of a job without a known publication. They count towards the limit of the
// minion id; "" is a syndic.
func (c *Cache) saveOwn(ctx context.Context, jid, id string,
	puts []ringstore.Put) ([]ringstore.Result, error) {
	bytes := int64(ownCost)
	for _, p := range puts {
		bytes += int64(len(p.Value))
	}
	done, err := c.kept.Take(ctx, id, bytes)
	if errors.Is(err, allotment.ErrSpent) {
		if published, readErr := c.published(ctx, jid); readErr == nil && published {
			return c.store.Write(ctx, jid, puts...)
		}
	}
	if err != nil {
		return nil, err
	}
	own := c.put(ringstore.SpaceJobHeads, jid, ownPrefix+id,
		binary.AppendUvarint(nil, uint64(bytes)), true)
	res, err := c.store.Write(ctx, jid, append(puts, own)...)
	done(err == nil && res[len(puts)].Stored)
	return res, err
}

// published reports whether a job has a load that does not come from its returns.
func (c *Cache) published(ctx context.Context, jid string) (bool, error) {
	heads, err := c.store.List(ctx, ringstore.SpaceJobHeads, jid, "")
	loaded := false
	for _, r := range heads {
		if strings.HasPrefix(r.Name, ownPrefix) {
			return false, err
		}
		loaded = loaded || r.Name == headLoad
	}
	return loaded, err
}

// SaveLoad stores a job: the publish request, which it redacts again, and the minions that it goes
// to. Saving the same job again replaces the load and adds to the minions.
func (c *Cache) SaveLoad(ctx context.Context, jid string, load value.Map, minions []string) error {
	if jid == "" {
		return ErrNoJID
	}
	packed, err := value.Pack(Redact(load))
	if err != nil {
		return fmt.Errorf("save job %s: %w", jid, err)
	}
	puts := []ringstore.Put{c.put(ringstore.SpaceJobHeads, jid, headLoad, packed, false)}
	if len(minions) > 0 {
		put, err := c.minions(jid, "", minions)
		if err != nil {
			return fmt.Errorf("save job %s: %w", jid, err)
		}
		puts = append(puts, put)
	}
	if _, err := c.store.Write(ctx, jid, puts...); err != nil {
		return fmt.Errorf("save job %s: %w", jid, err)
	}
	return nil
}

// SaveAccount stores what others report of a job as its load, redacted, unless it has a load. The
// reporter is the minion id whose return began it, or with "" a syndic. The error may be
// allotment.ErrSpent.
func (c *Cache) SaveAccount(ctx context.Context, jid, id string, load value.Map) error {
	if jid == "" {
		return ErrNoJID
	}
	packed, err := value.Pack(Redact(load))
	if err == nil {
		_, err = c.saveOwn(ctx, jid, id,
			[]ringstore.Put{c.put(ringstore.SpaceJobHeads, jid, headLoad, packed, true)})
	}
	if err != nil {
		return fmt.Errorf("save account of job %s: %w", jid, err)
	}
	return nil
}

// SaveMinions adds the minions that a source names for a job. source is a syndic's id; "" is the
// master that published.
func (c *Cache) SaveMinions(ctx context.Context, jid, source string, ids []string) error {
	if jid == "" {
		return ErrNoJID
	}
	if len(ids) == 0 {
		return nil
	}
	put, err := c.minions(jid, source, ids)
	if err == nil {
		_, err = c.store.Write(ctx, jid, put)
	}
	if err != nil {
		return fmt.Errorf("save minions of job %s: %w", jid, err)
	}
	return nil
}

// minions makes the record of a list. Its name depends on the list, so lists only ever add up, in
// whatever order masters write them.
func (c *Cache) minions(jid, source string, ids []string) (ringstore.Put, error) {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	packed, err := value.Pack(sorted)
	if err != nil {
		return ringstore.Put{}, err
	}
	name := fmt.Sprintf("%s%s/%016x", minionsPrefix, source, xxhash.Sum64(packed))
	return c.put(ringstore.SpaceJobs, jid, name, packed, true), nil
}

// SaveReturn stores a minion's return. Without an error, the return is on stable storage of a write
// quorum. first is false if the minion had returned before; the earlier return then stays. account
// is what the return itself tells of the job, nil if the job is known to be stored. The same write
// stores account, which stays only if there is no load, so callers need not look for a load first.
// For an Own return the error may be allotment.ErrSpent.
func (c *Cache) SaveReturn(ctx context.Context, jid, id string, r Return,
	account value.Map) (first bool, err error) {
	if jid == "" {
		return false, ErrNoJID
	}
	packed, err := packReturn(r)
	if err != nil {
		return false, fmt.Errorf("save return of %s for job %s: %w", id, jid, err)
	}
	puts := []ringstore.Put{c.put(ringstore.SpaceJobs, jid, returnPrefix+id, packed, true)}
	if account != nil {
		load, err := value.Pack(Redact(account))
		if err != nil {
			return false, fmt.Errorf("save job %s: %w", jid, err)
		}
		puts = append(puts, c.put(ringstore.SpaceJobHeads, jid, headLoad, load, true))
	}
	if r.End != "" {
		puts = append(puts, c.put(ringstore.SpaceJobHeads, jid, headEnd, []byte(r.End), false))
	}
	var res []ringstore.Result
	if r.Own {
		res, err = c.saveOwn(ctx, jid, id, puts)
	} else {
		res, err = c.store.Write(ctx, jid, puts...)
	}
	if err != nil {
		return false, fmt.Errorf("save return of %s for job %s: %w", id, jid, err)
	}
	return res[0].Stored, nil
}

// SavePeer stores the id of the minion that ordered a job.
func (c *Cache) SavePeer(ctx context.Context, jid, id string) error {
	if jid == "" {
		return ErrNoJID
	}
	if _, err := c.store.Write(ctx, jid, c.put(ringstore.SpaceJobs, jid, peerName, []byte(id),
		true)); err != nil {
		return fmt.Errorf("save peer of job %s: %w", jid, err)
	}
	return nil
}

// PeerOf returns the minion that ordered a job; found is false for jobs of operators and unknown
// jobs.
func (c *Cache) PeerOf(ctx context.Context, jid string) (id string, found bool, err error) {
	if jid == "" {
		return "", false, nil
	}
	r, found, err := c.store.Get(ctx, ringstore.Key{Space: ringstore.SpaceJobs, Place: jid,
		Name: peerName})
	if err != nil {
		return "", false, fmt.Errorf("read peer of job %s: %w", jid, err)
	}
	return string(r.Value), found, nil
}

// SaveNoCache marks a job so that no return of it is stored, for as long as the job is kept. As in
// Salt, the mark is final: publishing again under the same jid does not remove it.
func (c *Cache) SaveNoCache(ctx context.Context, jid string) error {
	if jid == "" {
		return ErrNoJID
	}
	if _, err := c.store.Write(ctx, jid, c.put(ringstore.SpaceJobs, jid, noCache, []byte{},
		true)); err != nil {
		return fmt.Errorf("save nocache of job %s: %w", jid, err)
	}
	return nil
}

// NoCache reports whether the returns of a job must not be stored. Callers of SaveReturn must check
// it: SaveReturn does not.
func (c *Cache) NoCache(ctx context.Context, jid string) (bool, error) {
	if jid == "" {
		return false, nil
	}
	_, found, err := c.store.Get(ctx, ringstore.Key{Space: ringstore.SpaceJobs, Place: jid,
		Name: noCache})
	if err != nil {
		return false, fmt.Errorf("read nocache of job %s: %w", jid, err)
	}
	return found, nil
}

// SaveEndTime stores when a job ended. Returns that are stored bring the time with them
// (Return.End); those of a nocache job and of a backup do not.
func (c *Cache) SaveEndTime(ctx context.Context, jid, end string) error {
	if jid == "" {
		return ErrNoJID
	}
	if _, err := c.store.Write(ctx, jid, c.put(ringstore.SpaceJobHeads, jid, headEnd, []byte(end),
		false)); err != nil {
		return fmt.Errorf("save end of job %s: %w", jid, err)
	}
	return nil
}

// Owner is the user who published a job.
type Owner struct {
	User string
	// the back end of external_auth that knows the user; "" for a user of the masters' machines
	Eauth string
}

// Owner returns the user who published a job; found is false for a job without a publication.
func (c *Cache) Owner(ctx context.Context, jid string) (owner Owner, found bool, err error) {
	job, found, err := c.Job(ctx, jid)
	kwargs, _ := job.Load.Get("kwargs")
	m, _ := kwargs.(value.Map)
	return Owner{User: job.Load.String("user"), Eauth: m.String("eauth")}, found, err
}

// Job returns a job. found is true if anything other than returns is stored of it; a job that is
// known only by returns has nothing else.
func (c *Cache) Job(ctx context.Context, jid string) (Job, bool, error) {
	job := Job{JID: jid}
	if jid == "" {
		return job, false, nil
	}
	heads, err := c.store.List(ctx, ringstore.SpaceJobHeads, jid, "")
	if err != nil {
		return job, false, fmt.Errorf("read job %s: %w", jid, err)
	}
	for _, r := range heads {
		c.head(&job, r)
	}
	lists, err := c.store.List(ctx, ringstore.SpaceJobs, jid, minionsPrefix)
	if err != nil {
		return job, false, fmt.Errorf("read minions of job %s: %w", jid, err)
	}
	for _, r := range lists {
		ids, err := unpackIDs(r.Value)
		if err != nil {
			c.log.Warn("minion list of a job does not decode; it is left out", "jid", jid,
				"err", err)
			continue
		}
		job.Minions = append(job.Minions, ids...)
	}
	slices.Sort(job.Minions)
	job.Minions = slices.Compact(job.Minions)
	return job, len(heads)+len(lists) > 0, nil
}

// head adds the content of one record of the heads' space.
func (c *Cache) head(job *Job, r ringstore.Record) {
	switch r.Name {
	case headLoad:
		load, err := value.UnpackMap(r.Value)
		if err != nil {
			c.log.Warn(undecodable, "jid", job.JID, "err", err)
			return
		}
		job.Load = load
	case headEnd:
		job.EndTime = string(r.Value)
	}
}

// JIDs lists the ids of all jobs, sorted. The coverage says what could not be read.
func (c *Cache) JIDs(ctx context.Context) ([]string, ringstore.Coverage, error) {
	known := map[string]struct{}{}
	cover, err := c.store.Scan(ctx, ringstore.SpaceJobHeads, "", func(r ringstore.Record) error {
		known[r.Place] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, cover, fmt.Errorf("list jobs: %w", err)
	}
	return slices.Sorted(maps.Keys(known)), cover, nil
}

// EachLoad calls fn with the load of each job, a map that is still packed, one after the other and
// in no order; it reads no return. It stops at an error of fn and returns it. The coverage says
// what could not be read.
func (c *Cache) EachLoad(ctx context.Context,
	fn func(jid string, load value.Raw) error) (ringstore.Coverage, error) {
	cover, err := c.store.Scan(ctx, ringstore.SpaceJobHeads, headLoad,
		func(r ringstore.Record) error {
			if r.Name != headLoad {
				return nil
			}
			load := value.Raw(r.Value)
			if err := load.Entries(func(_, _ value.Raw) {}); err != nil {
				c.log.Warn(undecodable, "jid", r.Place, "err", err)
				return nil
			}
			return fn(r.Place, load)
		})
	if err != nil {
		return cover, fmt.Errorf("read the loads of all jobs: %w", err)
	}
	return cover, nil
}

const undecodable = "load of a job does not decode; it is left out"
