// Package smallfile reads files that should be small, whatever lies at their paths.
//
// Lives here: the limit on the size, and the rule that only regular files are read. Does not:
// decide which files, know what is in them.
package smallfile

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// Read reads a regular file of at most limit bytes. It follows links. A pipe or device is an error;
// it does not block.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bounded(f, limit)
}

// Open opens a regular file. Anything else at the path is an error, as for Read.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, Flags, 0)
	if err != nil {
		return nil, err
	}
	if err := regular(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Flags open a file for Of. They do not wait for the other end of a pipe.
const Flags = os.O_RDONLY | syscall.O_NONBLOCK

// Of is Read for a file opened with Flags.
func Of(f *os.File, limit int64) ([]byte, error) {
	if err := regular(f); err != nil {
		return nil, err
	}
	return bounded(f, limit)
}

func regular(f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("read %s: not a regular file", f.Name())
	}
	return err
}

func bounded(f *os.File, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, limit+1)) // the file may grow meanwhile
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("read %s: more than %d bytes", f.Name(), limit)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}
