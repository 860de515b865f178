package pythonhost

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermaster/value"
)

const (
	frameSpare = 64 << 10 // allowance of a message beside its limited output
	maxNesting = 8        // nested calls
	// watchAfter is how long a call runs before its processes are counted, watchEvery how often.
	watchAfter, watchEvery = 200 * time.Millisecond, 250 * time.Millisecond
	// for a call that has run for longer than longAfter
	longAfter, watchLongEvery = time.Minute, 5 * time.Second
)

// child is a process that the fork server made. One goroutine at a time talks to it.
type child struct {
	h      *Host
	of     *server // that made it
	pid    int
	conn   *net.UnixConn
	read   *bufio.Reader
	served int           // sessions so far
	since  time.Time     // spare since
	worn   bool          // something is left in it that must not touch another minion's calls
	reason string        // why it must not be used again; "" while it may
	gone   chan struct{} // closed when the process has ended
	status int           // then its exit code, or minus the signal

	mu    sync.Mutex // guards the fields below
	at    Running
	timer *time.Timer
	forks bool // it was killed for starting too many processes
}

// kill ends the process and all processes that it started and that stayed in its session.
func (c *child) kill() {
	select {
	case <-c.gone:
	default:
		_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		_ = syscall.Kill(c.pid, syscall.SIGKILL)
	}
	for range 200 { // some fork meanwhile, some take a moment to die
		left := inSession(c.pid)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// fit reports whether a child may serve another minion: nothing went wrong, nothing is left in it,
// and nobody has begun to kill it.
func (c *child) fit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.gone:
		return false
	default:
		return c.reason == "" && !c.worn && !c.forks && c.read.Buffered() == 0
	}
}

// end ends a child: after an error it kills all of the child's session, else only the child's
// process group, and nothing if the child has ended. Then it closes the child's socket.
func (c *child) end() {
	if c.reason != "" {
		c.kill()
	} else {
		select {
		case <-c.gone:
		default:
			_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		}
	}
	c.conn.Close()
}

// inSession lists the running processes of a session.
func inSession(session int) []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var out []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid pgrp session ...; a name may contain blanks and brackets.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 3 && fields[3] == strconv.Itoa(session) && fields[0] != "Z" {
			out = append(out, pid)
		}
	}
	return out
}

// begin notes a call, and watches the processes that it starts.
func (c *child) begin(fun string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = Running{PID: c.pid, Fun: fun, Since: time.Now()}
	c.timer = time.AfterFunc(watchAfter, c.watch)
}

func (c *child) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.timer, c.at = nil, Running{}
}

func (c *child) watch() {
	n := len(inSession(c.pid))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return
	}
	if n > c.h.opts.Processes {
		c.forks = true
		go c.kill()
		return
	}
	every := watchEvery
	if time.Since(c.at.Since) > longAfter {
		every = watchLongEvery
	}
	c.timer.Reset(every)
}

// running returns what the child does.
func (c *child) running() (Running, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, c.at.Fun != ""
}

func (c *child) place(fun, file string) {
	c.mu.Lock()
	c.at.Fun, c.at.File = fun, file
	c.mu.Unlock()
}

// conversation is one call with the child's questions until it is answered.
type conversation struct {
	session *Session
	child   *child
	call    Call
	limit   time.Duration // of the child's time
	option  string        // that sets limit
	left    time.Duration // of limit
	endless bool          // there is no time limit
	file    string
	depth   int
	mu      sync.Mutex
	open    bool // the master is making an answer: calls to the child are allowed for it
}

type conversationKey struct{}

// conversationOf returns the conversation whose question ctx belongs to.
func conversationOf(ctx context.Context) *conversation {
	c, _ := ctx.Value(conversationKey{}).(*conversation)
	return c
}

// run makes the child run the call. Afterwards child.reason says whether it may be used again.
func (c *conversation) run(ctx context.Context, m value.Map) (any, error) {
	c.child.begin(c.call.Fun)
	defer c.child.finish()
	stop := context.AfterFunc(ctx, c.child.kill)
	v, err := c.talk(ctx, m)
	if !stop() {
		c.child.worn = true // it is being killed
		if ctx.Err() != nil && err != nil {
			c.child.reason = reasonCancel
			return nil, ctx.Err()
		}
	}
	return v, err
}

func (c *conversation) talk(ctx context.Context, m value.Map) (any, error) {
	if err := c.send(m); err != nil {
		return nil, err
	}
	for {
		m, err := c.receive()
		if err != nil {
			return nil, err
		}
		c.child.worn = c.child.worn || truth(m, "worn")
		switch m.String("op") {
		case "ret":
			v, _ := m.Get("value")
			return v, nil
		case "error":
			return nil, c.failed(m)
		case "at":
			c.file = m.String("file")
			c.child.place(m.String("fun"), c.file)
		case "log":
			c.session.h.record(m, "fun", c.call.Fun, "minion", c.session.minion.ID)
			if c.call.Logged != nil {
				c.call.Logged(integer(m, "level"), m.String("text"))
			}
		case "show":
			if v, _ := m.Get("value"); c.call.Output != nil {
				c.call.Output(m.String("kind"), v)
			}
		case "cb":
			if err := c.answer(ctx, m); err != nil {
				return nil, err
			}
		default:
			return nil, c.lost(fmt.Sprintf("it sent the message %.40q", m.String("op")))
		}
	}
}

// failed makes the error that the child reported.
func (c *conversation) failed(m value.Map) error {
	reason := m.String("kind")
	switch reason {
	case reasonFailed, reasonUnknown:
		e := &Error{Reason: reason, Fun: c.call.Fun, File: c.file, Class: m.String("class"),
			Text: m.String("text"), Trace: m.String("trace"), Shown: m.String("shown")}
		v, _ := m.Get("mro")
		list, _ := v.([]any)
		for _, name := range list {
			if s, ok := name.(string); ok {
				e.bases = append(e.bases, s)
			}
		}
		return e
	case reasonMemory:
		c.child.reason = reason
	case "refused":
		return &Error{Reason: reasonFailed, Fun: c.call.Fun, File: c.file, Text: m.String("text")}
	}
	return c.session.h.opts.ended(reason, c.call.Fun, c.file, m.String("text"), 0)
}

// answer carries out what the Python code asks of the master.
func (c *conversation) answer(ctx context.Context, m value.Map) error {
	a, _ := m.Get("args")
	args, _ := a.([]any)
	k, _ := m.Get("kwargs")
	kwargs, _ := k.(value.Map)
	reply := value.Map{{Key: "op", Value: "cbret"}}
	var v any
	err := errors.New("this master answers no questions")
	if c.session.guard != nil {
		if refused := c.session.guard(ctx); refused != nil {
			c.session.h.log.Warn("order of Python code refused", "from", c.call.Fun,
				"what", m.String("what"), "fun", m.String("fun"), "err", refused)
			return c.send(append(reply, value.Pair{Key: "error", Value: refused.Error()}))
		}
	}
	if do := c.session.h.opts.Answer; do != nil {
		c.setOpen(true)
		if c.session.token {
			ctx = context.WithValue(ctx, tokenKey{}, true)
		}
		v, err = do(context.WithValue(ctx, conversationKey{}, c), Question{
			What: m.String("what"), Fun: m.String("fun"), Args: args, Kwargs: kwargs,
			Minion: c.session.minion,
		})
		c.setOpen(false)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if c.child.reason != "" {
		return err // a call for the answer lost the child
	}
	if err != nil {
		reply = append(reply, value.Pair{Key: "error", Value: err.Error()})
		return c.send(reply)
	}
	err = c.send(append(reply, value.Pair{Key: "value", Value: v}))
	if errors.Is(err, errPack) { // the child waits
		return c.send(append(reply, value.Pair{Key: "error", Value: err.Error()}))
	}
	return err
}

func (c *conversation) setOpen(open bool) {
	c.mu.Lock()
	c.open = open
	c.mu.Unlock()
}

// nested makes a call for an answer that the child waits for.
func (c *conversation) nested(ctx context.Context, call Call) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return nil, errors.New("call for an answer that was given")
	}
	if c.depth >= maxNesting {
		return nil, fmt.Errorf("calls nested deeper than %d", maxNesting)
	}
	inner := &conversation{session: c.session, child: c.child, call: call, limit: c.limit,
		option: c.option, left: c.left, endless: c.endless, depth: c.depth + 1}
	v, err := inner.talk(ctx, call.message())
	c.left = inner.left
	return v, err
}

// send and receive count their time towards the call's limit; the master's own time does not count.
func (c *conversation) send(m value.Map) error {
	raw, err := value.PackNew(m)
	if err != nil {
		return fmt.Errorf("%w: %w", errPack, err)
	}
	began := time.Now()
	_ = c.child.conn.SetWriteDeadline(c.deadline(began))
	_, err = c.child.conn.Write(frame(raw))
	c.left -= time.Since(began)
	return c.broken(err)
}

func (c *conversation) receive() (value.Map, error) {
	began := time.Now()
	_ = c.child.conn.SetReadDeadline(c.deadline(began))
	m, err := c.child.receive(c.session.h.opts.Output + frameSpare)
	c.left -= time.Since(began)
	return m, c.broken(err)
}

// deadline returns when the child's time is over; zero means never.
func (c *conversation) deadline(now time.Time) time.Time {
	if c.endless {
		return time.Time{}
	}
	return now.Add(c.left)
}

var (
	errOutput = errors.New("message is too long")
	errPack   = errors.New("pack for the Python host")
)

func (c *child) receive(limit int64) (value.Map, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.read, head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > limit {
		return nil, errOutput
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(c.read, raw); err != nil {
		return nil, err
	}
	return value.UnpackMap(raw)
}

func (c *conversation) broken(err error) error {
	o := &c.session.h.opts
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.child.reason = reasonTime
		return o.ended(reasonTime, c.call.Fun, c.file, c.option, c.limit)
	case errors.Is(err, errOutput):
		c.child.reason = reasonOutput
		return o.ended(reasonOutput, c.call.Fun, c.file, "", 0)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return c.lost("")
	}
	return c.lost(err.Error())
}

// lost is the error of a call whose process has ended.
func (c *conversation) lost(detail string) error {
	o := &c.session.h.opts
	c.child.reason = reasonDied
	if detail != "" {
		return o.ended(reasonDied, c.call.Fun, c.file, detail, 0)
	}
	select {
	case <-c.child.gone:
	case <-time.After(5 * time.Second):
		return o.ended(reasonDied, c.call.Fun, c.file, "its socket was closed", 0)
	}
	c.child.mu.Lock()
	forks := c.child.forks
	c.child.mu.Unlock()
	switch status := c.child.status; {
	case forks:
		c.child.reason = reasonForks
		return o.ended(reasonForks, c.call.Fun, c.file, "", 0)
	case status < 0:
		detail = fmt.Sprintf("signal %d (%s)", -status, syscall.Signal(-status))
	default:
		detail = fmt.Sprintf("exit status %d", status)
	}
	return o.ended(reasonDied, c.call.Fun, c.file, detail, 0)
}
