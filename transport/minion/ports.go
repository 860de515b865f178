package minion

import (
	"context"
	"net"

	"golang.org/x/sync/errgroup"
)

// Ports are the two ports that minions connect to.
type Ports struct {
	Publish, Request string // addresses
	Pub              *PubServer
	Req              *RequestServer
	Limits           Limits // of the listeners
	// Opened is called when both are open, before minions are served; its result is called when
	// both are closed.
	Opened func(publish, request net.Addr) (closed func())
}

// Serve opens both ports or none. When ctx ends it closes them and all connections of minions.
func (p Ports) Serve(ctx context.Context) error {
	pub, err := Listen(ctx, p.Publish, p.Limits)
	if err != nil {
		return err
	}
	req, err := Listen(ctx, p.Request, p.Limits)
	if err != nil {
		pub.Close()
		return err
	}
	defer p.Opened(pub.Addr(), req.Addr())()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.Pub.Serve(ctx, pub) })
	g.Go(func() error { return p.Req.Serve(ctx, req) })
	return g.Wait()
}
