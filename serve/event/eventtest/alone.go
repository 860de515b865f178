// Package eventtest makes the mesh of a lone master, which is its bus, for tests of subscribers.
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
