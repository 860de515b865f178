package seal

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/crypto/chacha20poly1305"
)

// A stream is a random salt of 16 bytes, then chunks of 64 KiB. Each chunk is sealed with
// ChaCha20-Poly1305 under the stream's own key; the nonce holds its number and whether it is the
// last. So moved, missing or cut chunks are noticed (the construction is STREAM: Hoang,
// Reyhanitabar, Rogaway, Vizár, 2015).
const (
	saltSize  = 16
	chunkSize = 64 << 10
	overhead  = 16
)

// PlainSize returns how many bytes a sealed stream of a given size holds, or -1 if no stream has
// that size.
func PlainSize(sealed int64) int64 {
	sealed -= saltSize
	full, rest := sealed/(chunkSize+overhead), sealed%(chunkSize+overhead)
	switch {
	case sealed < overhead || rest > 0 && rest < overhead:
		return -1
	case rest == 0:
		return full * chunkSize
	}
	return full*chunkSize + rest - overhead
}

// Writer seals what is written to it. Close ends the stream; it does not close the underlying
// writer.
type Writer struct {
	w    io.Writer
	aead cipher.AEAD
	buf  []byte
	n    uint32
}

// NewWriter begins a stream of a purpose on w.
func (k *Key) NewWriter(w io.Writer, purpose string) (*Writer, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails
	if _, err := w.Write(salt); err != nil {
		return nil, err
	}
	return &Writer{w: w, aead: k.ofStream(purpose, salt),
		buf: make([]byte, 0, chunkSize+overhead)}, nil
}

func (k *Key) ofStream(purpose string, salt []byte) cipher.AEAD {
	aead, err := chacha20poly1305.New(k.Derive(purpose, salt))
	if err != nil {
		panic(err) // only for keys of another length
	}
	return aead
}

func nonce(number uint32, last bool) []byte {
	n := make([]byte, chacha20poly1305.NonceSize)
	binary.BigEndian.PutUint32(n[7:], number)
	if last {
		n[11] = 1
	}
	return n
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		if len(w.buf) == chunkSize {
			if err := w.flush(false); err != nil {
				return written, err
			}
		}
		n := min(len(p), chunkSize-len(w.buf))
		w.buf = append(w.buf, p[:n]...)
		p, written = p[n:], written+n
	}
	return written, nil
}

func (w *Writer) flush(last bool) error {
	_, err := w.w.Write(w.aead.Seal(w.buf[:0], nonce(w.n, last), w.buf, nil))
	w.buf, w.n = w.buf[:0], w.n+1
	return err
}

// Close writes the last chunk.
func (w *Writer) Close() error { return w.flush(true) }

// Reader opens a stream.
type Reader struct {
	r     io.Reader
	aead  cipher.AEAD
	chunk []byte // the next one, still sealed
	plain []byte
	n     uint32
	ended bool
}

// NewReader starts to open a stream of a purpose. Errors of Read: ErrOpen, and those of r.
func (k *Key) NewReader(r io.Reader, purpose string) (*Reader, error) {
	salt := make([]byte, saltSize)
	if _, err := io.ReadFull(r, salt); err != nil {
		return nil, ErrOpen
	}
	s := &Reader{r: r, aead: k.ofStream(purpose, salt)}
	return s, s.ahead()
}

// ahead reads the next sealed chunk; nil at the end.
func (s *Reader) ahead() error {
	s.chunk = make([]byte, chunkSize+overhead)
	n, err := io.ReadFull(s.r, s.chunk)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	s.chunk = s.chunk[:n]
	return err
}

// Read implements io.Reader.
func (s *Reader) Read(p []byte) (int, error) {
	for len(s.plain) == 0 {
		if s.ended {
			return 0, io.EOF
		}
		now := s.chunk
		if err := s.ahead(); err != nil {
			return 0, err
		}
		s.ended = len(s.chunk) == 0
		plain, err := s.aead.Open(now[:0], nonce(s.n, s.ended), now, nil)
		if err != nil {
			return 0, ErrOpen
		}
		s.plain, s.n = plain, s.n+1
	}
	n := copy(p, s.plain)
	s.plain = s.plain[n:]
	return n, nil
}
