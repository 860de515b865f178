package saltlog

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hangingSink hangs while there is something in gate.
type hangingSink struct {
	bytes.Buffer
	gate chan struct{} // capacity 1
}

func (s *hangingSink) Write(_ *Record, line []byte) error {
	s.gate <- struct{}{}
	defer func() { <-s.gate }()
	_, err := s.Buffer.Write(line)
	return err
}

// TestAnOutputThatHangs: one output hangs. Callers wait once, and for a second; the other output
// has every line. Later the first one gets what waited, in order, and is told how many are missing.
func TestAnOutputThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &hangingSink{gate: make(chan struct{}, 1)}
		var good bytes.Buffer
		h := New(Output{To: bad, Layout: layout(t, "%(message)s", "")},
			Output{To: Stream(&good), Layout: layout(t, "%(message)s", "")})
		log := slog.New(h)
		log.Info("before")
		bad.gate <- struct{}{}
		began := time.Now()
		const lines = 3000
		for n := range lines {
			log.Info(fmt.Sprintf("line %d", n))
		}
		if took := time.Since(began); took != patience {
			t.Errorf("%d lines took %v, want %v", lines, took, patience)
		}
		if n := strings.Count(good.String(), "\n"); n != 1+lines {
			t.Errorf("the other output has %d lines", n)
		}
		// One is being written.
		if n := h.outs.lost.Load(); n != lines-maxLines-1 {
			t.Errorf("%d lines are lost", n)
		}
		<-bad.gate
		synctest.Wait()
		log.Info("after")
		h.Replace()
		got := strings.Split(strings.TrimSpace(bad.String()), "\n")
		want := []string{"before"}
		for n := range maxLines + 1 {
			want = append(want, fmt.Sprintf("line %d", n))
		}
		want = append(want, fmt.Sprintf("lines are missing here: this output took none for a while n=%d",
			lines-maxLines-1), "after")
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%d lines, want %d; the last are %q", len(got), len(want), got[len(got)-3:])
		}
	})
}

// TestLongLinesThatWait: the bytes that wait for an output that hangs are bounded.
func TestLongLinesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &hangingSink{gate: make(chan struct{}, 1)}
		h := New(Output{To: bad, Layout: layout(t, "%(message)s", "")})
		log := slog.New(h)
		bad.gate <- struct{}{}
		for range 20 {
			log.Info(strings.Repeat("x", maxBytes/8))
		}
		if n := h.outs.list.Load(); (*n)[0].bytes.Load() > maxBytes || h.outs.lost.Load() < 10 {
			t.Errorf("%d bytes wait, and %d lines are lost", (*n)[0].bytes.Load(), h.outs.lost.Load())
		}
		<-bad.gate
		h.Replace()
	})
}
