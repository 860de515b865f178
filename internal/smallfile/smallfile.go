// Package smallfile reads files that are to be small, whatever lies at their paths.
//
// Lives here: the bound, and that only regular files are read. Does not: say which files, or what is in them.
package smallfile

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// Read reads a regular file of at most limit bytes. Links are followed; a pipe or device is an error and is not waited for.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, Flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Of(f, limit)
}

// Flags open a file for Of without waiting for whoever writes to a pipe.
const Flags = os.O_RDONLY | syscall.O_NONBLOCK

// Of is Read of a file that was opened with Flags.
func Of(f *os.File, limit int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", f.Name())
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may grow meanwhile
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("read %s: more than %d bytes", f.Name(), limit)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}
