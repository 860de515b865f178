package ringstore

import (
	"errors"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/query"
)

// Records are defined in package disk.
type (
	Space   = disk.Space
	Key     = disk.Key
	Version = disk.Version
	Record  = disk.Record
)

// The spaces in use. The numbers are on disk: only append. Each space's package defines its
// records.
const (
	SpaceJobs Space = 1 // package jobcache: minion lists and returns of a job
	// package jobcache: one small record per job, to list jobs without their returns
	SpaceJobHeads Space = 2
	SpaceMinions  Space = 3 // package miniondata
	SpacePushed   Space = 4 // package pushed
	SpaceBanks    Space = 5 // package banks
)

// Bounds of a key, in bytes.
const (
	MaxPlace = disk.MaxPlace
	MaxName  = disk.MaxName
)

// Errors that callers can tell apart.
var (
	ErrTooLarge    = disk.ErrTooLarge
	ErrUnavailable = query.ErrUnavailable
	ErrNotReady    = query.ErrNotReady
	ErrClosed      = disk.ErrClosed
	ErrContended   = errors.New("other writers were faster every time")
	ErrCorrupt     = disk.ErrCorrupt
)

// incarnation turns a node name ("id/hex16") into the number that versions carry.
func incarnation(node string) uint64 {
	if _, tail, ok := strings.Cut(node, "/"); ok && len(tail) == 16 {
		if n, err := strconv.ParseUint(tail, 16, 64); err == nil {
			return n
		}
	}
	return xxhash.Sum64String(node)
}
