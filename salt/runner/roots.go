package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// RootsRequest holds the parameters of cluster.sync_roots.
type RootsRequest struct {
	Roots       string // file, pillar or both
	Saltenv     string // one environment only; "": all
	Force, Test bool
}

// RootsView is one tree, file_roots or pillar_roots, on all masters.
type RootsView struct {
	Tree      string
	Head      uint64 // number of the head; 0: none published
	Published bool   // by this call
	Source    string // id of the master that published the head
	At        time.Time
	Items     int   // of the source's tree, after a sync
	Bytes     int64 // of its files
	Peers     []RootsPeer
}

// RootsPeer is a tree on one master.
type RootsPeer struct {
	ID                      string
	Source                  bool // the master whose roots were published
	Away                    bool // not reachable; it catches up automatically
	Head                    uint64
	Behind                  bool // it has not yet installed the head
	Added, Changed, Deleted int
	Bytes                   int64
	Seconds                 float64
	Drifted                 int
	Drift                   []RootsDrift // the first of them
	Kept                    int          // replaced items that were saved
	KeptIn                  []string
	Changes                 []string // with Test: what would change
	Missing                 []string // roots that its configuration lacks
	Skipped                 []string // items not synced, or not in full, each with the reason
	Error                   string
}

// RootsDrift is an item that was changed on a master since its last sync.
type RootsDrift struct{ What, Item string }

// RootsProgress is the progress of one master's fetching.
type RootsProgress struct {
	Tree, Peer        string
	Bytes, BytesTotal int64
	Items, ItemsTotal int64
}

// RootsSync makes roots equal on all masters.
type RootsSync interface {
	// SyncRoots blocks until all reachable masters are done; it calls watch from several
	// goroutines. If one tree fails it returns the views of the finished trees with the error.
	SyncRoots(ctx context.Context, r RootsRequest, watch func(RootsProgress)) ([]RootsView, error)
	// RootsStatus looks for drift on all masters.
	RootsStatus(ctx context.Context, roots string) ([]RootsView, error)
	// Clustered reports whether this master is in a cluster.
	Clustered() bool
}

// Roots is the part of the family cluster about file_roots and pillar_roots.
func Roots(s RootsSync) []Function {
	return []Function{
		{
			Name: "cluster.sync_roots",
			Params: []function.Param{function.Opt("roots", "both"), function.Opt("saltenv", nil),
				function.Opt("force", false), function.Opt("test", false)},
			Doc: `Make file_roots and pillar_roots of all masters like those of this one, and wait until every
master that can be reached is done. A master that is away catches up by itself when it is back.
Files changed by hand on another master since its last sync are listed and left alone.

roots : both
    file, pillar or both.

saltenv : None
    One environment only.

force : False
    Make like here also what was changed on other masters; the replaced files are kept aside there.
    A root that is empty here, and was not before, is published only with force=True.

test : False
    Show what would be done, and change nothing.

Example:

    salt-run cluster.sync_roots
    salt-run cluster.sync_roots roots=file saltenv=prod test=True`,
			Run: func(ctx context.Context, c *Call) (any, error) { return syncRoots(ctx, c, s) },
		},
		{
			Name:   "cluster.roots_status",
			Params: []function.Param{function.Opt("roots", "both")},
			Doc: `Show for every master which head of file_roots and pillar_roots it has installed, and which
files have changed there since.

roots : both
    file, pillar or both.

Example:

    salt-run cluster.roots_status`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				if !s.Clustered() {
					return noCluster(), nil
				}
				views, err := s.RootsStatus(ctx, c.Text("roots"))
				if err != nil {
					return nil, err
				}
				c.Show(statusText(views))
				return rootsMap(views, false), nil
			},
		},
	}
}

// noCluster is Salt's answer on a master that is in no cluster.
func noCluster() value.Map {
	return value.Map{
		{Key: "status", Value: "skipped"},
		{Key: "reason", Value: "no cluster_id configured; this master is not a cluster member"},
	}
}

func syncRoots(ctx context.Context, c *Call, s RootsSync) (any, error) {
	if !s.Clustered() {
		return noCluster(), nil
	}
	req := RootsRequest{
		Roots: c.Text("roots"), Saltenv: c.Text("saltenv"), Force: c.True("force"),
		Test: c.True("test"),
	}
	bar := &rootsBar{by: make(map[string]RootsProgress)}
	type outcome struct {
		views []RootsView
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		views, err := s.SyncRoots(ctx, req, bar.set)
		done <- outcome{views, err}
	}()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if line := bar.line(); line != "" {
				c.Meter(line)
			}
		case o := <-done:
			c.Meter("")
			if o.err != nil {
				if len(o.views) > 0 { // report the trees that are done
					c.Print(syncText(o.views, req.Test))
				}
				return nil, o.err
			}
			c.Show(syncText(o.views, req.Test))
			return rootsMap(o.views, true), nil
		}
	}
}

// rootsBar puts the progress of all masters into one line.
type rootsBar struct {
	mu sync.Mutex // guards by
	by map[string]RootsProgress
}

func (b *rootsBar) set(p RootsProgress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.by[p.Tree+"\x00"+p.Peer] = p
}

const barWidth = 30

func (b *rootsBar) line() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sum RootsProgress
	busy := 0
	for _, p := range b.by {
		sum.Tree = p.Tree
		sum.Bytes += p.Bytes
		sum.BytesTotal += p.BytesTotal
		sum.Items += p.Items
		sum.ItemsTotal += p.ItemsTotal
		if p.Bytes < p.BytesTotal {
			busy++
		}
	}
	if sum.BytesTotal <= 0 {
		return ""
	}
	full := int(barWidth * min(sum.Bytes, sum.BytesTotal) / sum.BytesTotal)
	bar := make([]byte, barWidth)
	for i := range bar {
		bar[i] = '-'
		if i < full {
			bar[i] = '#'
		}
	}
	return fmt.Sprintf("[%s] %3d%%  %s of %s, %d of %d files, %d masters fetching", bar,
		100*min(sum.Bytes, sum.BytesTotal)/sum.BytesTotal,
		byteText(sum.Bytes), byteText(sum.BytesTotal), sum.Items, sum.ItemsTotal, busy)
}

// result is the word for a master's outcome.
func (p *RootsPeer) result() string {
	switch {
	case p.Away:
		return "away"
	case p.Error != "":
		return "failed"
	case p.Source:
		return "source"
	case p.Drifted > 0:
		return "drift"
	case p.Behind:
		return "behind"
	}
	return "ok"
}

// rootsMap is the result for scripts. The retcode is 1 if a reachable master has failed.
func rootsMap(views []RootsView, synced bool) value.Map {
	out, retcode := value.Map{}, int64(0)
	for _, v := range views {
		tree := value.Map{{Key: "head", Value: int64(v.Head)}}
		if synced {
			tree = append(tree, value.Map{
				{Key: "published", Value: v.Published}, {Key: "items", Value: int64(v.Items)},
				{Key: "bytes", Value: v.Bytes},
			}...)
		}
		if v.Source != "" {
			tree = append(tree, value.Pair{Key: "source", Value: v.Source},
				value.Pair{Key: "at", Value: v.At.UTC().Format(time.RFC3339)})
		}
		peers := value.Map{}
		for i := range v.Peers {
			p := &v.Peers[i]
			if p.result() == "failed" {
				retcode = 1
			}
			one := value.Map{{Key: "result", Value: p.result()},
				{Key: "head", Value: int64(p.Head)}}
			if synced {
				one = append(one, value.Map{
					{Key: "added", Value: int64(p.Added)},
					{Key: "changed", Value: int64(p.Changed)},
					{Key: "deleted", Value: int64(p.Deleted)},
					{Key: "bytes", Value: p.Bytes},
					{Key: "seconds", Value: float64(int64(p.Seconds*1000)) / 1000},
				}...)
			} else {
				one = append(one, value.Pair{Key: "behind", Value: p.Behind})
			}
			drift := []any{}
			for _, d := range p.Drift {
				drift = append(drift, value.Map{{Key: "what", Value: d.What},
					{Key: "item", Value: d.Item}})
			}
			one = append(one, value.Pair{Key: "drifted", Value: int64(p.Drifted)},
				value.Pair{Key: "drift", Value: drift})
			for _, l := range []struct {
				key  string
				list []string
			}{{"changes", p.Changes}, {"kept_in", p.KeptIn}, {"missing_roots",
				p.Missing}, {"skipped", p.Skipped}} {
				if len(l.list) > 0 {
					one = append(one, value.Pair{Key: l.key, Value: value.Texts(l.list)})
				}
			}
			if p.Error != "" {
				one = append(one, value.Pair{Key: "error", Value: p.Error})
			}
			peers = append(peers, value.Pair{Key: p.ID, Value: one})
		}
		out = append(out, value.Pair{Key: v.Tree,
			Value: append(tree, value.Pair{Key: "peers", Value: peers})})
	}
	return append(out, value.Pair{Key: "retcode", Value: retcode})
}
