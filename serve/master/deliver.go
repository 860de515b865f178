package master

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/serve/master/masterpb"
)

// maxHold bounds how long this master holds a publication for a peer.
const maxHold = time.Minute

// RegisterRPC registers the service by which other masters publish through this one. The server
// must accept messages of up to 128 MiB.
func (m *Master) RegisterRPC(r grpc.ServiceRegistrar) {
	masterpb.RegisterPublisherServer(r, &publisherServer{m: m})
}

type publisherServer struct {
	masterpb.UnimplementedPublisherServer
	m *Master
}

// Deliver refuses publications sealed with an older AES key, and waits for a newer key: minions
// that sign in to this master must be able to read what it sends them.
func (s *publisherServer) Deliver(ctx context.Context,
	r *masterpb.DeliverRequest) (*masterpb.DeliverReply, error) {
	if !validJID(r.Jid) || len(r.Payload) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no jid or no payload")
	}
	traced := s.m.deps.Traces.Deliver(r.Jid)
	s.m.known.add(r.Jid, knownJob{nocache: r.Nocache}) // its load is stored before it is sent
	secrets := s.m.deps.Cluster.Secrets()
	if len(secrets.AES) == 0 || secrets.AES[0].Epoch < r.AesEpoch {
		if err := s.m.waitEpoch(ctx, r.AesEpoch, time.Now().Add(epochTimeout)); err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		secrets = s.m.deps.Cluster.Secrets()
	}
	reply := &masterpb.DeliverReply{AesEpoch: secrets.AES[0].Epoch,
		LossAgeMs: ages(s.m.deps.Subscribers.Losses())}
	if r.AesEpoch < reply.AesEpoch {
		reply.Stale = true
		traced.End(0, true)
		return reply, nil
	}
	n := s.m.deps.Subscribers.Publish(Publication{
		Topics: r.Topics, Payload: r.Payload, JID: r.Jid,
		Hold: min(time.Duration(r.HoldMs)*time.Millisecond, maxHold),
	})
	traced.End(n, false)
	reply.Subscribers = uint32(n)
	return reply, nil
}

func (s *publisherServer) Release(_ context.Context,
	r *masterpb.ReleaseRequest) (*masterpb.ReleaseReply, error) {
	s.m.deps.Subscribers.Release(r.Jid)
	return &masterpb.ReleaseReply{}, nil
}

func (s *publisherServer) Losses(context.Context, *masterpb.LossesRequest) (*masterpb.LossesReply,
	error) {
	return &masterpb.LossesReply{AgeMs: ages(s.m.deps.Subscribers.Losses())}, nil
}

func ages(times []time.Time) []int64 {
	out := make([]int64, len(times))
	for i, t := range times {
		out[i] = time.Since(t).Milliseconds()
	}
	return out
}
