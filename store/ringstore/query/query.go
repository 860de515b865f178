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

// Members is what a query needs to know of the cluster.
type Members interface {
	// Self returns this master's node name.
	Self() string
	// Alive reports whether a master can be reached now; this one always can.
	Alive(node string) bool
	// Current returns the rings to act on, and waits for them where this master knows none yet.
	Current(ctx context.Context) (*rings.View, error)
	// View returns the rings in play now, nil while this master knows none.
	View() *rings.View
	// Retry calls read, and again when it was refused by a ring that was given up; see
	// rings.IsLeft.
	Retry(ctx context.Context, read func() error) error
}

// Peers asks other masters. Its methods return an error if the master can't be reached.
type Peers interface {
	Ask(ctx context.Context, node string,
		req *ringpb.AskRequest) (grpc.ServerStreamingClient[ringpb.Verdicts], error)
	// Scan calls fn with the records that the master sends, until its answer ends or it says
	// nothing for too long.
	Scan(ctx context.Context, node string, req *ringpb.ScanRequest,
		fn func([]disk.Record) error) error
	Digest(ctx context.Context, node string,
		req *ringpb.DigestRequest) (*ringpb.DigestReply, error)
}

// Options are what queries work with. All are needed.
type Options struct {
	Disk    *disk.Store
	Parts   *Parts // the disk's Watcher
	Clock   *disk.Clock
	Members Members
	Peers   Peers
	// Withheld says why nothing may be answered by what is on this disk, or nil.
	Withheld func() error
	// Spawn runs a function beside, or reports false, and does not, while the store closes.
	Spawn  func(func()) bool
	Closed <-chan struct{} // ends waiting
	Now    func() time.Time
	Log    *slog.Logger

	Timeout     time.Duration // of a query as a whole
	ReadTimeout time.Duration // the longest silence of a master that was asked
	LookAgain   time.Duration // between looks whether it is still alive
	MaxList     int           // bytes of one master's answer to a question

	// Asked is told of each question answered: the time that it took, and how many partitions were
	// answered for by one owner that all others agree with, by merging, and without being sure.
	Asked func(took time.Duration, agreed, merged, unsure int)
	// Retried is told when a question is put anew because the ring changed.
	Retried func()
}

// Queries reads many records. It is safe for concurrent use.
type Queries struct {
	Options
}

// New returns queries; all of the options are needed.
func New(o Options) *Queries { return &Queries{Options: o} }

// messageBytes is about how large a message between masters gets.
const messageBytes = 1 << 20
