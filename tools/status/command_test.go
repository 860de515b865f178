package status

import (
	"context"
	"os"
	"testing"
	"time"
)

// TestUnreadWatch: watch ends when nobody reads its pages any more.
func TestUnreadWatch(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dir := t.TempDir() // no master runs there
	for _, until := range [][]string{nil, {"--until", "healthy"}} {
		code := Command(ctx, "watch", append([]string{"-c", dir, "-n", "0.2"}, until...), w,
			os.Stderr)
		if code == exitGood || ctx.Err() != nil {
			t.Errorf("watch %q: exit %d, %v", until, code, ctx.Err())
		}
	}
}
