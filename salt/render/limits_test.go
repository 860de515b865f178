package render

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"clustermaster/value"
)

// TestLimits: whatever a template does, the render ends with a clear error and the next one works.
func TestLimits(t *testing.T) {
	t.Parallel()
	// What meets another limit may take its time on a busy machine.
	patient := newRenderer(t, Options{Workers: 1, Timeout: time.Minute, MemoryLimit: 512 << 20,
		OutputLimit: 1 << 20})
	hasty := newRenderer(t, Options{Workers: 1, Timeout: 3 * time.Second, MemoryLimit: 512 << 20,
		OutputLimit: 1 << 20})
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	for _, tt := range []struct {
		name, text string
		limit      error // nil: an ordinary error of the file
		says       string
	}{
		{name: "long loops",
			text: "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a * b %}{% endfor %}{% endfor %}", limit: ErrTime, says: "took longer than 3s and was stopped (option render_timeout)"},
		{name: "slow in C",
			text:  "{{ 'a' * 30 is match('(a+)+b') }}{{ ('a' * 60) is match('(a+)+b') }}",
			limit: ErrTime, says: "took longer than 3s"},
		{name: "slow in py", text: "#!py\ndef run():\n  while True: pass\n", limit: ErrTime,
			says: "with py took longer than 3s"},
		{name: "ignores signals",
			text: "#!py\nimport signal, time\ndef run():\n  for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n  while True: time.sleep(1)\n", limit: ErrTime, says: "took longer than 3s"},
		{name: "huge string", text: "a: {{ 'x' * 2000000000 }}", limit: ErrMemory,
			says: "needed more than 536870912 bytes of memory and was stopped (option render_memory)"},
		{name: "huge list",
			text:  "{% set l = [0] %}{% for i in range(40) %}{% do l.extend(l) %}{% endfor %}",
			limit: ErrMemory, says: "memory"},
		{name: "memory in py",
			text:  "#!py\ndef run():\n  return {'a': [bytearray(1 << 20) for i in range(9999)]}\n",
			limit: ErrMemory, says: "memory"},
		{name: "long output", text: "a: {{ 'x' * 2000000 }}", limit: ErrOutput,
			says: "made more than 1048576 bytes and was stopped (option render_output)"},
		{name: "YAML bomb", text: bomb, says: "aliases make this document too large"},
		{name: "YAML bomb after jinja", text: "{# #}" + bomb,
			says: "aliases make this document too large"},
		{name: "loaded YAML bomb", text: "{% load_yaml as d %}" + bomb + "{% endload %}a: {{ d }}"},
		{name: "deep YAML", text: "a: " + strings.Repeat("[", 100000) +
			strings.Repeat("]", 100000)},
		{name: "deep value",
			text: "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}a: {{ ns.l }}"},
		{name: "ends the process", text: "#!py\nimport os\ndef run():\n  os._exit(3)\n",
			limit: ErrWorker, says: "render worker ended"},
		{name: "exits", text: "#!py\nimport sys\ndef run():\n  sys.exit(3)\n",
			says: "SystemExit: 3"},
		{name: "writes to stdout",
			text: "#!py\nimport os\ndef run():\n  print('x' * 99)\n  os.write(1, b'y' * 99)\n  return {1: {}[2]}\n", says: "KeyError: 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := patient
			if tt.limit == ErrTime {
				r = hasty
			}
			began := time.Now()
			_, err := r.Render(t.Context(), source("bad", tt.text), "jinja|yaml", Context{}, tree{})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v", err)
			}
			if tt.limit != nil && !errors.Is(err, tt.limit) ||
				!strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q, want %v and %q", cut(err.Error()), tt.limit, tt.says)
			}
			t.Logf("%s after %s: %s", tt.name, time.Since(began).Round(time.Millisecond),
				cut(err.Error()))
			v, err := r.Render(t.Context(), source("good", "a: {{ 1 + 1 }}"), "jinja|yaml",
				Context{}, tree{})
			if err != nil || !reflect.DeepEqual(v, object("a", int64(2))) {
				t.Fatalf("next render: %v, %v", v, err)
			}
		})
	}
}

func cut(s string) string { return s[:min(len(s), 300)] }

// TestWorkerKilled: a worker killed from outside costs at most one render.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{Workers: 1})
	h := tree{calls: map[string]func(context.Context, []any, value.Map) (any, error){
		"kill.worker": func(context.Context, []any, value.Map) (any, error) {
			r.pool.mu.Lock()
			defer r.pool.mu.Unlock()
			for w := range r.pool.busy {
				return true, syscall.Kill(w.cmd.Process.Pid, syscall.SIGKILL)
			}
			return nil, errors.New("no worker is busy")
		},
	}}
	_, err := r.Render(t.Context(), source("t", "{{ salt['kill.worker']() }}"), "jinja|yaml",
		Context{}, h)
	if !errors.Is(err, ErrWorker) {
		t.Fatalf("killed mid-render: %v", err)
	}
	src := source("t", "a: {{ 1 }}")
	if _, err := r.Render(t.Context(), src, "jinja|yaml", Context{}, h); err != nil {
		t.Fatalf("after it: %v", err)
	}
	// Killed while idle: the next render gets a new one.
	r.pool.mu.Lock()
	w := r.pool.idle[0]
	r.pool.mu.Unlock()
	w.kill()
	<-w.gone
	if _, err := r.Render(t.Context(), source("t", "a: {{ 2 }}"), "jinja|yaml", Context{},
		h); err != nil {
		t.Fatalf("killed while idle: %v", err)
	}
}

// TestNoReadsOutside: templates read nothing outside the roots.
func TestNoReadsOutside(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{})
	asked := &askedHost{}
	for _, name := range []string{"/etc/passwd", "../../etc/passwd", "a/../../../etc/passwd",
		"./../../etc/passwd", "a/..", "x\\u0000y", "", ".", "salt://../../etc/passwd/../../.."} {
		for _, tag := range []string{"{%% import '%s' as x %%}", "{%% include '%s' %%}",
			"{%% import_text '%s' as x %%}", "{%% extends '%s' %%}"} {
			if _, err := r.Render(t.Context(), source("a.t", fmt.Sprintf(tag, name)), "jinja|yaml",
				Context{}, asked); err == nil {
				t.Errorf("%s of %q: no error", tag, name)
			}
		}
	}
	for _, p := range asked.paths {
		if !filepath.IsLocal(p) || p != filepath.Clean(p) {
			t.Errorf("host was asked for %q", p)
		}
	}
}

type askedHost struct {
	tree
	paths []string
}

func (h *askedHost) File(_ context.Context, _, path string) ([]byte, bool, error) {
	h.paths = append(h.paths, path)
	return nil, false, nil
}

// TestRenderInsideCall: a function may render. That render runs in the worker that waits for the
// function, so every worker can do so at the same time.
func TestRenderInsideCall(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{Workers: 1})
	var h tree
	h.calls = map[string]func(context.Context, []any, value.Map) (any, error){
		"slsutil.renderer": func(ctx context.Context, args []any, _ value.Map) (any, error) {
			return r.Render(ctx, source("inner", args[0].(string)), "jinja|yaml",
				Context{Grains: object("a", int64(7))}, h)
		},
		"x.endless": func(ctx context.Context, _ []any, _ value.Map) (any, error) {
			return r.Render(ctx, source("inner", "{{ salt['x.endless']() }}"), "jinja|yaml",
				Context{}, h)
		},
	}
	v, err := r.Render(t.Context(), source("t",
		"x: {{ salt['slsutil.renderer']('b: {{ grains.a }}') }}\ny: {{ salt['slsutil.renderer']('- {{ 1 }}') }}"), "jinja|yaml", Context{}, h)
	if want := object("x", object("b", int64(7)), "y", []any{int64(1)}); err != nil ||
		!reflect.DeepEqual(v, want) {
		t.Fatalf("got %#v, %v", v, err)
	}
	_, err = r.Render(t.Context(), source("t", "{{ salt['slsutil.renderer']('{{ nope }}') }}"),
		"jinja|yaml", Context{}, h)
	if err == nil || !strings.Contains(err.Error(), "Jinja variable 'nope' is undefined") {
		t.Fatalf("inner error: %v", err)
	}
	_, err = r.Render(t.Context(), source("t", "{{ salt['x.endless']() }}"), "jinja|yaml",
		Context{}, h)
	if err == nil || !strings.Contains(err.Error(), "renders nested deeper than 8") {
		t.Fatalf("endless: %v", err)
	}
}

// TestContextEnds: a caller that gives up frees its worker.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{Workers: 1})
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{})
	h := tree{calls: map[string]func(context.Context, []any, value.Map) (any, error){
		"x.wait": func(ctx context.Context, _ []any, _ value.Map) (any, error) {
			close(began)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}}
	failed := make(chan error)
	go func() {
		_, err := r.Render(ctx, source("t", "{{ salt['x.wait']() }}"), "jinja|yaml", Context{}, h)
		failed <- err
	}()
	<-began
	waiting, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if _, err := r.Render(waiting, source("t", "{{ 1 }}"), "jinja|yaml", Context{},
		h); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("no worker free: %v", err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatalf("canceled: %v", err)
	}
	if _, err := r.Render(t.Context(), source("t", "a: {{ 1 }}"), "jinja|yaml", Context{},
		h); err != nil {
		t.Fatalf("next: %v", err)
	}
}

// TestWorkersEnd: workers end when idle and at Close, and leave no files.
func TestWorkersEnd(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{IdleStop: 50 * time.Millisecond})
	src := source("t", "a: {{ 1 }}")
	if _, err := r.Render(t.Context(), src, "jinja|yaml", Context{}, tree{}); err != nil {
		t.Fatal(err)
	}
	r.pool.mu.Lock()
	var w *worker
	if len(r.pool.idle) > 0 {
		w = r.pool.idle[0]
	}
	r.pool.mu.Unlock()
	if w != nil {
		<-w.gone
	}
	if _, err := r.Render(t.Context(), source("t", "a: {{ 2 }}"), "jinja|yaml", Context{},
		tree{}); err != nil {
		t.Fatal(err)
	}
	cache := r.pool.python.cache
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cache); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("compiled modules left: %v", err)
	}
	if _, err := r.Render(t.Context(), source("t", "a: {{ 3 }}"), "jinja|yaml", Context{},
		tree{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestForgottenWorkerEnds: a worker in an endless loop ends after its master has died.
func TestForgottenWorkerEnds(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{})
	py, err := r.pool.interpreter()
	if err != nil {
		t.Fatal(err)
	}
	w, err := startWorker(t.Context(), r.opts, py, r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer w.end()
	src := source("t", "#!py\ndef run():\n  while True: pass\n")
	c := &conversation{w: w, q: request{kind: "py", text: string(src.Data), src: src,
		parts: newParts(src, Context{}), host: tree{}}, left: time.Second}
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	w.in.Close()
	<-w.gone
	if status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok ||
		status.Signal() != syscall.SIGALRM {
		t.Errorf("ended by %v", w.cmd.ProcessState)
	}
}

// TestNoInterpreter: a missing or wrong interpreter gives an error with its path and the remedy.
func TestNoInterpreter(t *testing.T) {
	t.Parallel()
	for exe, says := range map[string]string{"/nope/python3": "set render_python",
		"/bin/true": "it ended or did not answer"} {
		r := newRenderer(t, Options{Python: exe})
		_, err := r.Render(t.Context(), source("t", "{{ 1 }}"), "jinja|yaml", Context{}, tree{})
		if err == nil || !strings.Contains(err.Error(), "start render worker "+exe) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", exe, err)
		}
		// A file that needs no worker still renders.
		if v, err := r.Render(t.Context(), source("t", "a: 1"), "jinja|yaml", Context{},
			tree{}); err != nil || !reflect.DeepEqual(v, object("a", int64(1))) {
			t.Errorf("plain file: %v, %v", v, err)
		}
	}
}

// TestManyAtOnce: of many renders at once, some of which lose their worker,
// each gets its own value.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{Workers: 2, OutputLimit: 1 << 20, MemoryLimit: 512 << 20})
	h := tree{
		files: map[string]string{"m.jinja": "{% macro twice(n) %}{{ n }}{{ n }}{% endmacro %}"},
		calls: map[string]func(context.Context, []any, value.Map) (any, error){
			"test.echo": func(_ context.Context, args []any, _ value.Map) (any,
				error) {
				return args[0], nil
			},
		},
	}
	var all errgroup.Group
	for i := range 16 {
		all.Go(func() error {
			for n := range 25 {
				name := fmt.Sprintf("m%d-%d", i, n)
				c := Context{ID: name, Grains: object("id", name)}
				if n%8 == 7 {
					if _, err := r.Render(t.Context(),
						source("bad",
							"#!py\nimport os\ndef run():\n  os.kill(os.getpid(), 9)\n"),
						"jinja|yaml", c, h); !errors.Is(err, ErrWorker) {
						return fmt.Errorf("killed: %w", err)
					}
				}
				v, err := r.Render(t.Context(),
					source("t",
						"{% from 'm.jinja' import twice %}a: {{ twice(grains.id) }}\nb: {{ salt['test.echo'](grains.id) }}"), "jinja|yaml", c, h)
				if want := object("a", name+name, "b", name); err != nil ||
					!reflect.DeepEqual(v, want) {
					return fmt.Errorf("%s: got %v, %w", name, v, err)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	if len(r.pool.idle) > 2 || len(r.pool.busy) != 0 || len(r.pool.free) != 2 {
		t.Errorf("%d idle, %d busy, %d free", len(r.pool.idle), len(r.pool.busy), len(r.pool.free))
	}
}

// TestUnpackingFails: an unwritable folder gives an error, and is not tried again for every file.
func TestUnpackingFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRenderer(t, Options{Dir: filepath.Join(file, "render")})
	_, err := r.Render(t.Context(), source("t", "{{ 1 }}"), "jinja|yaml", Context{}, tree{})
	if err == nil || !strings.Contains(err.Error(), "unpack for render workers: mkdir "+file) {
		t.Fatalf("error %v", err)
	}
	if _, again := r.Render(t.Context(), source("t", "{{ 2 }}"), "jinja|yaml", Context{},
		tree{}); again == nil || r.pool.retry.IsZero() {
		t.Fatalf("again: %v", again)
	}
}

// TestAhead: a render that is ahead gets a worker while another render has the only one. Close
// waits for the end of both.
func TestAhead(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{Workers: 1})
	begun, end := make(chan struct{}), make(chan struct{})
	h := tree{calls: map[string]func(context.Context, []any, value.Map) (any, error){
		"wait.here": func(ctx context.Context, _ []any, _ value.Map) (any, error) {
			begun <- struct{}{}
			select {
			case <-end:
			case <-ctx.Done():
			}
			return 1, nil
		},
	}}
	src := source("t", "a: {{ salt['wait.here']() }}")
	most, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var group errgroup.Group
	for _, ctx := range []context.Context{most, Ahead(most)} {
		group.Go(func() error {
			_, err := r.Render(ctx, src, "jinja|yaml", Context{}, h)
			return err
		})
		select {
		case <-begun:
		case <-most.Done():
			t.Fatal("a render waits for a worker")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Render(ctx, src, "jinja|yaml", Context{}, h); !errors.Is(err, context.Canceled) {
		t.Errorf("a third render: %v", err)
	}
	var closing errgroup.Group
	closing.Go(r.Close)
	<-r.pool.done
	close(end)
	if err := closing.Wait(); err != nil || len(r.pool.busy) > 0 {
		t.Errorf("%d workers after Close: %v", len(r.pool.busy), err)
	}
	_ = group.Wait() // Close ended both
}
