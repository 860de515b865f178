package keystore

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"
)

func FuzzScanIndex(f *testing.F) {
	index, err := os.ReadFile("testdata/mmap/.mmap_keys.idx")
	if err != nil {
		f.Fatal(err)
	}
	heap, err := os.ReadFile("testdata/mmap/.mmap_keys.idx.heap")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(index, heap)
	f.Add(index[:96*3], heap[:40])
	layout, err := MmapLayout{}.withDefaults()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, index, heap []byte) {
		values := 0
		_ = scanIndex(bytes.NewReader(index), layout,
			func(uint16) (io.ReaderAt, error) { return bytes.NewReader(heap), nil },
			func(id string, _ time.Time, value []byte) error {
				values++
				if len(id) > layout.IDSize || len(value) == 0 || len(value) > maxKeyFile {
					t.Fatalf("id of %d bytes, value of %d", len(id), len(value))
				}
				return nil
			})
		if values > len(index)/layout.SlotSize {
			t.Fatal("more values than slots")
		}
	})
}
