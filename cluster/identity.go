package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"clustermaster/store/durable"
)

// Files of the data directory beside raft/.
const (
	identityFile = "identity.json"
	grantFile    = "grant.json"
	peersFile    = "peers.json"
	foundingFile = "founding" // exists from the decision to found until OnFounded has succeeded
)

// identity is made with the data directory and stays with it.
type identity struct {
	ID          string `json:"id"`
	Incarnation string `json:"incarnation"`
}

// loadIdentity reads or makes the identity in dir. It makes dir if needed. Whole is
// Config.WholeDir.
func loadIdentity(dir, whole, id string) (identity, error) {
	if err := os.MkdirAll(filepath.Join(dir, "raft"), 0o700); err != nil {
		return identity{}, fmt.Errorf("make data directory: %w", err)
	}
	// raft writes the snapshots below it with the umask
	if err := os.Chmod(filepath.Join(dir, "raft"), 0o700); err != nil {
		return identity{}, fmt.Errorf("make data directory: %w", err)
	}
	var have identity
	path := filepath.Join(dir, identityFile)
	found, err := readJSON(path, &have)
	if err != nil {
		return identity{}, err
	}
	if found {
		if have.ID != id {
			return identity{}, foreign(whole, have.ID, id)
		}
		return have, nil
	}
	if _, err := os.Stat(filepath.Join(dir, "raft", "raft.db")); err == nil {
		// Another master may have begun in this directory since the first look.
		if found, err := readJSON(path, &have); err == nil && found && have.ID == id {
			return have, nil
		} else if err == nil && found {
			return identity{}, foreign(whole, have.ID, id)
		}
		return identity{},
			fmt.Errorf("data directory %s has a raft log but no %s: put that file back, or move the directory to another place to join as a new member", dir, identityFile)
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return identity{}, fmt.Errorf("make incarnation: %w", err)
	}
	have = identity{ID: id, Incarnation: hex.EncodeToString(random[:])}
	return claimDir(dir, whole, have)
}

// claimDir writes the identity of a new data directory. If two masters begin in one directory at
// the same time, the first one gets it.
func claimDir(dir, whole string, id identity) (identity, error) {
	path := filepath.Join(dir, identityFile)
	b, err := json.Marshal(id)
	if err == nil {
		err = durable.WriteNew(path, append(b, '\n'))
	}
	if errors.Is(err, fs.ErrExist) {
		var first identity
		if _, err := readJSON(path, &first); err != nil {
			return identity{}, err
		}
		return identity{}, foreign(whole, first.ID, id.ID)
	}
	if err != nil {
		return identity{}, fmt.Errorf("make identity: %w", err)
	}
	return id, nil
}

// foreign refuses the data directory of another master. That master may be running, and this may be
// its only disk.
func foreign(dir, owner, id string) error {
	return fmt.Errorf("data directory %s belongs to the master %q, not to %q: give each master its own cachedir, "+
		"or, if this is %q under another name, set its old id again. A new master here needs an empty data "+
		"directory: if %q has ended for good, move %s to another place, as a copy of its keys. Nothing was changed",
		dir, owner, id, owner, owner, dir)
}

// readJSON decodes a file. It returns false and no error if the file does not exist.
func readJSON(path string, v any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

// writeJSON replaces a file durably: it syncs, renames, and then syncs the folder.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return durable.WriteFile(path, append(b, '\n'))
}
