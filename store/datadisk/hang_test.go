package datadisk

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestHang: a disk counts as hanging from ten seconds after the beginning of the oldest write that
// has not ended, until that write ends; others that end meanwhile don't matter.
func TestHang(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := New(dir, Size{}, slog.New(slog.DiscardHandler), nil)
		go func() { _ = d.Run(t.Context()) }()
		look := func(after time.Duration) error {
			time.Sleep(after)
			synctest.Wait()
			return d.Usable()
		}
		first := d.Write()
		time.Sleep(4 * time.Second)
		second := d.Write()
		if err := look(hangsAfter - 4*time.Second); err != nil {
			t.Errorf("after %v: %v", hangsAfter, err)
		}
		err := look(2 * time.Second)
		var hang *HangError
		if !errors.As(err, &hang) || !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "began 12s ago") {
			t.Errorf("2 s later: %v", err)
		}
		if err := d.Low(); err != nil {
			t.Errorf("there is space: %v", err)
		}
		if err := d.Refuse("backup", ""); !errors.Is(err, ErrUnusable) {
			t.Errorf("a backup: %v", err)
		}
		d.Write()()
		if err := look(time.Second); err == nil {
			t.Error("another write ended, and the first one counts no more")
		}
		first()
		if err := look(0); err == nil {
			t.Error("the last look counts until the next one")
		}
		if err := look(lookEvery); err != nil {
			t.Errorf("the second write has taken 9.5 s: %v", err)
		}
		if err := look(time.Second); err == nil {
			t.Error("the second write has taken 10.5 s, and does not count")
		}
		second()
		if err := look(time.Second); err != nil || d.oldest() != 0 {
			t.Errorf("all writes have ended: %v, %v", err, d.oldest())
		}
	})
}
