package query

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"
)

// Members is the cluster as a query sees it.
type Members interface {
	// Self returns this master's node name.
	Self() string
	// Alive reports whether a master can be reached now; this one always can.
	Alive(node string) bool
	// Current returns the rings to use. It waits for them if this master has none yet.
	Current(ctx context.Context) (*rings.View, error)
	// View returns the rings in use now, nil if this master has none yet.
	View() *rings.View
	// Retry calls read, and calls it again if it was refused because its ring was given up; see
	// rings.IsLeft.
	Retry(ctx context.Context, read func() error) error
}

// Peers asks other masters. Its methods return an error if the master can't be reached.
type Peers interface {
	Ask(ctx context.Context, node string,
		req *ringpb.AskRequest) (grpc.ServerStreamingClient[ringpb.Verdicts], error)
	// Scan calls fn with the records that the master sends, until its answer ends or it is silent
	// for too long.
	Scan(ctx context.Context, node string, req *ringpb.ScanRequest,
		fn func([]disk.Record) error) error
	Digest(ctx context.Context, node string,
		req *ringpb.DigestRequest) (*ringpb.DigestReply, error)
}

// Options are what queries use. All are needed.
type Options struct {
	Disk    *disk.Store
	Parts   *Parts // the disk's Watcher
	Clock   *disk.Clock
	Members Members
	Peers   Peers
	// Withheld returns why this master must not answer from its disk, or nil.
	Withheld func() error
	// Spawn runs a function in a goroutine, or returns false without running it while the store
	// closes.
	Spawn  func(func()) bool
	Closed <-chan struct{} // ends waiting
	Now    func() time.Time
	Log    *slog.Logger

	Timeout     time.Duration // of a query as a whole
	ReadTimeout time.Duration // the longest silence of an asked master
	LookAgain   time.Duration // between checks whether it is still alive
	MaxList     int           // bytes of one master's answer to a question

	// Asked is called for each answered question, with its duration and the number of partitions
	// that one owner answered and all others confirmed, that were merged, and that are uncertain.
	Asked func(took time.Duration, agreed, merged, unsure int)
	// Retried is called when a question is asked again because the ring changed.
	Retried func()
}

// Queries reads many records. It is safe for concurrent use.
type Queries struct {
	Options
}

// New returns queries; all of the options are needed.
func New(o Options) *Queries { return &Queries{Options: o} }

// messageBytes is the approximate maximum size of a message between masters.
const messageBytes = 1 << 20
