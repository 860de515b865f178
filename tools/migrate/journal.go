package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clustermaster/config"
	"clustermaster/keystore"
	"clustermaster/serve/operator"
	"clustermaster/store/durable"
)

// journal records on disk the steps of apply, for rollback and for apply after a crash.
type journal struct {
	Began   time.Time `json:"began"`
	State   string    `json:"state"`
	Conf    string    `json:"conf"` // folder of the configuration
	Pki     string    `json:"pki"`  // folder of the keys
	Sock    string    `json:"sock"`
	Key     string    `json:"key"`     // fingerprint of the master's key
	Release string    `json:"release"` // as salt-master --version printed it
	Added   string    `json:"added"`
	Stopped bool      `json:"stopped"` // Salt's master was stopped

	// The keys of this master before its stop, if only rollback can write them to Pki. Gone once it
	// has.
	Keys   []operator.Key `json:"keys,omitzero"`
	KeysAt time.Time      `json:"keys_at,omitzero"`

	dir string
}

// States of a journal.
const (
	applying    = "applying"
	applied     = "applied"
	rollingBack = "rolling back"
	keysBack    = "keys back" // rolling back; the keys in Pki count
)

const journalFile = "journal.json"

// stateDir is the folder of the journal and of the saved files.
func stateDir(cachedir string) string { return filepath.Join(cachedir, "clustermaster-migration") }

// readJournal finds the journal of a migration; nil if there is none.
func readJournal(dir string) (*journal, error) {
	b, err := os.ReadFile(filepath.Join(dir, journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &journal{dir: dir}
	if err := json.Unmarshal(b, j); err != nil {
		return nil, fmt.Errorf("%s: %w; the former files are beside it, in the folder before",
			filepath.Join(dir, journalFile), err)
	}
	return j, nil
}

// journalAt begins the line of addedFile that names the folder of the journal.
const journalAt = "# The journal: "

// findJournal finds the journal of a migration, also if cachedir was lost with the main file. It is
// nil if there is none.
func findJournal(o *config.Options) (*journal, error) {
	j, err := readJournal(stateDir(o.CacheDir))
	if err != nil || j != nil {
		return j, err
	}
	b, err := os.ReadFile(addedFile(o))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		if dir, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), journalAt); ok {
			return readJournal(dir)
		}
	}
	return nil, nil
}

// save writes the journal so that a crash leaves the old or the new one.
func (j *journal) save() error {
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(j.dir, journalFile), b)
}

// keptConf is the copy of a file of the configuration; "" if apply copied none.
func (j *journal) keptConf(path string) string {
	rel, err := filepath.Rel(j.Conf, path)
	if err != nil || !filepath.IsLocal(rel) || path == j.Added {
		return ""
	}
	return filepath.Join(j.dir, "before", "conf", rel)
}

// changedConf lists the files whose contents differ from those before apply.
func (j *journal) changedConf(files []string) (list []string) {
	for _, path := range files {
		kept := j.keptConf(path)
		if kept == "" {
			continue
		}
		was, err := os.ReadFile(kept)
		is, gone := os.ReadFile(path)
		if err == nil && (gone != nil || !bytes.Equal(was, is)) {
			list = append(list, path)
		}
	}
	return list
}

// sameConf is an error if one of the files is missing or changed.
func (j *journal) sameConf(files []string) error {
	if list := j.changedConf(files); len(list) > 0 {
		return fmt.Errorf("the configuration changed while Salt's package was replaced: %s; give a --stop and a "+
			"--start that leave it, or put it back before the start", strings.Join(list, ", "))
	}
	return nil
}

// copyTree copies regular files, links and folders; files and folders with their modes and owners.
// from itself may be a link to the folder.
func copyTree(from, to string) error {
	root, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if err := os.MkdirAll(target, info.Mode().Perm()|0o700); err != nil {
				return err
			}
			return keystore.OwnAs(target, info)
		}
		return copyEntry(path, target, info)
	})
}

// copyEntry copies a file or a link, in the place of either. Other kinds are left out; info is what
// Lstat says of from.
func copyEntry(from, to string, info fs.FileInfo) error {
	link := info.Mode()&fs.ModeSymlink != 0
	if !link && !info.Mode().IsRegular() {
		return nil
	}
	// A file that is written to a link would replace what the link leads to.
	was, err := os.Lstat(to)
	if err == nil && (link || was.Mode()&fs.ModeSymlink != 0) {
		err = os.Remove(to)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !link {
		return copyFile(from, to, info)
	}
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, to)
}

// copyFile copies contents, mode and owner; info describes from.
func copyFile(from, to string, info fs.FileInfo) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	mode := info.Mode().Perm()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Chmod(mode), out.Close(), keystore.OwnAs(to, info))
}
