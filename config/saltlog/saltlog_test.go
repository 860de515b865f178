package saltlog

import (
	"bytes"
	"log/slog"
	"regexp"
	"testing"
)

func TestLines(t *testing.T) {
	t.Parallel()
	var console, file bytes.Buffer
	log := slog.New(New(
		Output{To: Stream(&console), Level: slog.LevelWarn,
			Layout: layout(t, FormatConsole, DatesOfConsole)},
		Output{To: Stream(&file), Level: slog.LevelInfo,
			Layout: layout(t, FormatFile, DatesOfFile)},
	))
	log = log.With("component", "cluster", "node", "m1")
	log.Info("peer promoted", "peer", "m 2")
	log.Error("forged\n[ERROR   ] line", slog.Group("g", "k", 1))
	log.Debug("never")
	if got, want := console.String(),
		"[ERROR   ] forged\\n[ERROR   ] line node=m1 g.k=1\n"; got != want {
		t.Errorf("console got %q want %q", got, want)
	}
	want := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \[clustermaster\.cluster:\d+ +\]\[INFO    \]\[\d+\] peer promoted node=m1 peer="m 2"\n`)
	if !want.MatchString(file.String()) {
		t.Errorf("file got %q", file.String())
	}
	if n := bytes.Count(file.Bytes(), []byte("\n")); n != 2 {
		t.Errorf("file has %d lines, want 2", n)
	}
}

func TestParseLevel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]slog.Level{"garbage": LevelTrace, "DEBUG": slog.LevelDebug,
		"info": slog.LevelInfo, "": slog.LevelWarn, "critical": LevelCritical,
		"quiet": levelQuiet} {
		if got, err := ParseLevel(name); err != nil || got != want {
			t.Errorf("ParseLevel(%q) = %v, %v; want %v", name, got, err, want)
		}
	}
	if _, err := ParseLevel("loud"); err == nil {
		t.Error("ParseLevel(loud) gave no error")
	}
}

func layout(t *testing.T, format, dates string) Layout {
	t.Helper()
	l, err := NewLayout(format, dates)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
