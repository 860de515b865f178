package gitfs

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os/exec"
	"slices"
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
	fatal      = 128              // exit status of a git that can't read an object
)

// errMissing means that there is no such file, folder or commit.
var errMissing = errors.New("no such object")

// errLacks means that a mirror does not have an object. A caller who made the object's name up has
// to expect it.
var errLacks = fmt.Errorf("%w in the mirror", errMissing)

// errLarge means that an object is larger than the caller expects.
var errLarge = errors.New("too large")

// expected makes errLacks an error of its own: the mirror names the object itself, so it is
// damaged, and must not seem to have no such file.
func (m *mirror) expected(id string, err error) error {
	if !errors.Is(err, errLacks) {
		return err
	}
	return m.damage("it lacks object " + id)
}

// damage notes that the mirror is damaged, and returns the error of the request that found it.
func (m *mirror) damage(what string) error {
	m.broken.Store(true)
	return fmt.Errorf("the mirror %s is damaged: %s; check the disk; this master fetches the mirror anew",
		m.dir, what)
}

// judge takes a failure for damage if git can't read something that the mirror must have.
func (m *mirror) judge(ctx context.Context, err error) error {
	var said *gitError
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &said) {
		return err
	}
	if errors.Is(err, errMissing) || slices.ContainsFunc(
		[]string{"is corrupt", "bad object", "bad tree object", "unable to read", "unresolved delta"},
		func(words string) bool { return strings.Contains(said.text, words) }) {
		return m.damage(said.text)
	}
	return err
}

// reader is one git cat-file --batch.
type reader struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	told *tail // complete once it is closed
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
	if ctx.Err() != nil {
		return err
	}
	if r.cmd.ProcessState.ExitCode() == fatal {
		return m.damage(r.told.reason())
	}
	if errors.Is(err, errAltered) {
		return m.damage(name + " is corrupt")
	}
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
	content := newBody(r.out, fields[0], fields[1], size)
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

// errAltered means that the bytes of an object are not those that its id is the hash of.
var errAltered = errors.New("an object was altered")

// body is the content of one answer. One that git's end cuts short ends with io.ErrUnexpectedEOF,
// one that was altered on the disk with errAltered: git itself does not compare it with the id.
type body struct {
	io.LimitedReader
	id  string
	sum hash.Hash
}

func newBody(from io.Reader, id, kind string, size int64) *body {
	b := &body{LimitedReader: io.LimitedReader{R: from, N: size}, id: id, sum: sha1.New()}
	if len(id) == hex.EncodedLen(sha256.Size) {
		b.sum = sha256.New()
	}
	fmt.Fprintf(b.sum, "%s %d\x00", kind, size)
	return b
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.LimitedReader.Read(p)
	b.sum.Write(p[:n])
	switch {
	case errors.Is(err, io.EOF) && b.N > 0:
		err = io.ErrUnexpectedEOF
	case errors.Is(err, io.EOF) && hex.EncodeToString(b.sum.Sum(nil)) != b.id:
		err = errAltered
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
	told := &tail{max: maxStderr}
	cmd.Stderr = told
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("start git cat-file: %w", err)
	}
	return &reader{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 64<<10), told: told, stop: stop},
		nil
}

func (r *reader) close() {
	r.in.Close()
	r.stop()
	_ = r.cmd.Wait()
}

// restAll ends all idle processes.
func (m *mirror) restAll() { m.rest(time.Now().Add(time.Hour)) }

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
