package keystore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"clustermaster/wire"
)

// maxKeyFile bounds a key file; a public key of 16384 bits has 3 KiB.
const maxKeyFile = 64 << 10

// lookup is the order in which Salt looks for an id: the first folder with the id decides.
var lookup = []State{Rejected, Pending, Accepted, Denied}

// ReadDir reads the keys of a pki directory of Salt 3006 to 3008: the folders of localfs_key and,
// if present, the files of mmap_key, which win for an id in both. Like Salt it skips symlinks, dot
// files and names that are no id. Absent folders count as empty. For an id in several folders the
// first in Salt's order counts; its denied keys are added.
func ReadDir(dir string) ([]Key, error) {
	keys, err := readMmapDir(dir)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for _, k := range keys {
		if k.State != Denied {
			seen[k.ID] = true
		}
	}
	for _, state := range lookup {
		folder := filepath.Join(dir, state.String())
		entries, err := os.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read keys: %w", err)
		}
		for _, e := range entries {
			id := e.Name()
			if !keyName(id) || !e.Type().IsRegular() || state != Denied && seen[id] {
				continue
			}
			pub, err := readKeyFile(filepath.Join(folder, id))
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted meanwhile
			}
			if err != nil {
				return nil, err
			}
			if state != Denied {
				seen[id] = true
			}
			keys = append(keys, Key{ID: id, State: state, Pub: wire.CleanKey(pub)})
		}
	}
	return keys, nil
}

// CountAccepted counts the accepted keys that ReadDir finds.
func CountAccepted(dir string) (int, error) {
	keys, err := ReadDir(dir)
	n := 0
	for _, k := range keys {
		if k.State == Accepted {
			n++
		}
	}
	return n, err
}

// keyName reports whether a file name in a key folder is a minion's id.
func keyName(name string) bool { return !strings.HasPrefix(name, ".") && wire.ValidID(name) }

// readKeyFile reads a regular file of bounded size. It follows no symlink.
func readKeyFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return "", fmt.Errorf("read key: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return "", fmt.Errorf("read key %s: %w", path, err)
	}
	if len(b) > maxKeyFile {
		return "", fmt.Errorf("read key %s: more than %d bytes", path, maxKeyFile)
	}
	return string(b), nil
}

// writeKeyFile replaces a key file: it writes a file beside it and renames that, so that a reader
// never sees half a key.
func writeKeyFile(dir string, state State, id, pub string) error {
	folder := filepath.Join(dir, state.String())
	f, err := os.CreateTemp(folder, ".new-*")
	if err != nil {
		return fmt.Errorf("export key of %s: %w", id, err)
	}
	_, err = f.WriteString(pub)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(folder, id))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error above says more
		return fmt.Errorf("export key of %s: %w", id, err)
	}
	return nil
}

// WriteDir makes the key folders of a pki directory hold just these keys, and the files of mmap_key
// too if it has some. Of several denied keys of an id the last counts. New files get the owner of
// their folder. No master may run on the directory, except one that only reads it.
func WriteDir(dir string, keys []Key) error {
	want := make(map[string]string, len(keys))
	for _, k := range keys {
		if !keyName(k.ID) {
			return fmt.Errorf("write keys: %q is no minion id", k.ID)
		}
		want[filepath.Join(k.State.String(), k.ID)] = k.Pub
	}
	if HasMmap(dir) {
		if err := WriteMmap(dir, MmapLayout{}, keys); err != nil {
			return err
		}
	}
	for _, state := range States {
		if err := writeState(dir, state, want); err != nil {
			return err
		}
	}
	return nil
}

// writeState makes one folder hold its part of want, which maps state/id to a key's text.
func writeState(dir string, state State, want map[string]string) error {
	folder := filepath.Join(dir, state.String())
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	info, err := os.Stat(folder)
	if err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	for _, e := range entries {
		_, wanted := want[filepath.Join(state.String(), e.Name())]
		if keyName(e.Name()) && e.Type().IsRegular() && !wanted {
			if err := removeKeyFile(dir, state, e.Name()); err != nil {
				return err
			}
		}
	}
	for name, pub := range want {
		id, in := strings.CutPrefix(name, state.String()+"/")
		if !in {
			continue
		}
		path := filepath.Join(dir, name)
		if have, err := readKeyFile(path); err == nil && wire.CleanKey(have) == wire.CleanKey(pub) {
			continue
		}
		if err := writeKeyFile(dir, state, id, pub); err != nil {
			return err
		}
		if err := OwnAs(path, info); err != nil {
			return fmt.Errorf("write keys: %w", err)
		}
	}
	return nil
}

func removeKeyFile(dir string, state State, id string) error {
	err := os.Remove(filepath.Join(dir, state.String(), id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("export removal of %s: %w", id, err)
	}
	return nil
}
