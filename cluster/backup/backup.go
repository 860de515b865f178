package backup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"clustermaster/cluster/fsm"
)

// About says where a backup comes from.
type About struct {
	ClusterID string    `msgpack:"cluster_id"`
	UUID      string    `msgpack:"uuid"`
	Master    string    `msgpack:"master"` // id of the writer
	Version   string    `msgpack:"version"`
	At        time.Time `msgpack:"at"`
	Index     uint64    `msgpack:"index"` // Raft index that the state is of
	Members   []Member  `msgpack:"members"`
}

// Member is a master of the cluster that was saved: for the record, it is not brought back.
type Member struct {
	ID   string `msgpack:"id"`
	Addr string `msgpack:"addr"`
}

// Job is one job with its returns, as packed values of Salt's msgpack.
type Job struct {
	JID     string            `msgpack:"jid"`
	Load    []byte            `msgpack:"load"`
	Minions []string          `msgpack:"minions"`
	EndTime string            `msgpack:"end_time"`
	Returns map[string]Return `msgpack:"returns"` // by minion id
}

// Return is one minion's.
type Return struct {
	Return  []byte `msgpack:"return"`
	Retcode []byte `msgpack:"retcode"`
	Success []byte `msgpack:"success"`
	FunArgs []byte `msgpack:"fun_args"`
	Out     string `msgpack:"out"`
	Stamp   string `msgpack:"stamp"`
}

// Kinds of records are in files: append only, never reuse.
const (
	kindAbout = 1
	kindState = 2
	kindJob   = 3
	kindEnd   = 4 // with the number of jobs
)

// Writer writes one backup.
type Writer struct {
	seal *sealer
	buf  *bufio.Writer
	enc  *msgpack.Encoder
	jobs uint64
}

// NewWriter begins a backup with what must be in it. Close ends it; without Close it can't be read.
func NewWriter(w io.Writer, passphrase string, about About, state fsm.Saved) (*Writer, error) {
	seal, err := newSealer(w, passphrase)
	if err != nil {
		return nil, err
	}
	b := &Writer{seal: seal, buf: bufio.NewWriter(seal)}
	b.enc = msgpack.NewEncoder(b.buf)
	return b, errors.Join(b.put(kindAbout, &about), b.put(kindState, &state))
}

func (b *Writer) put(kind uint64, v any) error {
	if err := errors.Join(b.enc.EncodeUint(kind), b.enc.Encode(v)); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}

// Add adds a job.
func (b *Writer) Add(j Job) error {
	b.jobs++
	return b.put(kindJob, &j)
}

// Close writes the end. It does not close the file.
func (b *Writer) Close() error {
	err := b.put(kindEnd, b.jobs)
	if err == nil {
		err = b.buf.Flush()
	}
	if err == nil {
		err = b.seal.finish()
	}
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}

// Reader reads one backup.
type Reader struct {
	About About
	State fsm.Saved

	dec  *msgpack.Decoder
	jobs uint64
}

// NewReader reads the beginning of a backup.
func NewReader(r io.Reader, passphrase string) (*Reader, error) {
	o, err := newOpener(r, passphrase)
	if err != nil {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	b := &Reader{dec: msgpack.NewDecoder(bufio.NewReader(o))}
	// a newer release's backup is refused rather than restored in part
	b.dec.DisallowUnknownFields(true)
	if err := b.expect(kindAbout, &b.About); err != nil {
		return nil, err
	}
	if err := b.expect(kindState, &b.State); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Reader) expect(kind uint64, v any) error {
	got, err := b.dec.DecodeUint64()
	if err == nil && got != kind {
		err = fmt.Errorf("record of kind %d: %w", got, ErrNoBackup)
	}
	if err == nil {
		err = b.dec.Decode(v)
	}
	return broken(err)
}

// broken words an error inside the sealed part: an early end is none that this package wrote.
func broken(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = ErrCutShort
	}
	return fmt.Errorf("read backup: %w", err)
}

// Next returns the next job; io.EOF after the last, when the file was found to be whole.
func (b *Reader) Next() (Job, error) {
	kind, err := b.dec.DecodeUint64()
	if err != nil {
		return Job{}, broken(err)
	}
	switch kind {
	case kindJob:
		var j Job
		if err := b.dec.Decode(&j); err != nil {
			return Job{}, broken(err)
		}
		b.jobs++
		return j, nil
	case kindEnd:
		n, err := b.dec.DecodeUint64()
		if err == nil && n != b.jobs {
			err = ErrCutShort
		}
		if err == nil {
			if _, more := b.dec.PeekCode(); !errors.Is(more, io.EOF) {
				err = ErrCutShort
			}
		}
		if err != nil {
			return Job{}, broken(err)
		}
		return Job{}, io.EOF
	}
	return Job{}, broken(fmt.Errorf("record of kind %d: %w", kind, ErrNoBackup))
}

// Verify reads a backup to its end and returns how many jobs it has.
func Verify(r io.Reader, passphrase string) (About, int, error) {
	b, err := NewReader(r, passphrase)
	if err != nil {
		return About{}, 0, err
	}
	for n := 0; ; n++ {
		if _, err := b.Next(); errors.Is(err, io.EOF) {
			return b.About, n, nil
		} else if err != nil {
			return About{}, 0, err
		}
	}
}
