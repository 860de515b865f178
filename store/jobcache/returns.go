package jobcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"clustermaster/store/memory"
	"clustermaster/store/ringstore"
)

// Bounds of reading part of a job's returns.
const (
	// pointReads is the largest number of minions whose returns are read without first listing the
	// names of the stored returns.
	pointReads = 16
	// readAhead is how many returns are read at a time, and therefore the most that are in memory.
	readAhead = 4
)

// ReadReturns calls fn with the returns of some minions for a job, one after the other, sorted by
// id; it leaves out minions that have not returned. It reads only the wanted returns of a job, a
// few at a time, and no faster than fn takes them. It stops at an error of fn and returns it.
func (c *Cache) ReadReturns(ctx context.Context, jid string, ids []string,
	fn func(id string, r Return) error) error {
	if jid == "" {
		return nil
	}
	wanted := slices.Clone(ids)
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	if len(wanted) > pointReads {
		kept, err := c.Returned(ctx, jid)
		if err != nil {
			return err
		}
		wanted = slices.DeleteFunc(wanted,
			func(id string) bool { _, found := slices.BinarySearch(kept, id); return !found })
	}
	for some := range slices.Chunk(wanted, readAhead) {
		var records [readAhead]ringstore.Record
		var found [readAhead]bool
		reads, readCtx := errgroup.WithContext(ctx)
		for i, id := range some {
			reads.Go(func() (err error) {
				records[i], found[i], err = c.store.Get(readCtx,
					ringstore.Key{Space: ringstore.SpaceJobs, Place: jid, Name: returnPrefix + id})
				return err
			})
		}
		if err := reads.Wait(); err != nil {
			return fmt.Errorf("read returns of job %s: %w", jid, err)
		}
		for i, id := range some {
			if !found[i] {
				continue
			}
			r, ok := c.unpack(jid, id, records[i])
			if !ok {
				continue
			}
			if err := fn(id, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// EachReturn calls fn with what minions returned for a job, one after the other, in no order; with
// nothing for an unknown job. Of a large job only a few returns are in memory at a time. It stops
// at an error of fn and returns it.
func (c *Cache) EachReturn(ctx context.Context, jid string,
	fn func(id string, r Return) error) error {
	if jid == "" {
		return nil
	}
	list, err := c.store.List(ctx, ringstore.SpaceJobs, jid, returnPrefix)
	if errors.Is(err, ringstore.ErrTooLarge) {
		ids, err := c.Returned(ctx, jid)
		if err != nil {
			return err
		}
		return c.ReadReturns(ctx, jid, ids, fn)
	}
	if err != nil {
		return fmt.Errorf("read returns of job %s: %w", jid, err)
	}
	for _, r := range list {
		id := strings.TrimPrefix(r.Name, returnPrefix)
		if ret, ok := c.unpack(jid, id, r); ok {
			if err := fn(id, ret); err != nil {
				return err
			}
		}
	}
	return nil
}

// Returns returns what minions returned for a job, by minion id; an empty map for an unknown job.
// The error of one that is too large is a *memory.AnswerError.
func (c *Cache) Returns(ctx context.Context, jid string) (map[string]Return, error) {
	out := map[string]Return{}
	var held memory.Answer
	err := c.EachReturn(ctx, jid, func(id string, r Return) error {
		if err := held.Hold(r.decoded()); err != nil {
			return fmt.Errorf("the minions returned for job %s %w", jid, err)
		}
		out[id] = r
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Size is how many bytes a return has.
func (r Return) Size() int64 {
	return int64(len(r.Return) + len(r.FunArgs) + len(r.Retcode) + len(r.Success))
}

// decoded is what a return counts once its values are decoded.
func (r Return) decoded() int64 {
	return memory.Size(r.Return) + memory.Size(r.Retcode) + memory.Size(r.Success) +
		int64(len(r.FunArgs))
}

// unpack decodes a stored return.
func (c *Cache) unpack(jid, id string, r ringstore.Record) (Return, bool) {
	ret, err := unpackReturn(r.Value)
	if err != nil {
		c.log.Warn("return does not decode; it is left out", "jid", jid, "minion", id, "err", err)
		return Return{}, false
	}
	return ret, true
}

// Returned lists the minions whose returns are stored, sorted. It reads no return.
func (c *Cache) Returned(ctx context.Context, jid string) ([]string, error) {
	if jid == "" {
		return nil, nil
	}
	ids, err := c.store.Names(ctx, ringstore.SpaceJobs, jid, returnPrefix)
	if err != nil {
		return nil, fmt.Errorf("list who returned for job %s: %w", jid, err)
	}
	for i, name := range ids {
		ids[i] = strings.TrimPrefix(name, returnPrefix)
	}
	return ids, nil
}
