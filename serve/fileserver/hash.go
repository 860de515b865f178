package fileserver

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"clustermaster/value"
)

// hashed is a hash that was worked out, with the marks of the file that it was.
type hashed struct {
	mtime time.Time
	size  int64
	sum   string
}

// settled is how old a change must be before its hash is kept: a file changed twice within the
// clock's grain looks the same.
const settled = 2 * time.Second

// sum hashes a file, or remembers its hash while time and size of it are the same.
func (s *Server) sum(ctx context.Context, f found) (string, error) {
	if f.other != nil {
		return f.other.Sum(ctx)
	}
	if sum, ok := s.known(f); ok {
		return sum, nil
	}
	select {
	case s.hashing <- struct{}{}:
		defer func() { <-s.hashing }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if sum, ok := s.known(f); ok { // others asked for it, too
		return sum, nil
	}
	file, info, err := open(f.path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := s.newHash()
	buf := make([]byte, 1<<17)
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := file.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("hash %s: %w", f.path, err)
		}
	}
	s.hashed.Inc()
	sum := hex.EncodeToString(h.Sum(nil))
	after, err := file.Stat()
	if err != nil || !after.ModTime().Equal(info.ModTime()) || after.Size() != info.Size() ||
		time.Since(info.ModTime()) < settled {
		return sum, nil // what was read is what it was; only not worth keeping
	}
	s.hashMu.Lock()
	defer s.hashMu.Unlock()
	if len(s.hashes) >= maxHashes {
		for path := range s.hashes { // any half of them
			if delete(s.hashes, path); len(s.hashes) < maxHashes/2 {
				break
			}
		}
	}
	s.hashes[f.path] = hashed{mtime: info.ModTime(), size: info.Size(), sum: sum}
	return sum, nil
}

// known returns the hash that is kept of a file, if the file is still the same.
func (s *Server) known(f found) (sum string, ok bool) {
	s.hashMu.Lock()
	defer s.hashMu.Unlock()
	h, ok := s.hashes[f.path]
	return h.sum, ok && h.size == f.info.Size() && h.mtime.Equal(f.info.ModTime())
}

// open opens a regular file. What has become something else since it was found (a pipe would block)
// is not opened.
func open(path string) (*os.File, fs.FileInfo, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: not a regular file", path)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

func (s *Server) fileHash(ctx context.Context, load value.Map) (any, error) {
	f, ok, err := s.required(ctx, load)
	if err != nil {
		return nil, err
	}
	if !ok {
		return "", nil // exactly this: a minion takes an empty map for a file
	}
	sum, err := s.sum(ctx, f)
	if errors.Is(err, ErrAbsent) {
		return "", nil
	}
	if err != nil {
		return nil, err
	}
	return value.Map{{Key: "hash_type", Value: s.opts.HashType}, {Key: "hsum", Value: sum}}, nil
}

func (s *Server) hashAndStat(ctx context.Context, load value.Map) (any, error) {
	f, ok, err := s.required(ctx, load)
	if err != nil {
		return nil, err
	}
	if !ok {
		return []any{"", nil}, nil
	}
	sum, err := s.sum(ctx, f)
	if errors.Is(err, ErrAbsent) {
		return []any{"", nil}, nil
	}
	if err != nil {
		return nil, err
	}
	return []any{value.Map{{Key: "hash_type", Value: s.opts.HashType}, {Key: "hsum", Value: sum}},
		f.stat()}, nil
}
