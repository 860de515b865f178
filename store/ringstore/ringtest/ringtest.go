// Package ringtest opens ring stores for the tests of other packages.
package ringtest

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"clustermaster/hashring"
	"clustermaster/store/ringstore"
)

// alone is a cluster of one master.
type alone struct{ ring *hashring.Ring }

func (a alone) Self() string         { return "m1/a" }
func (a alone) Ring() *hashring.Ring { return a.ring }
func (a alone) Conn(node string) (grpc.ClientConnInterface, error) {
	return nil, fmt.Errorf("no way to %s", node)
}
func (a alone) Alive(string) bool     { return false }
func (a alone) Members() []string     { return []string{"m1/a"} }
func (a alone) QuorumNeedsSelf() bool { return true }
func (a alone) Disowned() bool        { return false }

// Alone opens the store of a cluster with only one master, in a temporary folder; the end of the
// test closes it.
func Alone(t testing.TB, opts ringstore.Options) *ringstore.Store {
	t.Helper()
	store, err := ringstore.Open(t.TempDir(), alone{hashring.New([]string{"m1/a"}, 256, 3, 1)},
		opts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
