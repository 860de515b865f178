package disk

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// TestPebbleFormatRisesOnlyByLevel opens a store in an older format, as a release before would have
// left it.
func TestPebbleFormatRisesOnlyByLevel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatColumnarBlocks})
	if err != nil {
		t.Fatal(err)
	}
	d := &Store{db: db}
	if err := d.raise(pebble.FormatColumnarBlocks); err != nil ||
		db.FormatMajorVersion() != pebble.FormatColumnarBlocks {
		t.Errorf("raised to the present one: got %d, %v", db.FormatMajorVersion(), err)
	}
	if err := d.raise(pebbleAt(1)); err != nil || db.FormatMajorVersion() != pebbleAt(1) {
		t.Errorf("raised to level 1's: got %d, %v; want %d", db.FormatMajorVersion(), err,
			pebbleAt(1))
	}
	if err := d.raise(pebble.FormatColumnarBlocks); err != nil ||
		db.FormatMajorVersion() != pebbleAt(1) {
		t.Errorf("a format never falls: got %d, %v", db.FormatMajorVersion(), err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if pebbleAt(1) != 24 {
		t.Errorf("level 1 writes Pebble's format %d: release 0.1.0 wrote 24, which must not change with the library", pebbleAt(1))
	}
}
