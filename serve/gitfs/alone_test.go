package gitfs

import (
	"context"
	"maps"
	"sync"
	"time"
)

// alone is the agreement of one master with itself, by the rules of package fsm.
type alone struct {
	mu     sync.Mutex // guards tables
	tables map[string]Table
}

func newAlone() *alone { return &alone{tables: make(map[string]Table)} }

func (a *alone) Tables() map[string]Table {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tables)
}

func (a *alone) change(key string, fn func(*Table) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tables[key]
	t.Refs, t.Pins = maps.Clone(t.Refs), maps.Clone(t.Pins)
	err := fn(&t)
	if err == nil {
		a.tables[key] = t
	}
	return err
}

func (a *alone) Publish(_ context.Context, key string, seq uint64, put Refs, drop []string) error {
	return a.change(key, func(t *Table) error {
		if seq != t.Seq+1 {
			return ErrStale
		}
		if t.Refs == nil {
			t.Refs = make(Refs)
		}
		before := make(map[string][]string)
		maps.Copy(before, t.Before)
		for name, id := range put {
			if was := t.Refs[name]; was != "" {
				before[name] = append([]string{was}, before[name]...)
			}
			t.Refs[name] = id
		}
		for _, name := range drop {
			delete(t.Refs, name)
		}
		t.Seq, t.Before, t.At = seq, before, time.Now()
		return nil
	})
}

func (a *alone) Pin(_ context.Context, key, env, commit, by string) error {
	return a.change(key, func(t *Table) error {
		if t.Pins == nil {
			t.Pins = make(map[string]Pin)
		}
		if commit == "" {
			delete(t.Pins, env)
		} else {
			t.Pins[env] = Pin{commit, by, time.Now()}
		}
		return nil
	})
}

func (a *alone) Lock(_ context.Context, key string, on bool) error {
	return a.change(key, func(t *Table) error { t.Locked = on; return nil })
}

func (*alone) Leading() bool                 { return true }
func (*alone) Leader() (string, bool)        { return "", true }
func (*alone) Refresh(context.Context) error { return nil }
