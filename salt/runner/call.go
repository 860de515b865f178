package runner

import (
	"math"
	"strconv"
	"strings"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Call is one running call of a function, as the function sees it. Only one goroutine may use it.
type Call struct {
	JID  string
	User string
	Tag  string // that the call's events begin with

	bound  function.Bound
	args   []any
	kwargs value.Map
	print  func(text string)
	event  func(suffix string, data value.Map)
	warn   func(text string)
	show   func(kind, text string)
	// forTemplate is Request.ForTemplate.
	forTemplate bool
}

// Print writes one line to the operator's standard output, outside the result.
func (c *Call) Print(line string) { c.print(line + "\n") }

// Write writes text to the operator's standard output unchanged, or with warning to standard error.
func (c *Call) Write(text string, warning bool) {
	if warning {
		c.warn(text)
		return
	}
	c.print(text)
}

// Warn writes one line to the operator's standard error, for example what the result lacks.
func (c *Call) Warn(line string) { c.warn(line + "\n") }

// Error writes a text to the operator's standard error, as an error of a log.
func (c *Call) Error(text string) { c.show("error", text) }

// Show prints a text in place of the result, unless the operator chose an outputter.
func (c *Call) Show(text string) { c.show("show", text+"\n") }

// Meter shows a line on the operator's terminal until the next output of any kind; an empty line
// removes it.
func (c *Call) Meter(line string) { c.show("meter", line) }

// Progress fires a progress event of this call and shows it to the operator.
func (c *Call) Progress(data value.Map) { c.event("progress", data) }

// Event fires an event below the call's tag and shows its data to the operator.
func (c *Call) Event(suffix string, data value.Map) { c.event(suffix, data) }

// Raw returns the arguments as they came.
func (c *Call) Raw() ([]any, value.Map) { return c.args, c.kwargs }

// Arg is the value of a parameter: what the caller gave, or the default.
func (c *Call) Arg(name string) any { return c.bound.Named[name] }

// Given reports whether a parameter has a value other than None.
func (c *Call) Given(name string) bool { return c.bound.Named[name] != nil }

// Text is a parameter as text; None is "".
func (c *Call) Text(name string) string {
	v := c.bound.Named[name]
	if v == nil {
		return ""
	}
	return value.Str(v)
}

// True is Python's truth of a parameter.
func (c *Call) True(name string) bool { return value.Truth(c.bound.Named[name]) }

// Number is a parameter as a float. The error is an *function.ArgumentError.
func (c *Call) Number(name string) (float64, error) {
	switch x := c.bound.Named[name].(type) {
	case float64:
		return x, nil
	case bool:
		if x {
			return 1, nil
		}
		return 0, nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(x), 64)
		if err != nil || math.IsNaN(f) {
			break
		}
		return f, nil
	default:
		if s, ok := value.Int(x); ok {
			f, err := strconv.ParseFloat(s, 64)
			return f, err
		}
	}
	return 0, &function.ArgumentError{Text: name + " must be a number, not " +
		value.Repr(c.bound.Named[name])}
}

// Seconds is a parameter in seconds; None and zero give fallback. Values are bounded to a week.
func (c *Call) Seconds(name string, fallback time.Duration) (time.Duration, error) {
	if !c.True(name) {
		return fallback, nil
	}
	n, err := c.Number(name)
	if err != nil {
		return 0, err
	}
	const week = 7 * 24 * time.Hour
	if n < 0 || n > week.Seconds() {
		return 0, &function.ArgumentError{Text: name + " must lie between 0 and " +
			strconv.Itoa(int(week.Seconds())) + " seconds"}
	}
	return time.Duration(n * float64(time.Second)), nil
}

// Texts is a parameter that may be a list or a text with commas, as a list of texts.
func (c *Call) Texts(name string) []string { return textList(c.bound.Named[name]) }

// Rest are the positional arguments beyond the named ones; Kwargs the keywords beyond them.
func (c *Call) Rest() []any       { return c.bound.Rest }
func (c *Call) Kwargs() value.Map { return c.bound.Kwargs }

func textList(v any) []string {
	switch x := value.Plain(v).(type) {
	case nil:
		return nil
	case []any:
		out := make([]string, 0, len(x))
		for _, e := range x {
			out = append(out, value.Str(e))
		}
		return out
	case string:
		var out []string
		for _, part := range strings.Split(x, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
		return out
	default:
		return []string{value.Str(x)}
	}
}
