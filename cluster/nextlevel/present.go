//go:build !future

package nextlevel

import (
	"google.golang.org/grpc"

	"clustermaster/cluster"
	"clustermaster/salt/runner"
	"clustermaster/transport/peer"
)

// What the next level may add stands in future.go; here it is nothing.

// Functions are the runner functions of the next level.
func Functions(*cluster.Node, *peer.Port) []runner.Function { return nil }

// Register adds the methods between masters of the next level.
func Register(grpc.ServiceRegistrar) {}

// Tune changes what tests of the next level need.
func Tune(*cluster.Config) {}
