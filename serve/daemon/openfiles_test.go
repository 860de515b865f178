package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestWarnOpenFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		minions int
		limit   uint64
		warns   bool
	}{{9500, 20_000, false}, {9501, 20_000, true}, {0, 1024, false}, {13, 1024, true}} {
		var out bytes.Buffer
		WarnOpenFiles(tt.minions, tt.limit, slog.New(slog.NewTextHandler(&out, nil)))
		if got := strings.Contains(out.String(), "level=WARN") &&
			strings.Contains(out.String(), "LimitNOFILE"); got != tt.warns {
			t.Errorf("%d minions, %d files: %q", tt.minions, tt.limit, out.String())
		}
	}
	if limit, err := OpenFilesLimit(); err != nil || limit < 256 {
		t.Errorf("limit %d: %v", limit, err)
	}
}
