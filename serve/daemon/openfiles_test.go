package daemon

import (
	"bytes"
	"log/slog"
	"math"
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
	for limit, want := range map[uint64]int{65_536: 64_536, 1024: 512, math.MaxUint64: 1<<30 - 1000} {
		if got := MinionConnections(limit); got != want {
			t.Errorf("of %d files %d are for minions, want %d", limit, got, want)
		}
	}
	if limit, err := OpenFilesLimit(); err != nil || limit < 256 {
		t.Errorf("limit %d: %v", limit, err)
	}
}
