package bench

import (
	"strings"
	"testing"
)

// With few open files some minions share request connections; with fewer than one each, it is said
// what is missing.
func TestFleetWithinOpenFiles(t *testing.T) {
	t.Parallel()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		n, files, keep int
		note, err      string
	}{
		{n: 3000, files: 6000 + filesReserve, keep: 3000},
		{n: 3000, files: 5999 + filesReserve, keep: 2999 - requestSlots,
			note: "2,743 of them keep a request connection, the others share 256"},
		{n: 3000, files: 3000 + requestSlots + filesReserve, keep: 0, note: "0 of them keep"},
		{n: 3000, files: 2999 + requestSlots + filesReserve,
			err: "3,000 minions want 6000 connections, and the limit of open files allows 3255: raise it (ulimit -n)"},
	} {
		f := &fleet{own: &group{front: "127.9.8.100", addrs: []string{"127.9.8.1:4506"}},
			files: tt.files, key: key, slots: make(chan struct{}, requestSlots)}
		more, err := f.more(tt.n)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%d files: %v", tt.files, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%d files: %v", tt.files, err)
			continue
		}
		f.n = tt.n
		if len(more.Minions) != tt.n || f.keep != tt.keep ||
			!strings.HasPrefix(f.note(), tt.note) || (f.note() == "") != (tt.note == "") {
			t.Errorf("%d files: %d minions, %d keep, %q", tt.files, len(more.Minions), f.keep,
				f.note())
		}
	}
}
