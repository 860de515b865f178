package minion

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Errors of the frame reader. Each costs the peer its connection.
var (
	// ErrGarbage: the bytes are not ZMTP 3 with the NULL mechanism.
	ErrGarbage = errors.New("not ZMTP 3")
	// ErrTooLarge: a claimed length, or the sum of a message, exceeds the limit.
	ErrTooLarge = errors.New("over the frame limit")
	// ErrMemory: running requests already hold Limits.MaxInFlight, or those of strangers
	// Limits.MaxStrangers.
	ErrMemory = errors.New("requests in flight hold too much memory")
	// ErrUnexpected: well-formed, but not accepted by this endpoint.
	ErrUnexpected = errors.New("unexpected message")
)

// Frame flags of ZMTP 3 (rfc.zeromq.org/spec/37).
const (
	flagMore    = 0x01
	flagLong    = 0x02
	flagCommand = 0x04
)

// header is a frame header after all checks that don't need the body.
type header struct {
	more, command bool
	size          int64
}

// readHeader reads the rest of a header after its first byte. For a frame larger than limit it
// returns ErrTooLarge, before it allocates memory.
func readHeader(r *bufio.Reader, flags byte, limit int64) (header, error) {
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 &&
		flags&flagMore != 0 {
		return header{}, fmt.Errorf("frame flags %#02x: %w", flags, ErrGarbage)
	}
	h := header{more: flags&flagMore != 0, command: flags&flagCommand != 0}
	var size uint64
	if flags&flagLong != 0 {
		b, err := r.Peek(8)
		if err != nil {
			if len(b) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return header{}, err
		}
		size = binary.BigEndian.Uint64(b)
		if _, err := r.Discard(8); err != nil {
			return header{}, err
		}
	} else {
		b, err := r.ReadByte()
		if err != nil {
			return header{}, err
		}
		size = uint64(b)
	}
	if h.command && limit > maxCommand {
		limit = maxCommand
	}
	if limit < 0 || size > uint64(limit) {
		return header{}, fmt.Errorf("frame of %d bytes: %w", size, ErrTooLarge)
	}
	h.size = int64(size)
	return h, nil
}

// readBody reads size bytes. Up to firstBody it allocates at once; beyond that it doubles the
// buffer as bytes arrive, so a peer's claim costs at most twice the bytes that the peer has sent.
// hold may refuse each growth.
func readBody(r io.Reader, size int64, hold func(int64) error) ([]byte, error) {
	b := make([]byte, min(size, firstBody))
	for have, held := int64(0), int64(0); ; {
		n, err := io.ReadFull(r, b[have:])
		have += int64(n)
		if err != nil {
			return nil, err
		}
		if have == size {
			return b, nil
		}
		grown := min(2*have, size)
		if err := hold(grown - held); err != nil {
			return nil, err
		}
		held = grown
		next := make([]byte, grown)
		copy(next, b)
		b = next
	}
}

// appendHeader appends the header of a frame of size bytes.
func appendHeader(dst []byte, flags byte, size int) []byte {
	if size > 255 {
		dst = append(dst, flags|flagLong)
		return binary.BigEndian.AppendUint64(dst, uint64(size))
	}
	return append(dst, flags, byte(size))
}

// appendCommand appends a whole command frame.
func appendCommand(dst []byte, name string, body ...byte) []byte {
	dst = appendHeader(dst, flagCommand, 1+len(name)+len(body))
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	return append(dst, body...)
}

// splitCommand cuts a command's body into its name and its data.
func splitCommand(b []byte) (name string, data []byte, err error) {
	if len(b) == 0 || int(b[0]) > len(b)-1 || b[0] == 0 {
		return "", nil, fmt.Errorf("command name: %w", ErrGarbage)
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], nil
}

// Command names of ZMTP 3.1.
const (
	cmdReady     = "READY"
	cmdError     = "ERROR"
	cmdPing      = "PING"
	cmdPong      = "PONG"
	cmdSubscribe = "SUBSCRIBE"
	cmdCancel    = "CANCEL"
)

// pong returns the PONG frame that answers a PING with this data (TTL and context).
func pong(ping []byte) ([]byte, error) {
	if len(ping) < 2 || len(ping) > 2+maxPingContext {
		return nil, fmt.Errorf("PING of %d bytes: %w", len(ping), ErrGarbage)
	}
	return appendCommand(nil, cmdPong, ping[2:]...), nil
}

// pingFrame is the PING that Salt's masters send: no TTL, no context.
var pingFrame = string(appendCommand(nil, cmdPing, 0, 0))

// discard reads and drops size bytes.
func discard(r io.Reader, size int64) error {
	n, err := io.CopyN(io.Discard, r, size)
	if n < size && err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}
