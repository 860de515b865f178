package fileserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"clustermaster/value"
)

// serveFile answers with one piece of a file. The last piece of each file is an empty one, and
// names the file all the same: a minion makes an empty file from it.
func (s *Server) serveFile(ctx context.Context, load value.Map) (any, error) {
	rawLoc, hasLoc := load.Get("loc")
	f, ok, err := s.required(ctx, load)
	if err != nil {
		return nil, err
	}
	if !ok || !hasLoc {
		return value.Map{{Key: "data", Value: ""}, {Key: "dest", Value: ""}}, nil
	}
	loc, ok := rawLoc.(int64)
	if !ok || loc < 0 {
		return nil, fmt.Errorf("serve %s: bad position %v", f.rel, rawLoc)
	}
	data, err := s.piece(ctx, f, loc)
	if errors.Is(err, ErrAbsent) && loc == 0 { // later, a minion would take this for the end
		return value.Map{{Key: "data", Value: ""}, {Key: "dest", Value: ""}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", f.rel, err)
	}
	s.bytes.Add(float64(len(data)))
	level, err := gzipLevel(load)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", f.rel, err)
	}
	if level == 0 || len(data) == 0 {
		return value.Map{{Key: "data", Value: data}, {Key: "dest", Value: f.rel}}, nil
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, level)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress %s: %w", f.rel, err)
	}
	return value.Map{{Key: "data", Value: packed.Bytes()}, {Key: "dest", Value: f.rel},
		{Key: "gzip", Value: int64(level)}}, nil
}

// piece reads up to file_buffer_size bytes at loc. It is not written to: others may have the same.
func (s *Server) piece(ctx context.Context, f found, loc int64) ([]byte, error) {
	if f.other != nil {
		return f.other.Piece(ctx, loc, s.opts.BufferSize)
	}
	at, keep := marksOf(f.info)
	keep = keep && at.size <= maxKeptFile
	if keep {
		if data, ok := s.contents.get(f.path, at); ok {
			s.kept.Inc()
			from := min(loc, int64(len(data)))
			return data[from:min(from+int64(s.opts.BufferSize), int64(len(data)))], nil
		}
	}
	file, _, err := open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if keep {
		if err := s.keep(file, f.path, at); err != nil {
			return nil, err
		}
	}
	buf := make([]byte, min(int64(s.opts.BufferSize), max(0, f.info.Size()-loc)+1))
	n, err := file.ReadAt(buf, loc)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return buf[:n], nil
}

// keep reads a small file for those who ask next, if it is the version that the marks are of,
// before and after.
func (s *Server) keep(file *os.File, path string, at marks) error {
	buf := make([]byte, at.size+1)
	n, err := file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if after, ok := marksOf(info); ok && after == at && int64(n) == at.size {
		s.contents.put(path, at, buf[:n:n])
	}
	return nil
}

// gzipLevel is the compression asked for, 0 for none; -1 is the usual one.
func gzipLevel(load value.Map) (int, error) {
	switch v, _ := load.Get("gzip"); v := v.(type) {
	case int64:
		if v >= gzip.DefaultCompression && v <= gzip.BestCompression {
			return int(v), nil
		}
	case nil:
		return 0, nil
	case bool:
		if v {
			return gzip.BestSpeed, nil
		}
		return 0, nil
	case string:
		if v == "" {
			return 0, nil
		}
	}
	return 0, errors.New("bad gzip level")
}
