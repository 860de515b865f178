package level

import (
	"fmt"
	"slices"
)

// Base is the level of the first release. A member that tells no level has this one.
const Base = 1

// releases brought the levels: the first one is of level 1. Append only.
var releases = append([]string{"0.1.0", "0.2.0"}, laterReleases...)

// Supported is the highest level that this program reads and writes.
func Supported() int { return len(releases) }

// Release is the first release that supports a level; "" if this program does not know it.
func Release(n int) string {
	if n < Base || n > len(releases) {
		return ""
	}
	return releases[n-1]
}

// TooNewError says that this program met something of a level above its own.
type TooNewError struct {
	Level   int    // of what it met; 0: unknown
	Release string // the first one that supports it; "": unknown
}

func (e *TooNewError) Error() string {
	have := fmt.Sprintf("this master runs release %s, which supports level %d",
		Release(Supported()), Supported())
	switch {
	case e.Release != "":
		return fmt.Sprintf("the cluster is at level %d, and %s; nothing was changed: install release %s or newer", e.Level, have, e.Release)
	case e.Level != 0:
		return fmt.Sprintf("written at level %d, and %s; nothing was changed: install the release of the other members", e.Level, have)
	}
	return fmt.Sprintf("written by a newer release, and %s; nothing was changed: install the release of the other members", have)
}

// Kind is what an Entry is about.
type Kind string

// The kinds.
const (
	Command Kind = "command" // replicated: Number is its op
	Record  Kind = "record"  // of snapshots: Number is its kind
	Field   Kind = "field"   // of a command or record: Name is Type.tag
	RPC     Kind = "rpc"     // between peers: Name is the full method
	Format  Kind = "format"  // on disk: Number is its version
)

// Entry is one thing that masters write.
type Entry struct {
	Kind   Kind
	Name   string
	Number int
	Since  int // level
}

// Table lists all entries, in the order of the levels.
func Table() []Entry { return slices.Clone(table) }

var (
	commands = byNumber(Command)
	records  = byNumber(Record)
	fields   = byName(Field)
	rpcs     = byName(RPC)
)

func byNumber(kind Kind) map[uint8]int {
	m := make(map[uint8]int)
	for _, e := range table {
		if e.Kind == kind {
			m[uint8(e.Number)] = e.Since
		}
	}
	return m
}

func byName(kind Kind) map[string]int {
	m := make(map[string]int)
	for _, e := range table {
		if e.Kind == kind {
			m[e.Name] = e.Since
		}
	}
	return m
}

// OfCommand is the level of a replicated command; 0 if the table has none of this number.
func OfCommand(op uint8) int { return commands[op] }

// OfRecord is the level of a record of snapshots; 0 if the table has none of this number.
func OfRecord(kind uint8) int { return records[kind] }

// OfField is the level of a field of a command or record that came later than its struct; 0 for all
// others.
func OfField(typ, tag string) int { return fields[typ+"."+tag] }

// OfRPC is the level of a method between peers, like /clustermaster.cluster.Cluster/Propose; 0 if
// the table has none of this name.
func OfRPC(method string) int { return rpcs[method] }

// FormatAt is the newest version of a format on disk that may be written at a level; 0 if there is
// none of this name.
func FormatAt(name string, at int) int {
	version := 0
	for _, e := range table {
		if e.Kind == Format && e.Name == name && e.Since <= at {
			version = max(version, e.Number)
		}
	}
	return version
}
