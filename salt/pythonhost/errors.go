package pythonhost

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrUnknown is wrapped by the error of a call to a function that Salt's loader does not have.
var ErrUnknown = errors.New("no such function")

// ErrHost is wrapped by errors of the host itself: no interpreter, an unsupported Salt.
var ErrHost = errors.New("the Python host can't run")

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the Python host is closed")

// Reasons why a call fails, besides an exception of its function.
const (
	reasonFailed  = "failed" // the function raised an exception
	reasonUnknown = "unknown"
	reasonTime    = "time"
	reasonMemory  = "memory"
	reasonOutput  = "output"
	reasonResult  = "result" // the value can't be sent
	reasonExit    = "exit"
	reasonDied    = "died"
	reasonForks   = "processes"
	reasonCancel  = "canceled"
)

// Error is a call that failed.
type Error struct {
	Reason string
	Fun    string // such as demo.fact
	File   string // of its module; "" if not found yet
	Class  string // of the exception
	Text   string
	Trace  string   // the frames of the function
	Shown  string   // the whole traceback, as Python prints it
	bases  []string // the exception's classes, its own first
}

// Error returns the exception's own text, as Salt shows it, or the reason why the call ended.
func (e *Error) Error() string {
	if e.Reason == reasonFailed || e.Reason == reasonUnknown {
		return e.Text
	}
	where := ""
	if e.File != "" {
		where = " of " + e.File
	}
	module, _, _ := strings.Cut(e.Fun, ".")
	return fmt.Sprintf("function %s (module %s%s) %s", e.Fun, module, where, e.Text)
}

// Is reports whether target is ErrUnknown and the function is unknown.
func (e *Error) Is(target error) bool { return target == ErrUnknown && e.Reason == reasonUnknown }

// Raised reports whether the function raised an exception of the class, or of one derived from it.
func (e *Error) Raised(class string) bool { return slices.Contains(e.bases, class) }

// ended makes the error of a stopped call.
func (o *Options) ended(reason, fun, file, detail string, limit time.Duration) *Error {
	e := &Error{Reason: reason, Fun: fun, File: file}
	switch reason {
	case reasonTime:
		e.Text = fmt.Sprintf("took longer than %s and was stopped (option %s)", limit, detail)
	case reasonMemory:
		e.Text = fmt.Sprintf("needed more than %d bytes of memory and was stopped (option python_memory)", o.Memory)
	case reasonOutput:
		e.Text = fmt.Sprintf("made more than %d bytes and was stopped (option python_output)",
			o.Output)
	case reasonForks:
		e.Text = fmt.Sprintf("started more than %d processes and was stopped (option python_processes)", o.Processes)
	case reasonExit:
		e.Text = fmt.Sprintf("called exit(%s)", detail)
	case reasonResult:
		e.Text = "returned what can't be sent: " + detail
	case reasonCancel:
		e.Text = "was stopped: its caller left"
	default:
		e.Text = "ended its process: " + detail
	}
	return e
}

// ExceptionClass returns the name of the exception's class; "" without an exception.
func (e *Error) ExceptionClass() string { return e.Class }
