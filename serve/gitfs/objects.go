package gitfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

// errMissing means that there is no such file, folder or commit.
var errMissing = errors.New("no such object")

// errLacks means that a mirror does not have an object. A caller who made the object's name up has
// to expect it.
var errLacks = fmt.Errorf("%w in the mirror", errMissing)

// errLarge means that an object is larger than the caller expects.
var errLarge = errors.New("too large")

// damageFile is the mark of a damaged mirror, in its folder: the next start makes it anew.
const damageFile = "clustermaster-damaged"

// expected makes errLacks an error of its own: the mirror names the object itself, so it is
// damaged, and must not seem to have no such file.
func (m *mirror) expected(id string, err error) error {
	if !errors.Is(err, errLacks) {
		return err
	}
	if !m.marked.Load() { // without the mark, the next start finds the same damage
		err := os.WriteFile(filepath.Join(m.dir, damageFile), []byte(id+"\n"), 0o600)
		m.marked.Store(err == nil)
	}
	return fmt.Errorf("the mirror %s is damaged: it lacks object %s; check the disk, and restart this master, which fetches all anew",
		m.dir, id)
}

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

// object opens an object by name: an id, or an id with ^{commit}. The size is its content's, in
// bytes; what use leaves unread is passed over.
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
	whole, err := r.ask(name, use)
	if !end() { // it is being stopped
		whole, err = false, errors.Join(ctx.Err(), err)
	}
	if whole {
		r.used = time.Now()
		m.readers.mu.Lock()
		m.readers.idle = append(m.readers.idle, r)
		m.readers.mu.Unlock()
		return err
	}
	r.close()
	return err
}

// ask asks for one object. It reports whether the answer was read as a whole: what is left of one
// would be taken for the answer to the next question.
func (r *reader) ask(name string, use func(id, kind string, size int64,
	content io.Reader) error) (whole bool, err error) {
	if _, err := io.WriteString(r.in, name+"\n"); err != nil {
		return false, fmt.Errorf("ask git cat-file: %w", err)
	}
	head, err := r.out.ReadString('\n')
	if err != nil {
		return false, fmt.Errorf("read from git cat-file: %w", err)
	}
	if why, ok := strings.CutPrefix(head, name+" "); ok && (why == "missing\n" ||
		why == "ambiguous\n") {
		return true, errLacks
	}
	fields := strings.Fields(head)
	size := int64(-1)
	if len(fields) == 3 {
		if n, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
			size = n
		}
	}
	if size < 0 || abbreviated.MatchString(name) && !strings.HasPrefix(fields[0], name) {
		return false, fmt.Errorf("read from git cat-file: %.80q does not answer %s", head, name)
	}
	content := &body{io.LimitedReader{R: r.out, N: size}}
	if err := use(fields[0], fields[1], size, content); err != nil {
		return false, err
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return false, fmt.Errorf("read from git cat-file: %w", err)
	}
	if _, err := r.out.Discard(1); err != nil { // the line's end
		return false, fmt.Errorf("read from git cat-file: %w", err)
	}
	return true, nil
}

// body is the content of one answer. One that git's end cuts short ends with io.ErrUnexpectedEOF.
type body struct{ io.LimitedReader }

func (b *body) Read(p []byte) (int, error) {
	n, err := b.LimitedReader.Read(p)
	if errors.Is(err, io.EOF) && b.N > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

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
			return nil
		}
		if size > most {
			return fmt.Errorf("%s %s is %w: %d bytes, more than %d", kind, got, errLarge, size, most)
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
