package jobcache

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"clustermaster/store/allotment"
	"clustermaster/store/ringstore"
	"clustermaster/value"

	"github.com/cespare/xxhash/v2"
)

// Return is what one minion returned for a job. The values are packed and passed through untouched;
// nil if the minion sent none.
type Return struct {
	Return  value.Raw
	Retcode value.Raw // a number, or a map from function to number
	Success value.Raw
	Out     string // outputter, "" if the minion named none
	FunArgs value.Raw
	Stamp   string // when it came, as wire.Stamp writes it
	// End is when the job ended if this is its last return, as wire.JIDTime writes times; "" keeps
	// none. It is a part of the job, not of the return.
	End string
	// Own says that nobody published the job, as far as is known: then the return counts for what
	// is stored of such jobs. It is not stored.
	Own bool
}

// Job is one published job.
type Job struct {
	JID     string
	Load    value.Map // the publish request, redacted; empty if only returns are known
	Minions []string  // union of what all sources named, sorted; nil in what Jobs lists
	EndTime string    // as wire.JIDTime writes times; "" if none was kept
}

// Names of a job's records. Heads lie in a space of their own, so that listing jobs reads no
// returns.
const (
	headLoad = "load"
	headEnd  = "end"
	peerName = "peer" // the minion that ordered it, in the space of the job
	noCache  = "nocache"

	// then the source, "/" and a hash of the list: lists of one source add up too
	minionsPrefix = "m/"
	returnPrefix  = "r/" // then the minion id

	// ownPrefix, then a minion's id, is a head of a job that nobody published: how many bytes are
	// stored of what that minion returned for it. Without an id it is what a syndic told of the
	// job.
	ownPrefix = "own/"
)

// ownCost is what such a job costs beside its content, in bytes: keys, and the store's own.
const ownCost = 1024

// ErrNoJID refuses a job without an id.
var ErrNoJID = errors.New("job without a jid")

// records is what the cache needs of the ring store.
type records interface {
	// Write stores records of one place and returns when they are durable on a write quorum.
	Write(ctx context.Context, place string, puts ...ringstore.Put) ([]ringstore.Result, error)
	// Get returns one record; found is false if there is none.
	Get(ctx context.Context, k ringstore.Key) (rec ringstore.Record, found bool, err error)
	// List returns the records of a place whose names begin with prefix, by name.
	List(ctx context.Context, space ringstore.Space, place,
		prefix string) ([]ringstore.Record, error)
	// Names is List without values, and without a bound on them.
	Names(ctx context.Context, space ringstore.Space, place, prefix string) ([]string, error)
	// Scan calls fn with all records of a space.
	Scan(ctx context.Context, space ringstore.Space, prefix string,
		fn func(ringstore.Record) error) (ringstore.Coverage, error)
}

// Cache is the job cache of the whole cluster. It is safe for concurrent use.
type Cache struct {
	store records
	kept  *allotment.Meter // of jobs that nobody published
	keep  time.Duration    // 0: for ever
	log   *slog.Logger
	now   func() time.Time
}

// New makes a cache on the ring store. keepSeconds is keep_jobs_seconds; 0 keeps for ever. Log nil
// discards.
func New(store records, keepSeconds int, log *slog.Logger) *Cache {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Cache{
		store: store, keep: time.Duration(max(keepSeconds, 0)) * time.Second,
		log: log.With("component", "jobcache"), now: time.Now,
	}
}

// Limit bounds what is stored of jobs that nobody published, before the first use; what is beyond
// is refused with allotment.ErrSpent.
func (c *Cache) Limit(l allotment.Limits) { c.kept = allotment.New(l, c.count, c.now) }

// count tells what is stored of jobs that nobody published.
func (c *Cache) count(ctx context.Context, add func(id string, bytes int64)) error {
	_, err := c.store.Scan(ctx, ringstore.SpaceJobHeads, ownPrefix, func(r ringstore.Record) error {
		if n, size := binary.Uvarint(r.Value); size > 0 {
			add(strings.TrimPrefix(r.Name, ownPrefix), int64(min(n, math.MaxInt64/2)))
		}
		return nil
	})
	return err
}

// saveOwn writes records of a job that nobody published, as far as is known, on the account of a
// minion; "" is a syndic's.
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

// published reports whether a job has a load, and nobody but who ordered it gave that.
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

// SaveLoad keeps a job: the publish request, redacted again here, and the minions that it goes to.
// Saving the same job again replaces the load and adds to the minions.
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

// SaveAccount keeps what others say of a job as its load, redacted, unless it has a load: a minion
// that began it by its return, or with id "" a syndic. Error: also allotment.ErrSpent.
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

// SaveMinions adds minions that a source (a syndic's id; "" is the master that published) names for
// a job.
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

// minions makes the record of a list. Its name depends on the list, so lists are only ever added,
// in whatever order masters write them.
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

// SaveReturn keeps a minion's return. When it gives no error the return is on stable storage of a
// write quorum. First is false when the minion had returned before: then the earlier return stays.
// account is what the return itself says of the job, nil if the job is known to be kept: it goes
// along in the same write and stays only where there is no load, so that nobody need ask for one
// first. Error: for an Own return also allotment.ErrSpent.
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

// SavePeer notes the minion that ordered a job.
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

// PeerOf tells the minion that ordered a job; found is false for jobs of operators and unknown
// ones.
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

// SaveNoCache notes that no return of a job is to be kept, for as long as the job is. It is for
// good, as in Salt: who publishes under the same jid again can't take it back.
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

// NoCache reports whether the returns of a job are not to be kept. Whoever takes a return must ask:
// SaveReturn does not.
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

// SaveEndTime keeps when a job ended: returns that are kept bring it along, those of a nocache job
// and of a backup do not.
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

// Owner is who published a job.
type Owner struct {
	User string
	// the back end of external_auth that knows him; "": he is a user of the masters' machines
	Eauth string
}

// Owner tells who published a job; found is false for one that nobody did.
func (c *Cache) Owner(ctx context.Context, jid string) (owner Owner, found bool, err error) {
	job, found, err := c.Job(ctx, jid)
	kwargs, _ := job.Load.Get("kwargs")
	m, _ := kwargs.(value.Map)
	return Owner{User: job.Load.String("user"), Eauth: m.String("eauth")}, found, err
}

// Job returns a job. It is found when anything but returns is kept of it: a job that came in by
// bare returns has none.
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

// head adds what one record of the heads' space says.
func (c *Cache) head(job *Job, r ringstore.Record) {
	switch r.Name {
	case headLoad:
		load, err := value.UnpackMap(r.Value)
		if err != nil {
			c.log.Warn("load of a job does not decode; it is left out", "jid", job.JID, "err", err)
			return
		}
		job.Load = load
	case headEnd:
		job.EndTime = string(r.Value)
	}
}

// Jobs lists all jobs by jid, without minions; no return is read. What could not be asked is in the
// coverage.
func (c *Cache) Jobs(ctx context.Context) ([]Job, ringstore.Coverage, error) {
	byID := map[string]*Job{}
	cover, err := c.store.Scan(ctx, ringstore.SpaceJobHeads, "", func(r ringstore.Record) error {
		job := byID[r.Place]
		if job == nil {
			job = &Job{JID: r.Place}
			byID[r.Place] = job
		}
		c.head(job, r)
		return nil
	})
	if err != nil {
		return nil, cover, fmt.Errorf("list jobs: %w", err)
	}
	jobs := make([]Job, 0, len(byID))
	for _, job := range byID {
		jobs = append(jobs, *job)
	}
	slices.SortFunc(jobs, func(a, b Job) int { return cmp.Compare(a.JID, b.JID) })
	return jobs, cover, nil
}
