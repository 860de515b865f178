package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/operator/operatorpb"
	"clustermaster/wire"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// textOrTexts unpacks a text, or a list of texts as []string.
func textOrTexts(b []byte) (any, error) {
	v, err := wire.Unpack(b)
	if err != nil {
		return nil, err
	}
	switch x := v.(type) {
	case string:
		return x, nil
	case []any:
		out := make([]string, len(x))
		for i, e := range x {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("element %d is not text", i)
			}
			out[i] = s
		}
		return out, nil
	}
	return nil, errors.New("neither text nor a list of texts")
}

func list(b []byte) ([]any, error) {
	if len(b) == 0 {
		return nil, nil
	}
	v, err := wire.Unpack(b)
	if err != nil {
		return nil, err
	}
	l, ok := v.([]any)
	if !ok {
		return nil, errors.New("not a list")
	}
	return l, nil
}

func mapping(b []byte) (wire.Map, error) {
	if len(b) == 0 {
		return nil, nil
	}
	return wire.UnpackMap(b)
}

func badValue(what string, err error) error {
	return status.Errorf(codes.InvalidArgument, "read %s: %v", what, err)
}

// asStatus carries an error's text to the command; what the operator reads is the text.
func asStatus(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

// fromStatus is the other side of asStatus.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() {
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", ErrNoMaster, st.Message())
	case codes.Canceled:
		return context.Canceled
	}
	return errors.New(st.Message())
}

func keysToPB(keys []Key) []*operatorpb.Key {
	out := make([]*operatorpb.Key, len(keys))
	for i, k := range keys {
		out[i] = &operatorpb.Key{Id: k.ID, State: k.State, Pub: k.Pub}
	}
	return out
}

func keysFromPB(keys []*operatorpb.Key) []Key {
	out := make([]Key, len(keys))
	for i, k := range keys {
		out[i] = Key{ID: k.Id, State: k.State, Pub: k.Pub}
	}
	return out
}

// slotConn gives its slot back once, however often gRPC closes it.
type slotConn struct {
	*net.UnixConn
	once sync.Once
	free func()
}

func (c *slotConn) Close() error {
	c.once.Do(c.free)
	return c.UnixConn.Close()
}

// limited lets at most cap(slots) connections be open.
type limited struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
}

func limitListener(ln net.Listener, n int) net.Listener {
	return &limited{Listener: ln, slots: make(chan struct{}, n), done: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		<-l.slots
		return nil, fmt.Errorf("accept operator: %T is not a unix socket", c)
	}
	return &slotConn{UnixConn: uc, free: func() { <-l.slots }}, nil
}

func (l *limited) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return l.Listener.Close()
}
