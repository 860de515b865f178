package fileserver

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"clustermaster/wire"
)

// serveFile answers with one piece of a file. The last piece of each file is an empty one, and names the file all the same: a
// minion makes an empty file from it.
func (s *Server) serveFile(load wire.Map) (any, error) {
	rawLoc, hasLoc := load.Get("loc")
	f, ok := s.required(load)
	if !ok || !hasLoc {
		return wire.Map{{Key: "data", Value: ""}, {Key: "dest", Value: ""}}, nil
	}
	loc, ok := rawLoc.(int64)
	if !ok || loc < 0 {
		return nil, fmt.Errorf("serve %s: bad position %v", f.rel, rawLoc)
	}
	file, _, err := open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	buf := make([]byte, min(int64(s.opts.BufferSize), max(0, f.info.Size()-loc)+1))
	n, err := file.ReadAt(buf, loc)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("serve %s: %w", f.rel, err)
	}
	data := buf[:n]
	s.bytes.Add(float64(n))
	level, err := gzipLevel(load)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", f.rel, err)
	}
	if level == 0 || n == 0 {
		return wire.Map{{Key: "data", Value: data}, {Key: "dest", Value: f.rel}}, nil
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
	return wire.Map{{Key: "data", Value: packed.Bytes()}, {Key: "dest", Value: f.rel}, {Key: "gzip", Value: int64(level)}}, nil
}

// gzipLevel is the compression asked for, 0 for none.
func gzipLevel(load wire.Map) (int, error) {
	switch v, _ := load.Get("gzip"); v := v.(type) {
	case nil:
		return 0, nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case int64:
		if v >= 0 && v <= 9 {
			return int(v), nil
		}
	}
	return 0, errors.New("bad gzip level")
}
