package saltlog

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The answers are those of Python's % operator, with a record of the same values.
func TestPythonLayouts(t *testing.T) {
	t.Parallel()
	r := &Record{
		Time: time.Date(2026, 2, 3, 4, 5, 6, 78_900_000, time.Local), Level: slog.LevelWarn,
		Component: "cluster",
		Text:      "disk is full", Attrs: " path=/srv",
	}
	pid := strconv.Itoa(os.Getpid())
	for format, want := range map[string]string{
		FormatConsole: "[WARNING ] disk is full path=/srv",
		FormatFile: "2026-02-03 04:05:06,078 [clustermaster.cluster:0   ][WARNING ][" + pid +
			"] disk is full path=/srv",
		"%(levelno)d %(levelno)5d|%(levelno)-5d|%(levelno)05d|%(levelno)s": "30    30|30   |00030|30",
		"100%% %(name)25s|%(name)-25s|%(name).5s":                          "100%     clustermaster.cluster|clustermaster.cluster    |clust",
		"%(msecs)d %(msecs)03d %(msecs).1f":                                "78 078 78.0",
		"%(bracketlevel)s%(bracketname)s%(jid)s":                           "[WARNING ][clustermaster.cluster]",
		"%(colorlevel)s %(colormsg)s":                                      "\x1b[0;1;33m[WARNING ]\x1b[0m \x1b[0;33mdisk is full path=/srv\x1b[0m",
	} {
		if got, want := string(layout(t, format, DatesOfFile).Append(nil, r)), want+
			"\n"; got != want {
			t.Errorf("%s\n got %q\nwant %q", format, got, want)
		}
	}
	for format, part := range map[string]string{
		"%(massage)s":   "not a field of log records",
		"%(message)d":   "the field is text",
		"%s":            "not a placeholder",
		"50% done":      "not a placeholder",
		"%(message":     "not a placeholder",
		"%(message)99x": "not a placeholder",
	} {
		if _, err := NewLayout(format, DatesOfFile); err == nil ||
			!strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v; want an error with %q", format, err, part)
		}
	}
}

func TestJSONLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(New(Output{To: Stream(&out), Layout: layout(t, FormatJSON, "")}))
	log.With("component", "cluster", "node", "m1").Error("a\nb",
		slog.Group("g", "n", 3, "took", time.Second))
	var line struct {
		Time                           time.Time
		Level, Logger, Message, Source string
		Fields                         map[string]any
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil ||
		strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("%q: %v", out.String(), err)
	}
	if line.Level != "ERROR" || line.Logger != "clustermaster.cluster" || line.Message != `a\nb` ||
		!strings.HasPrefix(line.Source, "layout_test.go:") {
		t.Errorf("got %+v", line)
	}
	if line.Fields["node"] != "m1" || line.Fields["g.n"] != 3.0 || line.Fields["g.took"] != "1s" ||
		line.Time.IsZero() {
		t.Errorf("fields %v", line.Fields)
	}
}

func TestLevelsOfComponents(t *testing.T) {
	t.Parallel()
	levels, err := ParseLevels(map[string]string{"salt": "error", "salt.cluster": "debug",
		"clustermaster.cluster.raft": "quiet"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	h := New(Output{To: Stream(&out), Level: slog.LevelInfo, Levels: levels,
		Layout: layout(t, "%(name)s %(message)s", "")})
	log := slog.New(h)
	log.Warn("no")
	log.Error("yes")
	log.With("component", "cluster").Debug("yes")
	log.With("component", "cluster.raft").Error("no")
	log.With("component", "clusters").Warn("no")
	h.Replace(Output{To: Stream(&out), Level: slog.LevelWarn,
		Layout: layout(t, "new %(message)s", "")})
	log.Warn("yes")
	if got, want := out.String(),
		"clustermaster yes\nclustermaster.cluster yes\nnew yes\n"; got != want {
		t.Errorf("got %q want %q", got, want)
	}
	if _, err := ParseLevels(map[string]string{"salt": "loud"}); err == nil {
		t.Error("the level loud is taken")
	}
}
