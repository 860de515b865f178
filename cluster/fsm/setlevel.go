package fsm

import (
	"reflect"
	"strings"
	"sync"
	"time"

	"clustermaster/cluster/level"
)

// SetLevel raises the cluster's level once all members support it; the level never falls. Later
// commands may be of that level. A master that does not support it stops at this command.
type SetLevel struct {
	Level   int       `msgpack:"level"`
	Release string    `msgpack:"release"` // the first one that supports the level
	At      time.Time `msgpack:"at"`
}

// Op implements Command.
func (*SetLevel) Op() Op { return OpSetLevel }

func (c *SetLevel) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if c.Level <= max(s.level, level.Base) {
		return Result{} // a repeat
	}
	s.level, s.release = c.Level, c.Release
	return Result{Changed: true, change: Change{Level: true}}
}

// Level returns the cluster's level. Nothing above it may be written.
func (s *State) Level() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return max(s.level, level.Base)
}

// Needs returns the level that a master must support to read c; 0 if c is not in the table of
// package level.
func Needs(c Command) int {
	switch c := c.(type) {
	case nil:
		return 0
	case *Once:
		return max(level.OfCommand(uint8(OpOnce)), Needs(c.command))
	case *Audited:
		return max(level.OfCommand(uint8(OpAudited)), Needs(c.command))
	}
	of := level.OfCommand(uint8(c.Op()))
	if of == 0 {
		return 0
	}
	return max(of, needsOf(reflect.ValueOf(c)))
}

// later remembers by type whether a value of it may hold a field that is newer than its struct.
// Almost no type may.
var later sync.Map // reflect.Type to bool

// needsOf returns the highest level of the fields in v that are set and newer than their structs.
func needsOf(v reflect.Value) int {
	if !v.IsValid() || !mayNeed(v.Type()) {
		return 0
	}
	needs := 0
	switch v.Kind() {
	case reflect.Pointer:
		needs = needsOf(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			needs = max(needs, needsOf(v.Index(i)))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if of := fieldLevel(v.Type(), f); of > 0 && !v.Field(i).IsZero() {
				needs = max(needs, of)
			}
			needs = max(needs, needsOf(v.Field(i)))
		}
	}
	return needs
}

func mayNeed(t reflect.Type) bool {
	if known, ok := later.Load(t); ok {
		return known.(bool)
	}
	later.Store(t, false) // stops the recursion for a type that contains itself
	may := false
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		may = mayNeed(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			may = may || fieldLevel(t, f) > 0 || f.Tag.Get("msgpack") != "" && mayNeed(f.Type)
		}
	}
	later.Store(t, may)
	return may
}

func fieldLevel(t reflect.Type, f reflect.StructField) int {
	tag, _, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
	if tag == "" {
		return 0
	}
	return level.OfField(t.Name(), tag)
}
