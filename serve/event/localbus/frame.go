package localbus

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"clustermaster/serve/event"
	"clustermaster/value"
)

// A frame is the map {"head": {}, "body": TAG "\n\n" DATA} in msgpack, body as bytes, DATA a map in
// msgpack (salt/transport/frame.py and SaltEvent.pack, Salt 3006 to 3008). Some releases write its
// length before it, as 4 bytes big-endian: these can't read unprefixed frames, nor the others
// prefixed ones.
const (
	lengthBytes = 4
	frameStart  = "\x82\xa4head\x80\xa4body" // as all releases write it
	tagEnd      = "\n\n"

	maxTag    = 4096    // bytes, as for another master's requests
	maxAround = 1 << 12 // bytes of a frame that are neither tag nor data
)

var (
	errFrame    = errors.New("not a frame of an event")
	errTooLarge = errors.New("event too large")
)

// appendFrame appends an event with its length before it, which is left out for listeners of most
// releases.
func appendFrame(dst []byte, e event.Event) ([]byte, error) {
	data, err := renewed(e.Data)
	if err != nil {
		return nil, fmt.Errorf("frame event: %w", err)
	}
	n := len(e.Tag) + len(tagEnd) + len(data)
	if uint64(n) > math.MaxInt32 {
		return nil, fmt.Errorf("frame event of %d bytes: %w", n, errTooLarge)
	}
	dst = slices.Grow(dst, lengthBytes+len(frameStart)+5+n)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(frameStart)+5+n))
	dst = append(dst, frameStart...)
	dst = append(dst, 0xc6) // bin 32
	dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	dst = append(dst, e.Tag...)
	dst = append(dst, tagEnd...)
	return append(dst, data...), nil
}

// renewed converts data to the form of Salt's local bus, with text and bytes apart: clients fail at
// text that is not UTF-8.
func renewed(data value.Raw) ([]byte, error) {
	if data.AllText() {
		return data, nil
	}
	m, err := data.Map()
	if err != nil {
		return nil, err
	}
	return value.PackNew(m)
}

// readBody reads the body of the next frame, with or without its length before it; most bounds the
// body before anything is allocated. io.EOF means the end of the stream between two frames.
func readBody(r *bufio.Reader, most int) ([]byte, error) {
	first, err := r.Peek(1)
	if err != nil {
		return nil, err
	}
	if first[0] != frameStart[0] {
		return readPrefixed(r, most)
	}
	start := make([]byte, len(frameStart)+1)
	if _, err := io.ReadFull(r, start); err != nil {
		return nil, err
	}
	if string(start[:len(frameStart)]) != frameStart {
		return nil, errFrame
	}
	n, err := readSize(r, start[len(frameStart)])
	if err != nil {
		return nil, err
	}
	return readN(r, n, most)
}

// readPrefixed reads a frame after its length.
func readPrefixed(r *bufio.Reader, most int) ([]byte, error) {
	var length [lengthBytes]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	frame, err := readN(r, uint64(binary.BigEndian.Uint32(length[:])), most+maxAround)
	if err != nil {
		return nil, err
	}
	m, err := value.UnpackRawMap(frame)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	body := m.Bytes("body")
	if body == nil {
		return nil, errFrame
	}
	if len(body) > most {
		return nil, errTooLarge
	}
	return body, nil
}

// readSize reads the length of bytes or text after their type byte.
func readSize(r io.Reader, kind byte) (uint64, error) {
	var width int
	switch {
	case kind >= 0xa0 && kind <= 0xbf:
		return uint64(kind & 0x1f), nil
	case kind == 0xc4, kind == 0xd9:
		width = 1
	case kind == 0xc5, kind == 0xda:
		width = 2
	case kind == 0xc6, kind == 0xdb:
		width = 4
	default:
		return 0, errFrame
	}
	var b [8]byte
	if _, err := io.ReadFull(r, b[8-width:]); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b[:]), nil
}

func readN(r io.Reader, n uint64, most int) ([]byte, error) {
	if n > uint64(most) {
		return nil, fmt.Errorf("%d bytes, at most %d: %w", n, most, errTooLarge)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// parseBody splits a body into a tag and its data, which share body's memory.
func parseBody(body []byte) (string, value.RawMap, error) {
	tag, data, found := bytes.Cut(body, []byte(tagEnd))
	if !found || len(tag) == 0 || len(tag) > maxTag || !utf8.Valid(tag) {
		return "", nil, errFrame
	}
	m, err := value.UnpackRawMap(data)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return string(tag), m, nil
}
