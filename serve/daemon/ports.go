package daemon

import (
	"context"
	"net"

	"clustermaster/config"
)

type busy struct {
	addr string
	err  error
}

// busyPort tries the ports before anything is changed. The master binds the minion ports for good
// only once it serves.
func busyPort(ctx context.Context, o *config.Options) *busy {
	addrs := []string{o.ListenAddr(o.PublishPort), o.ListenAddr(o.RetPort), o.ResolveHealthListen(),
		o.ResolveMetricsListen()}
	if o.ClusterID != "" {
		addrs = append(addrs, o.ListenAddr(o.ClusterPoolPort))
	}
	for _, a := range addrs {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", a)
		if err != nil {
			return &busy{a, err}
		}
		ln.Close()
	}
	return nil
}
