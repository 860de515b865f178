package fileserver

import (
	"context"
	"errors"
	"fmt"
	"io"

	"clustermaster/value"
)

// List returns the sorted paths of an environment's files. It is not written to.
func (s *Server) List(env string) []string {
	return s.ListsOf(context.Background(), env,
		nil).Files
}

// Dirs returns the sorted paths of an environment's folders. It is not written to.
func (s *Server) Dirs(env string) []string { return s.ListsOf(context.Background(), env, nil).Dirs }

// EmptyDirs returns the sorted paths of an environment's empty folders. It is not written to.
func (s *Server) EmptyDirs(env string) []string {
	return s.ListsOf(context.Background(), env, nil).EmptyDirs
}

// Links returns an environment's links and their texts. It is not written to.
func (s *Server) Links(env string) value.Map {
	if l := s.ListsOf(context.Background(), env, nil).Links; l != nil {
		return l
	}
	return value.Map{}
}

// maxRead bounds what Read returns, in bytes.
const maxRead = 64 << 20

// Read returns the content of a file that may be served, and where it lies on disk; found is false
// for all others.
func (s *Server) Read(env, path string) (abs string, data []byte, found bool, err error) {
	ctx := context.Background()
	f, ok, err := s.find(ctx, path, env)
	if !ok {
		return "", nil, false, err
	}
	if f.other != nil {
		data, err = f.other.Whole(ctx, maxRead)
		if err != nil {
			return "", nil, false, fmt.Errorf("read %s: %w", f.rel, err)
		}
		return f.path, data, true, nil
	}
	file, info, err := open(f.path)
	if err != nil {
		return "", nil, false, fmt.Errorf("read %s: %w", f.rel, err)
	}
	defer file.Close()
	if info.Size() > maxRead {
		return "", nil, false, fmt.Errorf("read %s: larger than %d bytes", f.rel, maxRead)
	}
	data = make([]byte, info.Size())
	n, err := io.ReadFull(file, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", nil, false, fmt.Errorf("read %s: %w", f.rel, err)
	}
	return f.path, data[:n], true, nil
}
