package keystore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"clustermaster/wire"
)

// MmapLayout holds the options of Salt's mmap_key driver (2-master-functions.md 10.3). The zero
// value means its defaults.
type MmapLayout struct {
	Slots    int // mmap_key_size, 1,000,000
	SlotSize int // mmap_key_slot_size in bytes, 96
	IDSize   int // mmap_key_id_size in bytes, 64
}

func (l MmapLayout) withDefaults() (MmapLayout, error) {
	if l.Slots == 0 {
		l.Slots = 1_000_000
	}
	if l.SlotSize == 0 {
		l.SlotSize = 96
	}
	if l.IDSize == 0 {
		l.IDSize = 64
	}
	if l.IDSize < 1 || l.IDSize > 4096 || l.SlotSize < l.IDSize+slotFixed || l.SlotSize < 25 ||
		l.SlotSize > 8192 || l.Slots < 2 || l.Slots > 1<<31 {
		return l,
			fmt.Errorf("mmap_key_size %d, mmap_key_slot_size %d, mmap_key_id_size %d: do not fit together", l.Slots, l.SlotSize, l.IDSize)
	}
	return l, nil
}

// The format of the index (salt/utils/mmap_cache.py, Salt 3008).
const (
	mmapMagic    = 0xAB
	slotFixed    = 21 // status, heap pointer, length, mtime
	slotOccupied = 1
	heapOffset   = 1<<48 - 1 // low bits of a heap pointer; the high bits number the segment
	heapSum      = 8         // XXH3-64 before each value
	maxSegment   = 1 << 30
	maxIndex     = 4 << 30
)

// bank files.
const (
	keysBank   = ".mmap_keys.idx"
	deniedBank = ".mmap_denied.idx"
	masterBank = ".mmap_master.idx"
)

// ErrMmap says that files are not in the format of the mmap_key driver.
var ErrMmap = errors.New("not in the form of mmap_key")

// HasMmap reports whether a pki directory has the files of the mmap_key driver.
func HasMmap(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, keysBank))
	return err == nil
}

// readMmapDir reads the keys of the mmap_key driver with its default layout. Without files it
// returns none.
func readMmapDir(dir string) ([]Key, error) { return ReadMmap(dir, MmapLayout{}) }

// ReadMmap reads the keys of a pki directory of the mmap_key driver. No Salt master may write to it
// meanwhile.
func ReadMmap(dir string, l MmapLayout) ([]Key, error) {
	l, err := l.withDefaults()
	if err != nil {
		return nil, err
	}
	var keys []Key
	for _, bank := range []string{keysBank, deniedBank} {
		err := readBank(filepath.Join(dir, bank), l,
			func(id string, mtime time.Time, value []byte) error {
				k := Key{ID: id, State: Denied, Since: mtime}
				if bank == keysBank {
					if len(value) == 0 || State(value[0]) < Accepted || State(value[0]) > Rejected {
						return fmt.Errorf("%s: unknown state: %w", id, ErrMmap)
					}
					k.State, value = State(value[0]), value[1:]
				}
				if keyName(id) {
					k.Pub = wire.CleanKey(string(value))
					keys = append(keys, k)
				}
				return nil
			})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, bank), err)
		}
	}
	return keys, nil
}

// ReadMmapMaster reads one of the master's own files, such as master.pem, that the mmap_key driver
// keeps in dir. If absent the error is fs.ErrNotExist.
func ReadMmapMaster(dir, name string) ([]byte, error) {
	l, err := MmapLayout{}.withDefaults()
	if err != nil {
		return nil, err
	}
	var found []byte
	path := filepath.Join(dir, masterBank)
	err = readBank(path, l, func(id string, _ time.Time, value []byte) error {
		if id == name {
			found = value
		}
		return nil
	})
	if err == nil && found == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read %s from %s: %w", name, path, err)
	}
	return found, nil
}

// readBank opens the files of one bank. If absent the bank is empty.
func readBank(path string, l MmapLayout,
	each func(id string, mtime time.Time, value []byte) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	segments := make(map[uint16]*os.File)
	defer func() {
		for _, s := range segments {
			s.Close()
		}
	}()
	open := func(n uint16) (io.ReaderAt, error) {
		if s, ok := segments[n]; ok {
			return s, nil
		}
		name := path + ".heap"
		if n > 0 {
			name = fmt.Sprintf("%s.%d", name, n)
		}
		s, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		segments[n] = s
		return s, nil
	}
	return scanIndex(bufio.NewReaderSize(io.LimitReader(f, maxIndex), 1<<20), l, open, each)
}

// scanIndex reads all occupied slots of an index and their values.
func scanIndex(index io.Reader, l MmapLayout, heap func(segment uint16) (io.ReaderAt, error),
	each func(id string, mtime time.Time, value []byte) error) error {
	slot := make([]byte, l.SlotSize)
	for n := 0; ; n++ {
		if _, err := io.ReadFull(index, slot); errors.Is(err, io.EOF) {
			return nil
		} else if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("slot %d is cut off: %w", n, ErrMmap)
		} else if err != nil {
			return err
		}
		if n == 0 {
			if slot[0] != mmapMagic && slot[0] != 0 { // zero: created, never written to
				return fmt.Errorf("magic %#x: %w", slot[0], ErrMmap)
			}
			continue
		}
		if slot[0] != slotOccupied {
			continue
		}
		name := slot[1 : 1+l.IDSize]
		if i := slices.Index(name, 0); i >= 0 {
			name = name[:i]
		}
		id := string(name)
		rest := slot[1+l.IDSize:]
		pointer := binary.LittleEndian.Uint64(rest)
		length := binary.LittleEndian.Uint32(rest[8:])
		mtime := time.Unix(0, int64(binary.LittleEndian.Uint64(rest[12:])&(1<<63-1))).UTC()
		if length == 0 {
			continue // presence without a value
		}
		if length > maxKeyFile {
			return fmt.Errorf("%q: value of %d bytes: %w", id, length, ErrMmap)
		}
		segment, err := heap(uint16(pointer >> 48))
		if err != nil {
			return fmt.Errorf("%q: %w", id, err)
		}
		record := make([]byte, heapSum+int(length))
		if _, err := segment.ReadAt(record, int64(pointer&heapOffset)); err != nil {
			return fmt.Errorf("%q: heap record: %w: %w", id, ErrMmap, err)
		}
		value := record[heapSum:]
		if binary.LittleEndian.Uint64(record) != xxh3.Hash(value) {
			return fmt.Errorf("%q: heap record has a wrong checksum; delete the key with salt-key: %w", id, ErrMmap)
		}
		if err := each(id, mtime, value); err != nil {
			return err
		}
	}
}

// WriteMmap writes all keys of the store into dir in the format of the mmap_key driver with its
// default layout.
func (s *Store) WriteMmap(dir string) error {
	var keys []Key
	for state, ids := range s.List() {
		for _, id := range ids {
			if text, ok := s.Text(id, state); ok {
				keys = append(keys, Key{ID: id, State: state, Pub: text})
			}
		}
	}
	return WriteMmap(dir, MmapLayout{}, keys)
}

// WriteMmap writes keys in the format of the mmap_key driver and replaces the present contents. Of
// several denied keys of an id the first counts, as in Salt. No Salt master may use the directory
// meanwhile: WriteMmap replaces three files per bank one after the other.
func WriteMmap(dir string, l MmapLayout, keys []Key) error {
	l, err := l.withDefaults()
	if err != nil {
		return err
	}
	banks := map[string][]Key{keysBank: nil, deniedBank: nil}
	seen := make(map[string]bool)
	for _, k := range keys {
		bank := keysBank
		switch k.State {
		case Accepted, Pending, Rejected:
		case Denied:
			bank = deniedBank
		default:
			return fmt.Errorf("write mmap_key: %s: key without a state", k.ID)
		}
		if seen[bank+k.ID] {
			continue
		}
		seen[bank+k.ID] = true
		if len(k.ID) > l.IDSize {
			return fmt.Errorf("write mmap_key: id %s is longer than %d bytes; raise mmap_key_id_size", k.ID, l.IDSize)
		}
		banks[bank] = append(banks[bank], k)
	}
	for bank, keys := range banks {
		if len(keys) >= l.Slots-1 {
			return fmt.Errorf("write mmap_key: %d keys in %d slots; raise mmap_key_size", len(keys),
				l.Slots)
		}
		if err := writeBank(filepath.Join(dir, bank), l, keys); err != nil {
			return fmt.Errorf("write mmap_key: %w", err)
		}
	}
	return nil
}

func writeBank(path string, l MmapLayout, keys []Key) (err error) {
	var made []*os.File
	create := func() (*os.File, error) {
		f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
		if err == nil {
			made = append(made, f)
		}
		return f, err
	}
	defer func() {
		for _, f := range made {
			f.Close()
			if err != nil {
				os.Remove(f.Name())
			}
		}
	}()
	index, err := create()
	if err != nil {
		return err
	}
	heap, err := create()
	if err != nil {
		return err
	}
	roster, err := create()
	if err != nil {
		return err
	}
	if err := index.Truncate(int64(l.Slots) * int64(l.SlotSize)); err != nil {
		return err
	}
	records, slots := bufio.NewWriter(heap), bufio.NewWriter(roster)
	taken := make(map[uint64]bool, len(keys))
	segmentAt, high := int64(0), uint64(0)
	data := uint64(l.Slots - 1)
	for _, k := range keys {
		value := []byte(k.Pub)
		if k.State != Denied {
			value = append([]byte{byte(k.State)}, value...)
		}
		if len(value) > maxKeyFile || segmentAt+int64(len(value))+heapSum > maxSegment {
			return fmt.Errorf("%s: no room", k.ID)
		}
		at := xxh3.Hash([]byte(k.ID)) % data
		for taken[at] {
			at = (at + 1) % data
		}
		taken[at] = true
		number := at + 1
		high = max(high, number)
		slot := make([]byte, l.SlotSize)
		slot[0] = slotOccupied
		copy(slot[1:], k.ID)
		rest := slot[1+l.IDSize:]
		binary.LittleEndian.PutUint64(rest, uint64(segmentAt))
		binary.LittleEndian.PutUint32(rest[8:], uint32(len(value)))
		binary.LittleEndian.PutUint64(rest[12:], uint64(max(0, k.Since.UnixNano())))
		if _, err := index.WriteAt(slot, int64(number)*int64(l.SlotSize)); err != nil {
			return err
		}
		_, _ = records.Write(binary.LittleEndian.AppendUint64(nil, xxh3.Hash(value)))
		_, _ = records.Write(value)
		// bufio keeps the error until Flush
		_, _ = slots.Write(binary.LittleEndian.AppendUint32(nil, uint32(number)))
		segmentAt += heapSum + int64(len(value))
	}
	header := make([]byte, 25)
	header[0] = mmapMagic
	binary.LittleEndian.PutUint64(header[1:], uint64(len(keys)))
	binary.LittleEndian.PutUint64(header[17:], high)
	if _, err := index.WriteAt(header, 0); err != nil {
		return err
	}
	if err := errors.Join(records.Flush(), slots.Flush()); err != nil {
		return err
	}
	for n := 1; ; n++ { // segments of the previous contents
		err := os.Remove(fmt.Sprintf("%s.heap.%d", path, n))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
	}
	for f, name := range map[*os.File]string{heap: path + ".heap", roster: path + ".roster",
		index: path} {
		if err := errors.Join(f.Chmod(0o600), f.Sync()); err != nil {
			return err
		}
		if err := os.Rename(f.Name(), name); err != nil {
			return err
		}
	}
	return nil
}
