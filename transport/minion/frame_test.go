package minion

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
)

// scripted is a connection that reads from memory and forgets what is written.
type scripted struct {
	io.Reader
	net.Conn
}

func (s scripted) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s scripted) Write(b []byte) (int, error)      { return len(b), nil }
func (s scripted) Close() error                     { return nil }
func (s scripted) SetDeadline(time.Time) error      { return nil }
func (s scripted) SetReadDeadline(time.Time) error  { return nil }
func (s scripted) SetWriteDeadline(time.Time) error { return nil }

func script(b []byte) *link {
	conn := scripted{Reader: bytes.NewReader(b)}
	return &link{conn: conn, r: bufio.NewReaderSize(conn, 64), minor: 1}
}

// FuzzReceive feeds the request side's frame reader: no panic, no more memory held than
// the input allows, and what is accepted equals what an encoder would have written.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x05hello"))
	f.Add([]byte("\x01\x00\x01\x01a\x00\x01b\x01\x00\x02\x00\x00\x00\x00\x00\x00\x01\x00"))
	f.Add([]byte("\x04\x0b\x04PING\x00\x00ctx4\x01\x00\x00\x00"))
	f.Add([]byte("\x01\x00\x02\x40\x00\x00\x00\x00\x00\x00\x00"))
	f.Add(append([]byte("\x01\x00"), append(appendHeader(nil, 0, 300), payloadOf(300)...)...))
	s := NewRequestServer(echo, Limits{MaxFrame: 1 << 20}, nil, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		l := script(b)
		for {
			r := newRequester(s, l)
			payload, _, err := r.receive()
			held := r.held
			r.release()
			if held > 2*int64(len(b))+firstBody {
				t.Fatalf("%d bytes of input hold %d", len(b), held)
			}
			if err != nil {
				if payload != nil && len(payload) > len(b) {
					t.Fatalf("payload of %d bytes with error %v", len(payload), err)
				}
				return
			}
			if !bytes.Contains(b, payload) {
				t.Fatalf("payload %q is not in the input", payload)
			}
		}
	})
}

// FuzzHandshake feeds the guard in front of zmq4, which must never panic.
func FuzzHandshake(f *testing.F) {
	f.Add(append(greetingBytes(1), readyFrame("REQ", "id")...))
	f.Add(append(greetingBytes(0), readyFrame("FOO", "")...))
	f.Add(append(greetingBytes(1), appendCommand(nil, cmdReady,
		append([]byte{200}, "Socket-Type"...)...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := script(b)
		minor, err := shake(l.conn, l.r, zmq4.Router, "", true, zmq4.Req, zmq4.Dealer)
		if errors.Is(err, errPanic) {
			t.Fatal(err)
		}
		if err == nil && (minor > 1 || b[0] != 0xff || !bytes.Contains(b, []byte("READY"))) {
			t.Fatalf("accepted %q", b)
		}
	})
}

// FuzzSubscription feeds the publish side's reader.
func FuzzSubscription(f *testing.F) {
	f.Add([]byte("\x04\x0a\x09SUBSCRIBE\x00\x02\x01x\x00\x02\x00x\x04\x07\x06CANCEL"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := NewPubServer(Limits{}, true, nil, nil)
		p.Publish(Publication{Topics: []string{"a", "broadcast"}, Payload: []byte("x"), JID: "1",
			Hold: time.Hour})
		s := newSubscriber(script(b), p)
		var err error
		for err == nil { // a finite input has an end
			err = s.next(t.Context())
		}
		err = s.end(err)
		if p.Subscribers() != 0 || len(s.topics) > maxTopics+1 {
			t.Fatalf("%d topics, error %v", len(s.topics), err)
		}
	})
}

func TestHeaderRoundTrip(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 255, 256, 65536, 1 << 27} {
		for _, flags := range []byte{0, flagMore} {
			b := appendHeader(nil, flags, size)
			h, err := readHeader(bufio.NewReader(bytes.NewReader(b[1:])), b[0], 1<<27)
			if err != nil || h.size != int64(size) || h.more != (flags != 0) || h.command {
				t.Errorf("size %d: %+v, %v", size, h, err)
			}
			if size > 0 {
				_, err = readHeader(bufio.NewReader(bytes.NewReader(b[1:])), b[0], int64(size)-1)
				if !errors.Is(err, ErrTooLarge) {
					t.Errorf("size %d over the limit: %v", size, err)
				}
			}
		}
	}
}

// TestCommandsAreShort: a command is refused beyond its own bound, however long frames may be.
func TestCommandsAreShort(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]error{maxCommand: nil, maxCommand + 1: ErrTooLarge} {
		b := appendHeader(nil, flagCommand, size)
		h, err := readHeader(bufio.NewReader(bytes.NewReader(b[1:])), b[0], 1<<27)
		if !errors.Is(err, want) || err == nil && !h.command {
			t.Errorf("a command of %d bytes: %+v, %v", size, h, err)
		}
	}
}

// A claim of 100 MiB with 100 KiB behind it must not cost 100 MiB.
func TestBodyGrowsAsItArrives(t *testing.T) {
	t.Parallel()
	var held, most int64
	_, err := readBody(bytes.NewReader(payloadOf(100<<10)), 100<<20, func(n int64) error {
		held += n
		most = max(most, held)
		return nil
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
	if most > 256<<10 {
		t.Errorf("held %d bytes", most)
	}
}
