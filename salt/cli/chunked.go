package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"

	"clustermaster/salt/gather"
	"clustermaster/value"
)

// chunkSize is the default of salt_cp_chunk_size in bytes, as in Salt; maxChunk is the
// largest value that counts.
const (
	chunkSize = 98304
	maxChunk  = 8 << 20
)

// exitNoSource is Salt's exit code for a missing source of salt-cp --chunked.
const exitNoSource = 42

// chunkedCopy is one run of salt-cp --chunked. Each file goes to the minions in pieces,
// with one job for each piece.
type chunkedCopy struct {
	run      *saltRun
	target   gather.Publish // for the first piece of each file
	sources  []string
	dest     string
	size     int
	compress bool
	returned value.Map // minion to remote path to True or to the failure
}

// chunked copies the sources and everything below them.
func (r *saltRun) chunked(ctx context.Context, sources []string, dest string) int {
	c := &chunkedCopy{run: r, target: r.job, dest: dest, size: chunkSize,
		compress: !r.v.on("no_compression")}
	if n, ok := r.opts.Extra["salt_cp_chunk_size"].(int64); ok && n > 0 && n <= maxChunk {
		c.size = int(n)
	}
	c.sources = sources
	var files, empty []string
	for _, path := range sources {
		f, e, err := walk(path)
		var missing *os.PathError
		if errors.Is(err, os.ErrNotExist) && errors.As(err, &missing) {
			r.env.errorf("%s does not exist", missing.Path)
			return exitNoSource
		}
		if err != nil {
			r.env.errorf("ERROR: %s", err)
			return ExitFailed
		}
		files, empty = append(files, f...), append(empty, e...)
	}
	sort.Strings(empty)
	into := len(empty) > 0 || len(files) > 1 || strings.HasSuffix(dest, "/") ||
		strings.HasSuffix(dest, `\`)
	for _, path := range files {
		if ok, err := c.file(ctx, path, c.remote(path, into)); err != nil || !ok {
			return c.end(ctx, err)
		}
	}
	for _, path := range empty {
		to := c.remote(path, into)
		if _, ok, err := c.send(ctx, c.target, to, []any{to, nil}); err != nil || !ok {
			return c.end(ctx, err)
		}
	}
	return r.shown(c.returned)
}

// end is the exit code when nothing more can be copied: the error's, or 0 if no minion matched,
// which is already printed.
func (c *chunkedCopy) end(ctx context.Context, err error) int {
	if err != nil {
		return c.run.stopped(ctx, "", err)
	}
	return ExitOK
}

// remote is the path of a file or an empty folder on minions.
func (c *chunkedCopy) remote(path string, into bool) string {
	for _, s := range c.sources {
		if path == s {
			if into {
				return filepath.Join(c.dest, filepath.Base(path))
			}
			return c.dest
		}
	}
	for _, s := range c.sources {
		if rel, ok := strings.CutPrefix(path, s+"/"); ok {
			return filepath.Join(c.dest, filepath.Base(s), rel)
		}
	}
	return filepath.Join(c.dest, filepath.Base(path))
}

// file sends one file. A minion that failed on a piece gets no further one, because its file would
// have a gap. The bool is false if no minion matched.
func (c *chunkedCopy) file(ctx context.Context, path, to string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("read source: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("read source: %w", err)
	}
	mode := int64(info.Mode().Perm())
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		mode = int64(sys.Mode & 0o7777)
	}
	target, piece := c.target, make([]byte, c.size)
	for n := 0; ; n++ {
		read, err := io.ReadFull(f, piece)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return false, fmt.Errorf("read source: %w", err)
		}
		if n > 0 && read == 0 {
			return true, nil
		}
		sent, err := c.pack(piece[:read])
		if err != nil {
			return false, err
		}
		good, ok, err := c.send(ctx, target, to, []any{to, sent, n > 0, c.compress, mode})
		if err != nil || !ok {
			return ok, err
		}
		if last || len(good) == 0 {
			return true, nil
		}
		target.Tgt, target.TgtType = good, "list"
	}
}

// pack encodes a piece in the form that cp.recv_chunked reads.
func (c *chunkedCopy) pack(piece []byte) (string, error) {
	if c.compress {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write(piece)
		if err := errors.Join(err, z.Close()); err != nil {
			return "", fmt.Errorf("compress: %w", err)
		}
		piece = b.Bytes()
	}
	return base64.StdEncoding.EncodeToString(piece), nil
}

// send runs one cp.recv_chunked, notes the result of each minion and returns the minions that
// answered True. ok is false if no minion matched.
func (c *chunkedCopy) send(ctx context.Context, target gather.Publish, to string,
	args []any) (good []string, ok bool, err error) {
	target.Fun, target.Arg = "cp.recv_chunked", args
	summary, err := gather.Run(ctx, c.run.daemon, target, c.run.wait,
		func(id string, ret gather.Return) {
			val, err := unpacked(ret.Return)
			if err != nil {
				val = err.Error()
			}
			if val == true {
				good = append(good, id)
			}
			c.note(id, to, val)
		})
	if err != nil || !c.run.sent(summary.Published) {
		return nil, false, err
	}
	for _, id := range summary.Silent() {
		c.note(id, to, gather.NoReturn(summary.JID))
	}
	return good, true, nil
}

// note records a minion's result for a path. The first failure stays.
func (c *chunkedCopy) note(id, path string, val any) {
	before, _ := c.returned.Get(id)
	paths, _ := before.(value.Map)
	if v, known := paths.Get(path); known && value.Repr(v) != "True" {
		return
	}
	c.returned = c.returned.Set(id, paths.Set(path, val))
}

// realPath is the absolute path. Symbolic links are resolved if the path exists.
func realPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path
}

// walk lists the files and the empty folders at and below a path, sorted. It follows links; a
// folder that contains itself through a link ends there. above are the folders that lead to it.
func walk(path string, above ...os.FileInfo) (files, empty []string, err error) {
	info, err := os.Stat(path)
	switch {
	case len(above) > 0 && errors.Is(err, syscall.ELOOP): // a link to itself
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read source: %w", err)
	case !info.IsDir() && (len(above) == 0 || info.Mode().IsRegular()):
		return []string{path}, nil, nil
	case !info.IsDir() ||
		slices.ContainsFunc(above, func(f os.FileInfo) bool { return os.SameFile(f, info) }):
		return nil, nil, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read source: %w", err)
	}
	if len(entries) == 0 {
		return nil, []string{path}, nil
	}
	for _, e := range entries {
		f, d, err := walk(filepath.Join(path, e.Name()), append(above, info)...)
		if err != nil {
			return nil, nil, err
		}
		files, empty = append(files, f...), append(empty, d...)
	}
	return files, empty, nil
}
