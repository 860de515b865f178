package main

import (
	"context"

	"clustermaster/serve/master"
	"clustermaster/transport/minion"
)

// requests passes a request from the socket to the master.
type requests struct{ m *master.Master }

func (h requests) Handle(ctx context.Context, r minion.Request) ([]byte, error) {
	return h.m.Handle(ctx, master.Request{Payload: r.Payload, Remote: r.Remote, Buffer: r.Buffer,
		Sender: r.Sender})
}

// subscribers passes publications to this master's publish sessions.
type subscribers struct{ *minion.PubServer }

func (s subscribers) Publish(p master.Publication) int {
	return s.PubServer.Publish(minion.Publication{Topics: p.Topics, Payload: p.Payload, JID: p.JID,
		Hold: p.Hold})
}
