package gitfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of reading objects.
const (
	maxReaders = 4                // git cat-file processes per mirror
	idleReader = 30 * time.Second // after which an idle one is ended
	maxTree    = 64 << 20         // bytes of one tree or commit
)

// errMissing means that a mirror does not have an object.
var errMissing = errors.New("no such object")

// reader is one git cat-file --batch.
type reader struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	used time.Time
	stop context.CancelFunc
}

// readers are the idle processes of one mirror. The zero value has none.
type readers struct {
	mu    sync.Mutex // guards idle
	idle  []*reader
	slots chan struct{}
}

// object opens an object by name: an id, or an id with ^{commit}. The size is its content's; use
// must read all of it or return an error.
func (m *mirror) object(ctx context.Context, name string,
	use func(id, kind string, size int64, content io.Reader) error) error {
	if strings.ContainsAny(name, "\n\x00 ") {
		return errMissing
	}
	select {
	case m.readers.slots <- struct{}{}:
		defer func() { <-m.readers.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	r, err := m.reader()
	if err != nil {
		return err
	}
	end := context.AfterFunc(ctx, r.stop)
	err = r.ask(name, use)
	if !end() {
		err = errors.Join(ctx.Err(), err)
	}
	if err == nil || errors.Is(err, errMissing) {
		r.used = time.Now()
		m.readers.mu.Lock()
		m.readers.idle = append(m.readers.idle, r)
		m.readers.mu.Unlock()
		return err
	}
	r.close()
	return err
}

func (r *reader) ask(name string, use func(id, kind string, size int64,
	content io.Reader) error) error {
	if _, err := io.WriteString(r.in, name+"\n"); err != nil {
		return fmt.Errorf("ask git cat-file: %w", err)
	}
	head, err := r.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("read from git cat-file: %w", err)
	}
	fields := strings.Fields(head)
	if len(fields) != 3 {
		return errMissing
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || size < 0 {
		return errMissing // "missing", "ambiguous"
	}
	content := &io.LimitedReader{R: r.out, N: size}
	if err := use(fields[0], fields[1], size, content); err != nil {
		return &useError{err}
	}
	if content.N > 0 {
		if _, err := io.Copy(io.Discard, content); err != nil {
			return fmt.Errorf("read from git cat-file: %w", err)
		}
	}
	if _, err := r.out.Discard(1); err != nil {
		return fmt.Errorf("read from git cat-file: %w", err)
	}
	return nil
}

// useError is an error of the caller that reads, after which the process can't be used again.
type useError struct{ error }

func (e *useError) Unwrap() error { return e.error }

// reader returns an idle process, or a new one.
func (m *mirror) reader() (*reader, error) {
	m.readers.mu.Lock()
	if n := len(m.readers.idle); n > 0 {
		r := m.readers.idle[n-1]
		m.readers.idle = m.readers.idle[:n-1]
		m.readers.mu.Unlock()
		return r, nil
	}
	m.readers.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	cmd := m.git.command(ctx, run{dir: m.dir, args: []string{"cat-file", "--batch"}})
	in, err := cmd.StdinPipe()
	if err != nil {
		stop()
		return nil, fmt.Errorf("start git cat-file: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("start git cat-file: %w", err)
	}
	return &reader{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 64<<10), stop: stop}, nil
}

func (r *reader) close() {
	r.in.Close()
	r.stop()
	_ = r.cmd.Wait()
}

// rest ends processes that have been idle since before a time.
func (m *mirror) rest(before time.Time) {
	m.readers.mu.Lock()
	var old []*reader
	keep := m.readers.idle[:0]
	for _, r := range m.readers.idle {
		if r.used.Before(before) {
			old = append(old, r)
		} else {
			keep = append(keep, r)
		}
	}
	m.readers.idle = keep
	m.readers.mu.Unlock()
	for _, r := range old {
		r.close()
	}
}

// whole reads an object of a kind into memory, up to a size.
func (m *mirror) whole(ctx context.Context, name, kind string, most int64) (id string, data []byte,
	err error) {
	err = m.object(ctx, name, func(got, is string, size int64, content io.Reader) error {
		if is != kind {
			_, err := io.Copy(io.Discard, content)
			id = ""
			return err
		}
		if size > most {
			return fmt.Errorf("%s %s has %d bytes, more than %d", kind, got, size, most)
		}
		id, data = got, make([]byte, size)
		_, err := io.ReadFull(content, data)
		return err
	})
	if err == nil && id == "" {
		err = errMissing
	}
	return id, data, err
}
