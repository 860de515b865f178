package miniondata

import (
	"context"
	"sync/atomic"

	"clustermaster/salt/target"
	"clustermaster/value"
)

// World is the Source for matching targets: accepted keys, minions' data on the ring, and
// nodegroups. It is safe for concurrent use.
type World struct {
	keys   Keys
	data   *Data
	cached bool
	groups atomic.Pointer[value.Map]
}

var _ target.Source = (*World)(nil)

// Keys tells which minions are accepted.
type Keys interface {
	// AcceptedIDs returns sorted ids; callers must not change the slice.
	AcceptedIDs() []string
}

// NewWorld makes a World. cached is the option minion_data_cache, groups the option nodegroups.
func NewWorld(keys Keys, data *Data, cached bool, groups value.Map) *World {
	w := &World{keys: keys, data: data, cached: cached}
	w.SetNodegroups(groups)
	return w
}

// SetNodegroups replaces the option nodegroups.
func (w *World) SetNodegroups(groups value.Map) { w.groups.Store(&groups) }

// AcceptedIDs implements target.Source, as do the next ones.
func (w *World) AcceptedIDs() []string { return w.keys.AcceptedIDs() }

func (w *World) DataCache() bool { return w.cached }

func (w *World) Nodegroup(name string) (any, bool) { return w.groups.Load().Get(name) }

func (w *World) Ask(ctx context.Context, q target.Question,
	fn func(id string, hits target.Hits)) (string, error) {
	cover, err := w.data.Ask(ctx, q, fn)
	return cover.String(), err
}
