package diskfs

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"clustermaster/store/seal"
)

// Sealed is a file system of encrypted files: a random salt of 16 bytes, then the contents under
// AES-256 in counter mode with a key derived from that salt, so that any offset can be read without
// the bytes before it. Counter mode hides contents and does not detect changes: Pebble's checksums
// find rot, and anyone who can write to a master's disk controls the master anyway.
//
// No byte of a file is written twice under one key: files are only appended to, and a reused file
// gets a new salt.
type Sealed struct {
	vfs.FS
	Key *seal.Key
}

// sealedHead is the size of the salt at the beginning of a file.
const sealedHead = aes.BlockSize

// Create implements vfs.FS.
func (s Sealed) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	salt := make([]byte, sealedHead)
	rand.Read(salt) // never fails
	if _, err := f.Write(append([]byte(nil), salt...)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &sealedFile{File: f, block: s.block(salt)}, nil
}

func (s Sealed) block(salt []byte) cipher.Block {
	block, err := aes.NewCipher(s.Key.Derive("ring store", salt))
	if err != nil {
		panic(err) // only for keys of another length
	}
	return block
}

// Open implements vfs.FS. A crash cut off a file without a complete salt before it had contents.
func (s Sealed) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	salt := make([]byte, sealedHead)
	if _, err := f.ReadAt(salt, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, f.Close())
	}
	return &sealedFile{File: f, block: s.block(salt)}, nil
}

// OpenReadWrite implements vfs.FS. Pebble needs it for shared caches only.
func (s Sealed) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File,
	error) {
	return nil, fmt.Errorf("open %s for writing in place: sealed files are only appended to", name)
}

// ReuseForWrite implements vfs.FS, with a new file in place of the old one.
func (s Sealed) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := s.FS.Remove(old); err != nil {
		return nil, err
	}
	return s.Create(name, category)
}

// Stat implements vfs.FS.
func (s Sealed) Stat(name string) (vfs.FileInfo, error) { return withoutHead(s.FS.Stat(name)) }

// Unwrap implements vfs.FS.
func (s Sealed) Unwrap() vfs.FS { return s.FS }

type sealedFile struct {
	vfs.File
	block cipher.Block

	mu sync.Mutex // guards at, for the io.Reader and the io.Writer
	at int64      // of the next Read or Write
}

// xor encrypts or decrypts p, which is at an offset of the contents.
func (f *sealedFile) xor(p []byte, offset int64) {
	var counter [aes.BlockSize]byte
	binary.BigEndian.PutUint64(counter[8:], uint64(offset/aes.BlockSize))
	stream := cipher.NewCTR(f.block, counter[:])
	if skip := offset % aes.BlockSize; skip > 0 {
		var before [aes.BlockSize]byte
		stream.XORKeyStream(before[:skip], before[:skip])
	}
	stream.XORKeyStream(p, p)
}

// Write implements vfs.File, which allows it to change p.
func (f *sealedFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.xor(p, f.at)
	n, err := f.File.Write(p)
	f.at += int64(n)
	return n, err
}

// Read implements io.Reader.
func (f *sealedFile) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.ReadAt(p, f.at)
	f.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// ReadAt implements io.ReaderAt.
func (f *sealedFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset+sealedHead)
	f.xor(p[:n], offset)
	return n, err
}

// WriteAt implements vfs.File.
func (f *sealedFile) WriteAt([]byte, int64) (int, error) {
	return 0, errors.New("sealed files are only appended to")
}

// The other methods of vfs.File: offsets and sizes there include the salt.

func (f *sealedFile) Preallocate(offset, length int64) error {
	return f.File.Preallocate(offset, length+sealedHead)
}
func (f *sealedFile) Stat() (vfs.FileInfo, error) { return withoutHead(f.File.Stat()) }
func (f *sealedFile) SyncTo(length int64) (full bool, e error) {
	return f.File.SyncTo(length + sealedHead)
}
func (f *sealedFile) Prefetch(offset, length int64) error {
	return f.File.Prefetch(offset+sealedHead, length)
}
func (f *sealedFile) Fd() uintptr { return vfs.InvalidFd }

type sealedInfo struct{ vfs.FileInfo }

func (i sealedInfo) Size() int64 { return max(0, i.FileInfo.Size()-sealedHead) }

// Sys hides the file behind this type from Pebble.
func (i sealedInfo) Sys() any { return nil }

var _ os.FileInfo = sealedInfo{}

func withoutHead(info vfs.FileInfo, err error) (vfs.FileInfo, error) {
	if err != nil || info.IsDir() {
		return info, err
	}
	return sealedInfo{info}, nil
}
