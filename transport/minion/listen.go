package minion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// A port that was just closed may still be in use: a process that this one starts holds it from its
// fork to its exec. So Listen tries a port in use again, after listenPause, for listenTries.
const (
	listenPause = 20 * time.Millisecond
	listenTries = 50
)

// Listen opens a TCP listener on addr ("host:port") whose accept queue has the length
// Limits.Backlog; the kernel caps it at net.core.somaxconn. If the port stays in use for a second
// it returns an error.
func Listen(ctx context.Context, addr string, lim Limits) (net.Listener, error) {
	lim = lim.withDefaults()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	for try := 0; try < listenTries && errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil; try++ {
		time.Sleep(listenPause)
		ln, err = new(net.ListenConfig).Listen(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	// Go has no option for the backlog; listen(2) on a listening socket sets it anew.
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err == nil {
		var errSet error
		err = raw.Control(func(fd uintptr) { errSet = syscall.Listen(int(fd), lim.Backlog) })
		if err == nil {
			err = errSet
		}
	}
	if err != nil {
		ln.Close()
		return nil, fmt.Errorf("set backlog of %s: %w", addr, err)
	}
	return ln, nil
}
