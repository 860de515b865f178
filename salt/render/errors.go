package render

import (
	"context"
	"errors"
	"fmt"
)

// Error says why a file doesn't render. Its text is Salt's where Salt has one.
type Error struct {
	Path, SLS string
	Renderer  string
	Line      int // in the file, from 1; 0 if unknown
	Text      string
	err       error
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause: ErrTime, ErrMemory or ErrOutput if a limit ended the render.
func (e *Error) Unwrap() error { return e.err }

// Limits that end a render. A worker over its time or memory is replaced.
var (
	ErrTime   = errors.New("takes too long")
	ErrMemory = errors.New("needs too much memory")
	ErrOutput = errors.New("result is too large")
	// ErrWorker is returned if a worker ended for another reason.
	ErrWorker = errors.New("render worker ended")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("renderer is closed")
)

// problem is an error in the file, found by the worker.
type problem struct {
	text string
	line int
}

func (p *problem) Error() string { return p.text }

// explain makes the caller's error.
func (j *job) explain(ctx context.Context, renderer string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("render %s: %w", j.src.Path, context.Cause(ctx))
	}
	e := &Error{Path: j.src.Path, SLS: j.src.SLS, Renderer: renderer, Text: err.Error(), err: err}
	o := j.r.opts
	limit := ""
	var p *problem
	switch {
	case errors.As(err, &p):
		e.Line = p.line
		return e
	case errors.Is(err, ErrTime):
		limit = fmt.Sprintf("took longer than %s and was stopped (option render_timeout)",
			o.Timeout)
	case errors.Is(err, ErrMemory):
		limit = fmt.Sprintf("needed more than %d bytes of memory and was stopped (option render_memory)", o.MemoryLimit)
	case errors.Is(err, ErrOutput):
		limit = fmt.Sprintf("made more than %d bytes and was stopped (option render_output)",
			o.OutputLimit)
	default:
		return e
	}
	e.Text = fmt.Sprintf("render of %s with %s %s", j.src.Path, renderer, limit)
	j.r.log.Warn("render stopped", "path", j.src.Path, "sls", j.src.SLS, "renderer", renderer,
		"err", err)
	return e
}
