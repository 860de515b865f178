package pythonhost

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermaster/value"
)

// startTimeout bounds the start of an interpreter and the import of Salt, which the first time
// compiles all of it.
const startTimeout = 60 * time.Second

// boot reads the program and runs it; the rest of standard input is its configuration.
const boot = `import sys,struct
f=sys.stdin.buffer
exec(compile(f.read(struct.unpack(">I",f.read(4))[0]),"<host.py>","exec"))`

// server is a fork server.
type server struct {
	h            *Host
	cmd          *exec.Cmd
	control      *net.UnixConn
	python, salt string
	gone         chan struct{} // closed when the process has ended

	mu       sync.Mutex // guards the fields below
	next     int64
	waiting  map[int64]order
	children map[int]*child
}

// order waits for a child to be forked; nil means that it was.
type order struct {
	c     *child
	reply chan error
}

// socketpair makes two ends of a Unix socket that no other process inherits.
func socketpair(kind int) (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, kind|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "python"), os.NewFile(uintptr(fds[1]), "python"), nil
}

// connection turns a socket's file into a connection with deadlines.
func connection(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

func frame(raw []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(raw)), uint32(len(raw))),
		raw...)
}

// environment is the part of the master's environment that the host's processes get: paths of
// programs and homes, and the time zone.
func environment() []string {
	env := []string{"LANG=C.UTF-8", "PYTHONUNBUFFERED=1"}
	for _, name := range []string{"PATH", "HOME", "TZ", "TMPDIR", "http_proxy", "https_proxy",
		"no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func (h *Host) startServer(ctx context.Context) (*server, error) {
	python, err := h.opts.Python()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHost, err)
	}
	config, err := value.PackNew(value.Map{
		{Key: "conf_file", Value: h.opts.ConfFile}, {Key: "opts", Value: h.opts.Opts},
		{Key: "natives", Value: h.natives()},
		{Key: "memory", Value: h.opts.Memory}, {Key: "output", Value: h.opts.Output},
		{Key: "log_level", Value: level(h.log)},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: pack its options: %w", ErrHost, err)
	}
	ours, theirs, err := socketpair(syscall.SOCK_SEQPACKET)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHost, err)
	}
	control, err := connection(ours)
	if err != nil {
		theirs.Close()
		return nil, fmt.Errorf("%w: %w", ErrHost, err)
	}
	said, saying, err := os.Pipe()
	if err != nil {
		theirs.Close()
		control.Close()
		return nil, fmt.Errorf("%w: %w", ErrHost, err)
	}
	cmd := exec.Command(python, "-c", boot)
	cmd.Stdin = bytes.NewReader(append(frame([]byte(h.opts.program)), frame(config)...))
	cmd.Stdout, cmd.Stderr = saying, saying
	cmd.ExtraFiles = []*os.File{theirs} // 3
	cmd.Env, cmd.Dir = environment(), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	s := &server{h: h, cmd: cmd, control: control, gone: make(chan struct{}),
		waiting: map[int64]order{}, children: map[int]*child{}}
	started := make(chan error, 1)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		theirs.Close()
		saying.Close()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			control.Close()
			close(s.gone)
		}
	}()
	if err := <-started; err != nil {
		control.Close()
		said.Close()
		return nil, fmt.Errorf("%w: start %s: %w", ErrHost, python, err)
	}
	last := &lastLine{}
	go s.words(said, last)
	_ = control.SetReadDeadline(time.Now().Add(startTimeout))
	stop := context.AfterFunc(ctx, func() { _ = control.SetReadDeadline(time.Now()) })
	err = s.ready()
	if stop(); err != nil {
		s.end()
		if text := last.get(); text != "" {
			err = fmt.Errorf("%w; its last output: %s", err, text)
		}
		return nil, fmt.Errorf("%w with %s: %w", ErrHost, python, err)
	}
	_ = control.SetReadDeadline(time.Time{})
	h.log.Info("Python host started", "pid", cmd.Process.Pid, "python", s.python, "salt", s.salt,
		"path", python)
	go s.listen()
	return s, nil
}

func (h *Host) natives() value.Map {
	var out value.Map
	for kind, names := range h.opts.Natives {
		list := make([]any, len(names))
		for i, name := range names {
			list[i] = name
		}
		out = append(out, value.Pair{Key: kind, Value: list})
	}
	return out
}

// ready waits for the first message of the fork server.
func (s *server) ready() error {
	for {
		m, err := s.receive()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				err = errors.New("the interpreter ended before Salt was loaded")
			}
			return err
		}
		switch m.String("op") {
		case "ready":
			s.python, s.salt = m.String("python"), m.String("salt")
			return nil
		case "refused":
			return errors.New(m.String("text"))
		case "log":
			s.h.record(m)
		}
	}
}

const maxPacket = 1 << 16

func (s *server) receive() (value.Map, error) {
	raw := make([]byte, maxPacket)
	n, err := s.control.Read(raw)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	return value.UnpackMap(raw[:n])
}

// listen reads messages about children until the fork server ends.
func (s *server) listen() {
	for {
		m, err := s.receive()
		if err != nil {
			s.lost()
			return
		}
		switch m.String("op") {
		case "forked":
			s.answer(m, integer(m, "pid"), nil)
		case "failed":
			s.answer(m, 0, fmt.Errorf("fork a child of the Python host: %s", m.String("text")))
		case "ended":
			s.mu.Lock()
			pid := integer(m, "pid")
			if c := s.children[pid]; c != nil {
				c.status = integer(m, "status")
				close(c.gone)
				delete(s.children, pid)
			}
			s.mu.Unlock()
		case "log":
			s.h.record(m)
		}
	}
}

func integer(m value.Map, key string) int {
	v, _ := m.Get(key)
	n, _ := v.(int64)
	return int(n)
}

func (s *server) answer(m value.Map, pid int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(integer(m, "n"))
	o, ok := s.waiting[n]
	if !ok {
		return
	}
	delete(s.waiting, n)
	if err == nil {
		o.c.pid = pid
		s.children[pid] = o.c
	}
	o.reply <- err
}

// lost ends what waits: children die with their fork server.
func (s *server) lost() {
	_ = s.cmd.Process.Kill()
	<-s.gone
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, o := range s.waiting {
		o.reply <- fmt.Errorf("%w: its fork server ended", ErrHost)
		delete(s.waiting, n)
	}
	for pid, c := range s.children {
		c.status = -int(syscall.SIGKILL)
		close(c.gone)
		delete(s.children, pid)
	}
}

// fork asks for a child.
func (s *server) fork(ctx context.Context) (*child, error) {
	ours, theirs, err := socketpair(syscall.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	conn, err := connection(ours)
	if err != nil {
		theirs.Close()
		return nil, err
	}
	c := &child{h: s.h, conn: conn, read: bufio.NewReaderSize(conn, 16<<10),
		gone: make(chan struct{})}
	o := order{c: c, reply: make(chan error, 1)}
	s.mu.Lock()
	s.next++
	n := s.next
	s.waiting[n] = o
	raw, err := value.PackNew(value.Map{{Key: "op", Value: "fork"}, {Key: "n", Value: n}})
	if err == nil {
		_, _, err = s.control.WriteMsgUnix(raw, syscall.UnixRights(int(theirs.Fd())), nil)
	}
	s.mu.Unlock()
	theirs.Close()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w: ask its fork server for a child: %w", ErrHost, err)
	}
	select {
	case err = <-o.reply:
	case <-time.After(startTimeout):
		err = fmt.Errorf("%w: its fork server does not answer", ErrHost)
		_ = s.cmd.Process.Kill()
	case <-ctx.Done():
		err = ctx.Err() // the child sees the end of its socket
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// end kills the fork server, and with it its children.
func (s *server) end() {
	_ = s.cmd.Process.Kill()
	<-s.gone
}

// maxWords bounds the standard output and error of the host's processes that reaches the log within
// wordsPeriod, in bytes.
const (
	maxWords    = 1 << 20
	wordsPeriod = 10 * time.Second
)

// wordCount counts the bytes of a period.
type wordCount struct {
	since   time.Time
	shown   int
	dropped int // lines
}

// add reports whether a line of n bytes is logged, and how many were left out in a period that has
// ended.
func (c *wordCount) add(n int, now time.Time) (ok bool, dropped int) {
	if now.Sub(c.since) >= wordsPeriod {
		dropped = c.dropped
		*c = wordCount{since: now}
	}
	if ok = c.shown+n <= maxWords; ok {
		c.shown += n
	} else {
		c.dropped++
	}
	return ok, dropped
}

// words logs output that does not come through the host's own channel.
func (s *server) words(from *os.File, last *lastLine) {
	defer from.Close()
	var count wordCount
	lines := bufio.NewReaderSize(from, 4096)
	for {
		text, _, err := lines.ReadLine()
		if err != nil {
			s.leftOut(count.dropped)
			return
		}
		shown := strings.ToValidUTF8(strings.TrimSpace(string(text)), "?")
		if shown == "" {
			continue
		}
		ok, dropped := count.add(len(text)+1, time.Now())
		s.leftOut(dropped)
		switch {
		case ok:
			last.set(shown)
			s.h.log.Info(shown, "module", "stdout")
		case count.dropped == 1:
			s.h.log.Warn("Python programs print too much at once: lines are left out",
				"until", count.since.Add(wordsPeriod))
		}
	}
}

func (s *server) leftOut(lines int) {
	if lines > 0 {
		s.h.log.Warn("output of Python programs was left out: too much at once", "n", lines)
	}
}

// lastLine is the last line that a process wrote.
type lastLine struct {
	mu   sync.Mutex
	text string
}

func (l *lastLine) set(text string) { l.mu.Lock(); l.text = text; l.mu.Unlock() }

func (l *lastLine) get() string { l.mu.Lock(); defer l.mu.Unlock(); return l.text }
