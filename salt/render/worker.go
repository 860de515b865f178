package render

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermaster/value"
)

const (
	startTimeout = 30 * time.Second // a cold start compiles the worker's program
	lengthSize   = 4
	frameSpare   = 64 << 10 // a message's share around the limited output
	maxNesting   = 8        // of renders inside calls inside renders
)

// worker is a Python process that renders. One goroutine uses it at a time.
type worker struct {
	opts  Options
	cmd   *exec.Cmd
	in    *os.File
	out   *os.File
	read  *bufio.Reader
	sent  sent
	depth int
	extra bool // it runs beyond Options.Workers, see Ahead

	kill   func()
	gone   chan struct{} // closed when the process has ended
	reason string        // why it can't be used again; "" if it can
	timer  *time.Timer   // ends it when idle
}

func startWorker(ctx context.Context, o Options, p *interpreter, log *slog.Logger) (*worker,
	error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start render worker: %w", err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		childIn.Close()
		in.Close()
		return nil, fmt.Errorf("start render worker: %w", err)
	}
	cmd := exec.Command(p.exe, p.args(o.MemoryLimit, o.OutputLimit+frameSpare)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = childIn, childOut, &complaints{log: log,
		left: maxComplaints}
	cmd.Env = workerEnv()
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	childIn.Close()
	childOut.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil,
			fmt.Errorf("start render worker %s: %w; the system needs glibc and the folder must "+
				"allow execution; otherwise set render_python", p.exe, err)
	}
	w := &worker{opts: o, cmd: cmd, in: in, out: out, read: bufio.NewReaderSize(out, 32<<10),
		gone: make(chan struct{})}
	w.kill = sync.OnceFunc(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	go func() {
		_ = cmd.Wait()
		w.in.Close()
		close(w.gone)
	}()
	stop := context.AfterFunc(ctx, w.kill)
	defer stop()
	_ = w.out.SetReadDeadline(time.Now().Add(startTimeout))
	ready, err := w.receive()
	if err != nil || ready.String("op") != "ready" {
		w.end()
		return nil,
			fmt.Errorf("start render worker %s: it ended or did not answer (the log has its "+
				"messages): %w", p.exe, errors.Join(ErrWorker, err, ctx.Err()))
	}
	log.Debug("render worker started", "pid", cmd.Process.Pid, "python", ready.String("python"))
	return w, nil
}

// workerEnv is the environment of workers: a locale, and the master's PATH, HOME and TZ.
func workerEnv() []string {
	env := []string{"LC_ALL=C.UTF-8"}
	for _, name := range []string{"PATH", "HOME", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// end kills the process and waits until it has ended.
func (w *worker) end() {
	w.kill()
	<-w.gone
	w.out.Close()
}

// request is one stage for a worker.
type request struct {
	kind, text string
	src        Source
	parts      *parts
	host       Host
}

// reply is a worker's result.
type reply struct {
	value  any
	notes  value.Map // of kind jinja: keys, and whether it was impure
	files  []dependency
	impure bool // it called a function that is not pure, or asked whether one exists
}

// render runs q in the worker. If the worker can't be used again, reason says why.
func (w *worker) render(ctx context.Context, q request) (reply, error) {
	stop := context.AfterFunc(ctx, w.kill)
	c := &conversation{w: w, q: q, left: w.opts.Timeout}
	out, err := c.run(ctx)
	if !stop() && ctx.Err() != nil {
		w.reason, err = "canceled", ctx.Err()
	}
	return out, err
}

// conversation is one request and the worker's questions until it answers.
type conversation struct {
	w     *worker
	q     request
	left  time.Duration // of the worker's time that remains
	files []dependency
	calls bool // it called a function that is not pure
	mu    sync.Mutex
	open  bool // a call of the host runs, so the worker may render for it
}

// begin sends the request.
func (c *conversation) begin() error {
	p, err := c.q.parts.all()
	if err != nil {
		return err
	}
	put, drop := c.w.sent.send(p)
	return c.send(value.Map{
		{Key: "op", Value: "render"}, {Key: "kind", Value: c.q.kind},
		{Key: "data", Value: textOrBytes(c.q.text)},
		{Key: "path", Value: c.q.src.Path}, {Key: "sls", Value: c.q.src.SLS},
		{Key: "saltenv", Value: c.q.src.SaltEnv},
		{Key: "grains", Value: p[grainsRoot].key}, {Key: "pillar", Value: p[pillarRoot].key},
		{Key: "opts", Value: p[optsRoot].key}, {Key: "vars", Value: p[varsRoot].key},
		{Key: "put", Value: put}, {Key: "drop", Value: drop},
		{Key: "seconds", Value: c.left.Seconds()},
	})
}

func (c *conversation) run(ctx context.Context) (reply, error) {
	err := c.begin()
	for err == nil {
		var m value.Map
		if m, err = c.receive(); err != nil {
			break
		}
		var answer value.Map
		switch op := m.String("op"); op {
		case "done":
			v, _ := m.Get("value")
			n, _ := m.Get("notes")
			notes, _ := n.(value.Map)
			return reply{value: v, notes: notes, files: c.files, impure: c.calls}, nil
		case "error":
			line, _ := m.Get("line")
			n, _ := line.(int64)
			return reply{}, &problem{m.String("text"), int(n)}
		case "memory":
			c.w.reason = "memory"
			return reply{}, ErrMemory
		case "large":
			return reply{}, ErrOutput
		case "call":
			answer, err = c.call(ctx, m)
		case "has":
			c.calls = c.calls || !alwaysThere(m.String("fun"))
			c.setOpen(true)
			found := hasFunction(context.WithValue(ctx, conversationKey{}, c), c.q.host, m.String("fun"))
			c.setOpen(false)
			answer = value.Map{{Key: "value", Value: found}}
			if !found {
				answer = append(answer, value.Pair{Key: "why", Value: WhyMissing(c.q.host)})
			}
		case "file":
			answer, err = c.file(ctx, m)
		default:
			err = fmt.Errorf("%w: unknown message %q", ErrWorker, op)
		}
		if err == nil {
			err = c.send(append(answer, value.Pair{Key: "op", Value: "answer"}))
		}
	}
	if c.w.reason == "" {
		c.w.reason = "died"
	}
	return reply{}, err
}

func textOrBytes(s string) any {
	if validText(s) {
		return s
	}
	return []byte(s)
}

// send and receive count their time towards the render's.
func (c *conversation) send(m value.Map) error {
	raw, err := value.PackNew(m)
	if err != nil {
		c.w.reason = "died"
		return fmt.Errorf("pack for render worker: %w", err)
	}
	began := time.Now()
	_ = c.w.in.SetWriteDeadline(began.Add(c.left))
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, lengthSize+len(raw)), uint32(len(raw)))
	_, err = c.w.in.Write(append(frame, raw...))
	c.left -= time.Since(began)
	return c.broken(err)
}

func (c *conversation) receive() (value.Map, error) {
	began := time.Now()
	_ = c.w.out.SetReadDeadline(began.Add(c.left))
	m, err := c.w.receive()
	c.left -= time.Since(began)
	return m, c.broken(err)
}

func (c *conversation) broken(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.w.reason = "time"
		return ErrTime
	case errors.Is(err, ErrOutput):
		c.w.reason = "output"
		return err
	}
	return fmt.Errorf("%w: %w", ErrWorker, err)
}

func (w *worker) receive() (value.Map, error) {
	var head [lengthSize]byte
	if _, err := io.ReadFull(w.read, head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > w.opts.OutputLimit+frameSpare {
		return nil, ErrOutput
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(w.read, raw); err != nil {
		return nil, err
	}
	return value.UnpackMap(raw)
}

type conversationKey struct{}

// nested returns the conversation whose call of a host this context belongs
// to; nil if there is none.
func nested(ctx context.Context) *conversation {
	c, _ := ctx.Value(conversationKey{}).(*conversation)
	return c
}

// Impure notes that the call of a Host under way depends on more than the Context, so that the
// render is not kept.
func Impure(ctx context.Context) {
	if c := nested(ctx); c != nil {
		c.calls = true
	}
}

// render runs a request for a function that the worker waits for. It can't take another worker: all
// of them may wait for such functions.
func (c *conversation) render(ctx context.Context, q request) (reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return reply{}, errors.New("render started by a call that has ended")
	}
	if c.w.depth >= maxNesting {
		return reply{}, fmt.Errorf("renders nested deeper than %d", maxNesting)
	}
	c.w.depth++
	inner := &conversation{w: c.w, q: q, left: c.left}
	out, err := inner.run(ctx)
	c.left = inner.left
	c.w.depth--
	return out, err
}

// call runs a function of the host. The template gets its error.
func (c *conversation) call(ctx context.Context, m value.Map) (value.Map, error) {
	fun := m.String("fun")
	o, over := c.q.host.(Overrider)
	a, _ := m.Get("args")
	args, _ := a.([]any)
	k, _ := m.Get("kwargs")
	kwargs, _ := k.(value.Map)
	c.calls = c.calls || !isPure(fun, args, kwargs, c.q.parts) || over && o.Overrides(fun)
	c.setOpen(true)
	v, err := c.q.host.Call(context.WithValue(ctx, conversationKey{}, c), fun, args, kwargs)
	c.setOpen(false)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case c.w.reason != "":
		return nil, err // a render inside the call lost the worker
	case errors.Is(err, ErrUnknownFunction):
		return value.Map{{Key: "error", Value: "unknown"}}, nil
	case err != nil:
		answer := value.Map{{Key: "error", Value: "failed"}, {Key: "text", Value: err.Error()}}
		var e Exception
		if errors.As(err, &e) && !e.Raised("CommandExecutionError") &&
			!e.Raised("SaltInvocationError") {
			answer = append(answer, value.Pair{Key: "class", Value: e.ExceptionClass()})
		}
		return answer, nil
	}
	raw, err := value.PackNew(v)
	if err != nil {
		return value.Map{{Key: "error", Value: "failed"},
			{Key: "text", Value: fmt.Sprintf("result of %s: %v", fun, err)}}, nil
	}
	return value.Map{{Key: "value", Value: value.Raw(raw)}}, nil
}

func (c *conversation) setOpen(open bool) {
	c.mu.Lock()
	c.open = open
	c.mu.Unlock()
}

func hasFunction(ctx context.Context, h Host, name string) bool {
	if l, ok := h.(FunctionLister); ok {
		return l.HasFunction(ctx, name)
	}
	return strings.Contains(name, ".")
}

// file reads a file for a template. It finds nothing outside the roots.
func (c *conversation) file(ctx context.Context, m value.Map) (value.Map, error) {
	env, name := m.String("saltenv"), m.String("path")
	clean := path.Clean(name)
	if path.IsAbs(clean) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") ||
		strings.ContainsRune(clean, 0) {
		return value.Map{{Key: "found", Value: false}}, nil
	}
	data, found, err := c.q.host.File(ctx, env, clean)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return value.Map{{Key: "error", Value: "failed"}, {Key: "text", Value: err.Error()}}, nil
	}
	c.files = append(c.files, newDependency(env, clean, data, found))
	shown := clean
	if n, ok := c.q.host.(FileNamer); ok && found {
		shown = n.FileName(env, clean)
	}
	return value.Map{{Key: "found", Value: found}, {Key: "data", Value: textOrBytes(string(data))},
		{Key: "name", Value: shown}}, nil
}

// maxComplaints bounds the bytes of a worker's stderr that are logged.
const maxComplaints = 64 << 10

// complaints logs a worker's stderr up to a limit.
type complaints struct {
	log  *slog.Logger
	left int
}

func (c *complaints) Write(b []byte) (int, error) {
	if n := min(len(b), c.left); n > 0 {
		c.left -= n
		c.log.Warn("message of a render worker", "text",
			strings.ToValidUTF8(strings.TrimSpace(string(b[:n])), "?"))
	}
	return len(b), nil
}

func (p *interpreter) args(memory, output int64) []string {
	return append(append([]string{}, p.flags...), p.program, strconv.FormatInt(memory, 10),
		strconv.FormatInt(output, 10))
}
