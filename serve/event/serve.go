package event

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/serve/event/eventpb"
)

// Bounds on the requests of one peer.
const (
	maxPrefixes     = 4096
	maxPrefixLength = 4096
)

// RegisterRPC registers the service that other masters' meshes call.
func (m *Mesh) RegisterRPC(r grpc.ServiceRegistrar) {
	eventpb.RegisterMeshServer(r, &meshServer{bus: m.bus})
}

// meshServer is separate from Mesh so that the generated methods are not part of its API.
type meshServer struct {
	eventpb.UnimplementedMeshServer
	bus *Bus
}

// interests are the prefixes that one peer requested.
type interests struct {
	mu       sync.RWMutex
	prefixes []string
}

func (i *interests) wants(tag string) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, prefix := range i.prefixes {
		if strings.HasPrefix(tag, prefix) {
			return true
		}
	}
	return false
}

func (i *interests) change(add, remove []string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, prefix := range add {
		if len(prefix) > maxPrefixLength {
			return status.Error(codes.InvalidArgument, "prefix too long")
		}
		if !slices.Contains(i.prefixes, prefix) {
			i.prefixes = append(i.prefixes, prefix)
		}
	}
	i.prefixes = slices.DeleteFunc(i.prefixes,
		func(p string) bool { return slices.Contains(remove, p) })
	if len(i.prefixes) > maxPrefixes {
		return status.Error(codes.ResourceExhausted, "too many prefixes")
	}
	return nil
}

// Attach serves one peer. Its queue is like that of any subscriber: bounded, and it drops the
// oldest first.
func (s *meshServer) Attach(stream eventpb.Mesh_AttachServer) error {
	asked := &interests{}
	sub := newSubscription(s.bus.metrics, asked.wants)
	s.bus.attach(sub)
	defer sub.Close()

	confirm := make(chan uint64)
	ended := make(chan error, 1)
	go func() {
		for {
			change, err := stream.Recv()
			if err == nil {
				err = asked.change(change.Add, change.Remove)
			}
			if err != nil {
				ended <- err
				return
			}
			select {
			case confirm <- change.Seq:
			case <-stream.Context().Done():
				ended <- stream.Context().Err()
				return
			}
		}
	}()
	for {
		var item *eventpb.Item
		select {
		case seq := <-confirm:
			item = &eventpb.Item{Confirmed: seq}
		case e := <-sub.C:
			item = &eventpb.Item{Tag: e.Tag, Data: e.Data, Dropped: sub.Dropped()}
		case err := <-ended:
			return err
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		if err := stream.Send(item); err != nil {
			return err
		}
	}
}
