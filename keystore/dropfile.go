package keystore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"
)

// DropFile is a file by which programs on this box ask for a new AES key, as Salt's own salt-key
// does after it deleted a key (salt.crypt.dropfile; salt.master, Maintenance.handle_key_rotate).
type DropFile struct {
	Path string // cachedir/.dfn
	ID   string // of this master, which the file must contain, or nothing (3006)
	Log  *slog.Logger

	served fs.FileInfo // of the file for which the key was replaced last
}

// dropFileMode is the mode that the file must have.
const dropFileMode = 0o400

// Run replaces the AES key and removes the file as often as somebody makes it, until ctx ends.
// While the key can't be replaced the file stays, and Run tries again. A file that can't be removed
// asks once.
func (d *DropFile) Run(ctx context.Context, orders *Orders) error {
	log := d.Log.With("component", "keystore", "path", d.Path)
	tick := time.NewTicker(takeInEvery)
	defer tick.Stop()
	said := ""
	for {
		switch found, err := d.take(ctx, orders); {
		case err == nil:
			if said = ""; found {
				log.Info("the AES key was replaced, as the drop file asked")
			}
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			log.Warn("a drop file is there, which asks for a new AES key; trying again", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// take does once what Run does. found says whether there was a file.
func (d *DropFile) take(ctx context.Context, orders *Orders) (found bool, err error) {
	f, err := os.OpenFile(d.Path, os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return true, err
	}
	if info.Mode() != dropFileMode {
		return true, fmt.Errorf("its mode is %v, and must be %v; remove it", info.Mode(), fs.FileMode(dropFileMode))
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return true, err
	}
	if id := strings.TrimSpace(string(text)); id != "" && id != d.ID {
		return true, fmt.Errorf("it is for the master %q, not for %q; remove it", id, d.ID)
	}
	if d.served == nil || !os.SameFile(d.served, info) || !d.served.ModTime().Equal(info.ModTime()) {
		if err := orders.renew(ctx, 0); err != nil {
			return true, err
		}
		d.served = info
	}
	if err := os.Remove(d.Path); err != nil {
		return true, fmt.Errorf("the key is replaced, but the file stays; remove it: %w", err)
	}
	return true, nil
}
