package backup

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/chacha20poly1305"
)

// MinPassphrase is the least number of characters of a passphrase.
const MinPassphrase = 12

// Errors of reading.
var (
	ErrNoBackup   = errors.New("not a backup of a cluster, or one of a newer version")
	ErrPassphrase = errors.New("wrong passphrase, or the file was changed")
	ErrCutShort   = errors.New("the file was cut short or changed")
)

// The header: magic, cost of the key derivation, salt, prefix of the nonces. It is authenticated
// with every chunk.
const (
	magic    = "clustermaster backup 1\n"
	saltSize = 16
	// then the number of the chunk (4) and whether it is the last (1)
	prefixSize = chacha20poly1305.NonceSizeX - 5
	headerSize = len(magic) + 4 + 4 + 1 + saltSize + prefixSize
)

// Cost of Argon2id: 3 passes over 64 MiB. A file may say more, within bounds: reading must not cost
// more than this.
const (
	passes, memory, lanes = 3, 64 << 10, 4
	maxPasses, maxMemory  = 10, 256 << 10
)

// chunkSize of plain text; all chunks but the last are full.
const chunkSize = 64 << 10

// sealer writes chunks: XChaCha20-Poly1305, each with its number, and a mark on the last, so that
// none can be left out, swapped or cut off (the STREAM construction).
type sealer struct {
	w      io.Writer
	aead   cipher.AEAD
	header []byte
	number uint32
	plain  []byte
}

func newSealer(w io.Writer, passphrase string) (*sealer, error) {
	if n := len([]rune(passphrase)); n < MinPassphrase {
		return nil, fmt.Errorf("passphrase has %d characters; at least %d are needed", n,
			MinPassphrase)
	}
	header := make([]byte, 0, headerSize)
	header = append(header, magic...)
	header = binary.BigEndian.AppendUint32(header, passes)
	header = binary.BigEndian.AppendUint32(header, memory)
	header = append(header, lanes)
	random := make([]byte, saltSize+prefixSize)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("make salt: %w", err)
	}
	header = append(header, random...)
	aead, err := open(header, passphrase)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(header); err != nil {
		return nil, err
	}
	return &sealer{w: w, aead: aead, header: header, plain: make([]byte, 0, chunkSize)}, nil
}

// open derives the key that a header asks for.
func open(header []byte, passphrase string) (cipher.AEAD, error) {
	if len(header) != headerSize || string(header[:len(magic)]) != magic {
		return nil, ErrNoBackup
	}
	cost := header[len(magic):]
	time, mem, threads := binary.BigEndian.Uint32(cost), binary.BigEndian.Uint32(cost[4:]), cost[8]
	if time == 0 || time > maxPasses || mem == 0 || mem > maxMemory || threads == 0 ||
		threads > 16 {
		return nil, fmt.Errorf("%w: its key derivation is out of bounds", ErrNoBackup)
	}
	defer debug.FreeOSMemory() // what the derivation took is not needed again
	key := argon2.IDKey([]byte(passphrase), cost[9:9+saltSize], time, mem, threads,
		chacha20poly1305.KeySize)
	return chacha20poly1305.NewX(key)
}

func nonce(header []byte, number uint32, last bool) []byte {
	n := bytes.Clone(header[headerSize-prefixSize:])
	n = binary.BigEndian.AppendUint32(n, number)
	if last {
		return append(n, 1)
	}
	return append(n, 0)
}

// Write implements io.Writer.
func (s *sealer) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		if len(s.plain) == chunkSize {
			if err := s.seal(false); err != nil {
				return 0, err
			}
		}
		n := min(len(p), chunkSize-len(s.plain))
		s.plain = append(s.plain, p[:n]...)
		p = p[n:]
	}
	return total, nil
}

// finish writes the last chunk.
func (s *sealer) finish() error { return s.seal(true) }

func (s *sealer) seal(last bool) error {
	if s.number == 1<<32-1 {
		return errors.New("backup of more than 2^32 chunks")
	}
	sealed := s.aead.Seal(nil, nonce(s.header, s.number, last), s.plain, s.header)
	s.number++
	s.plain = s.plain[:0]
	_, err := s.w.Write(sealed)
	return err
}

// opener reads what sealer wrote. After its first error it gives nothing more.
type opener struct {
	r      io.Reader
	aead   cipher.AEAD
	header []byte
	number uint32
	buf    []byte // sealed: a chunk and one byte of the next, which tells that there is one
	have   int
	plain  []byte
	done   bool
	err    error
}

func newOpener(r io.Reader, passphrase string) (*opener, error) {
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, ErrNoBackup
	}
	aead, err := open(header, passphrase)
	if err != nil {
		return nil, err
	}
	return &opener{r: r, aead: aead, header: header,
		buf: make([]byte, chunkSize+chacha20poly1305.Overhead+1)}, nil
}

// Read implements io.Reader.
func (o *opener) Read(p []byte) (int, error) {
	for len(o.plain) == 0 {
		if o.err != nil {
			return 0, o.err
		}
		if o.done {
			return 0, io.EOF
		}
		o.err = o.next()
	}
	n := copy(p, o.plain)
	o.plain = o.plain[n:]
	return n, nil
}

func (o *opener) next() error {
	n, err := io.ReadFull(o.r, o.buf[o.have:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read backup: %w", err)
	}
	n += o.have
	last := n < len(o.buf)
	size := min(n, len(o.buf)-1)
	o.plain, err = o.aead.Open(nil, nonce(o.header, o.number, last), o.buf[:size], o.header)
	switch {
	case err != nil && o.number == 0:
		return ErrPassphrase
	case err != nil:
		return ErrCutShort
	}
	o.number++
	o.done = last
	if !last {
		o.buf[0], o.have = o.buf[size], 1
	}
	return nil
}
