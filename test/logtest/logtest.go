// Package logtest collects the log lines of many goroutines, so that tests can read them while more
// come.
package logtest

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer collects lines. The zero value is empty.
type Buffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all that was written so far.
func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Contains reports whether a text was written.
func (l *Buffer) Contains(text string) bool { return strings.Contains(l.String(), text) }
