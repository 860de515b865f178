package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"clustermaster/config"
)

// busy is a port that the master can't open.
type busy struct {
	at  config.Listener
	err error
}

// busyPort tries the ports before anything is changed. The master binds the minion ports for good
// only once it serves.
func busyPort(ctx context.Context, o *config.Options) *busy {
	for _, l := range o.Listeners() {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", l.Addr)
		if err != nil {
			return &busy{l, err}
		}
		ln.Close()
	}
	return nil
}

// say writes the error in Salt's words, where Salt's master would meet it, and then what to do.
func (b *busy) say(w io.Writer) {
	if b.at.Minion {
		hint := ""
		if errors.Is(b.err, syscall.EADDRINUSE) {
			hint = "; Is there another salt-master running?"
		}
		fmt.Fprintf(w, "[WARNING ] Unable to bind socket %s, error: %v%s\n", b.at.Addr, b.err, hint)
	}
	fact, remedy := b.at.Fault(b.err)
	fmt.Fprintf(w, "[CRITICAL] %s; %s\n", fact, remedy)
	fmt.Fprintln(w, "The salt master is shutdown. The ports are not available to bind")
}

// noHost says at which of the ports no address of this machine is; nil for none. It opens none of
// them, so it can be asked beside a master that runs.
func noHost(ctx context.Context, o *config.Options) error {
	var errs []error
	tried := map[string]bool{}
	for _, l := range o.Listeners() {
		if tried[l.Anywhere()] {
			continue
		}
		tried[l.Anywhere()] = true
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", l.Anywhere())
		if err != nil {
			fact, remedy := l.Fault(err)
			errs = append(errs, errors.New(fact+"; "+remedy))
			continue
		}
		ln.Close()
	}
	return errors.Join(errs...)
}
