// Package eventtest is the cluster of one, whose mesh is that master's bus, for tests of those who
// follow a mesh.
package eventtest

import (
	"errors"

	"google.golang.org/grpc"

	"clustermaster/serve/event"
)

// Alone is the mesh of a bus without other masters.
func Alone(bus *event.Bus) *event.Mesh { return event.NewMesh(bus, alone{}, nil) }

type alone struct{}

func (alone) Self() string      { return "m1" }
func (alone) Members() []string { return []string{"m1"} }
func (alone) Conn(string) (grpc.ClientConnInterface, error) {
	return nil, errors.New("nobody else is there")
}
