package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"clustermaster/store/durable"
	"clustermaster/wire"
)

// ExportKey writes the RSA key pair that minions know this cluster by into a folder, as cluster.pem
// and cluster.pub. On success both files are new and on stable storage; an error leaves no new
// file. The fingerprint is the public key's, by the digest hashType.
func (n *Node) ExportKey(ctx context.Context, dir, hashType string) (files []string,
	fingerprint string, err error) {
	// without a quorum the key of a lone survivor is still the cluster's
	if err := n.ReadIndex(ctx); err != nil && !errors.Is(err, ErrNoQuorum) {
		return nil, "", err
	}
	key := n.ClusterKey()
	if key == nil {
		return nil, "", ErrNotFounded
	}
	pub := key.Public().Text() + "\n"
	if fingerprint, err = wire.Fingerprint(pub, hashType); err != nil {
		return nil, "", err
	}
	defer func() {
		if err == nil {
			return
		}
		for _, path := range files {
			_ = os.Remove(path) // made here a moment ago
		}
		files = nil
	}()
	for _, f := range []struct {
		name string
		mode os.FileMode
		text []byte
	}{{"cluster.pem", 0o600, key.PEM()}, {"cluster.pub", 0o644, []byte(pub)}} {
		path := filepath.Join(dir, f.name)
		made, err := writeNew(path, f.mode, f.text)
		if made {
			files = append(files, path)
		}
		if err != nil {
			return files, "", fmt.Errorf("export key: %w", err)
		}
	}
	return files, fingerprint, durable.SyncDir(dir)
}

// writeNew writes a file that must not exist yet, with exactly this mode whatever the umask. Made
// reports whether the file exists now.
func writeNew(path string, mode os.FileMode, text []byte) (made bool, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return false, fmt.Errorf("%s exists already; name another folder", path)
	}
	if err != nil {
		return false, err
	}
	_, err = f.Write(text)
	return true, errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}
