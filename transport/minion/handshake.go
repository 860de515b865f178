package minion

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

const greetingSize = 64

var errPanic = errors.New("the hand-shake panicked")

// guard protects zmq4 from a stranger during the hand-shake. zmq4 sees only a greeting and one
// READY command that guard has checked, because zmq4 v0.17 allocates the length that a frame
// claims, indexes past the end of truncated metadata, and panics on a socket type that it doesn't
// know (DESIGN.md, "What zmq4 does here").
type guard struct {
	net.Conn               // writes go straight through, except for the version
	r        *bufio.Reader // what the peer sent, after a PROXY header
	peers    []zmq4.SocketType
	greeted  bool          // our greeting is written
	checked  *bytes.Reader // bytes that zmq4 may read
	read     int           // steps done: greeting, READY
	minor    byte          // minor version of the peer's greeting
}

// shake makes the ZMTP hand-shake as the socket type own with a peer of one of the
// types peers. The caller has set a deadline on conn. It returns the minor version
// that both ends speak: 0, or 1 with PING and SUBSCRIBE commands.
func shake(conn net.Conn, r *bufio.Reader, own zmq4.SocketType, identity string, server bool,
	peers ...zmq4.SocketType) (minor byte, err error) {
	// Bytes that make zmq4 panic cost only their sender's connection.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v: %w", errPanic, p, ErrGarbage)
		}
	}()
	g := &guard{Conn: conn, r: r, peers: peers, checked: bytes.NewReader(nil)}
	if _, err := zmq4.Open(g, null.Security(), own, zmq4.SocketIdentity(identity), server,
		nil); err != nil {
		return 0, err
	}
	return min(g.minor, 1), nil
}

// Write raises the version of the greeting from zmq4's 3.0 to this package's 3.1.
func (g *guard) Write(b []byte) (int, error) {
	if !g.greeted && len(b) == greetingSize {
		g.greeted = true
		raised := bytes.Clone(b)
		raised[11] = 1
		return g.Conn.Write(raised)
	}
	return g.Conn.Write(b)
}

func (g *guard) Read(b []byte) (int, error) {
	if g.checked.Len() == 0 {
		var next []byte
		var err error
		switch g.read {
		case 0:
			next, err = g.greeting()
		case 1:
			next, err = g.ready()
		default:
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		g.read++
		g.checked.Reset(next)
	}
	return g.checked.Read(b)
}

// greeting reads the peer's greeting, and stops at the first byte that can't be one.
func (g *guard) greeting() ([]byte, error) {
	first, err := g.r.ReadByte()
	if err != nil {
		return nil, err
	}
	if first != 0xff {
		return nil, fmt.Errorf("greeting starts with %#02x: %w", first, ErrGarbage)
	}
	b := make([]byte, greetingSize)
	b[0] = first
	if _, err := io.ReadFull(g.r, b[1:12]); err != nil {
		return nil, err
	}
	if b[9] != 0x7f || b[10] != 3 {
		return nil, fmt.Errorf("greeting of version %d.%d: %w", b[10], b[11], ErrGarbage)
	}
	if _, err := io.ReadFull(g.r, b[12:]); err != nil {
		return nil, err
	}
	if mechanism := strings.TrimRight(string(b[12:32]), "\x00"); mechanism != "NULL" {
		return nil, fmt.Errorf("mechanism %q: %w", mechanism, ErrGarbage)
	}
	g.minor = b[11]
	return b, nil
}

// ready reads the first frame and passes it on if it is a READY command with complete metadata and
// a socket type that this endpoint serves.
func (g *guard) ready() ([]byte, error) {
	flags, err := g.r.ReadByte()
	if err != nil {
		return nil, err
	}
	h, err := readHeader(g.r, flags, maxCommand)
	if err != nil {
		return nil, err
	}
	if !h.command {
		return nil, fmt.Errorf("message before READY: %w", ErrGarbage)
	}
	body := make([]byte, h.size)
	if _, err := io.ReadFull(g.r, body); err != nil {
		return nil, err
	}
	name, data, err := splitCommand(body)
	if err != nil {
		return nil, err
	}
	if name != cmdReady {
		return nil, fmt.Errorf("command %q before READY: %w", name, ErrGarbage)
	}
	properties, err := splitMetadata(data)
	if err != nil {
		return nil, err
	}
	claimed, ok := properties["socket-type"]
	for _, p := range g.peers {
		if ok && claimed == string(p) {
			return readyOf(claimed, properties["identity"]), nil
		}
	}
	return nil, fmt.Errorf("socket type %q: %w", claimed, ErrUnexpected)
}

// readyOf makes a READY command with only what zmq4 needs. Names of properties have no case, but
// zmq4 accepts only one spelling and panics if the socket type is missing.
func readyOf(socketType, identity string) []byte {
	return appendCommand(nil, cmdReady, append(appendProperty(nil, "Socket-Type", socketType),
		appendProperty(nil, "Identity", identity)...)...)
}

func appendProperty(dst []byte, name, v string) []byte {
	dst = append(append(dst, byte(len(name))), name...)
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(v))), v...)
}

// splitMetadata cuts the metadata of READY into properties, names in lower case.
func splitMetadata(b []byte) (map[string]string, error) {
	properties := make(map[string]string, 2)
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || len(b) < 1+n+4 {
			return nil, fmt.Errorf("metadata name: %w", ErrGarbage)
		}
		name := strings.ToLower(string(b[1 : 1+n]))
		size := binary.BigEndian.Uint32(b[1+n:])
		b = b[1+n+4:]
		if uint64(size) > uint64(len(b)) {
			return nil, fmt.Errorf("metadata value: %w", ErrGarbage)
		}
		if _, twice := properties[name]; twice {
			return nil, fmt.Errorf("metadata %q twice: %w", name, ErrGarbage)
		}
		properties[name] = string(b[:size])
		b = b[size:]
	}
	return properties, nil
}
