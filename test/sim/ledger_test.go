package sim

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
)

// TestLedger: two leaders of one term that write nothing but no-ops, and a second vote, are found.
func TestLedger(t *testing.T) {
	t.Parallel()
	began := time.Now()
	noop := func(term, index uint64, at time.Time) *raft.Log {
		return &raft.Log{Type: raft.LogNoop, Term: term, Index: index, AppendedAt: at}
	}
	for _, tt := range []struct {
		what string
		do   func(l *ledger)
		want string
	}{
		{"a follower stores the leader's", func(l *ledger) {
			l.wrote(noop(2, 7, began))
			l.wrote(noop(2, 7, began.UTC().Round(0)))
			l.wrote(noop(3, 8, began))
		}, ""},
		{"two leaders at one index", func(l *ledger) {
			l.wrote(noop(2, 7, began))
			l.wrote(noop(2, 7, began.Add(time.Millisecond)))
		}, "two leaders in term 2"},
		{"two leaders at two indexes", func(l *ledger) {
			l.wrote(noop(2, 7, began))
			l.wrote(noop(2, 8, began))
		}, "two leaders in term 2"},
		{"votes", func(l *ledger) { votes(t, l, "a", "a") }, ""},
		{"two votes", func(l *ledger) { votes(t, l, "a", "b") }, "two votes of m1 in term 4"},
	} {
		l := newLedger()
		tt.do(l)
		if got := strings.Join(l.faults, "; "); got != tt.want && (tt.want == "" || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s: %q", tt.what, got)
		}
	}
}

// votes lets a log keep votes for these candidates in term 4, as Raft writes them.
func votes(t *testing.T, l *ledger, candidates ...string) {
	t.Helper()
	d := newDisk(vfs.NewCrashableMem(), rng(1, "ledger"))
	r, err := openRaftLog(d, l, "m1", new(atomic.Bool))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range candidates {
		if err := r.SetUint64([]byte("LastVoteTerm"), 4); err != nil {
			t.Fatal(err)
		}
		if err := r.Set([]byte("LastVoteCand"), []byte(c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
