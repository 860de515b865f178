package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"clustermaster/cluster"
	"clustermaster/internal/durable"
	"clustermaster/salt/runner"
	"clustermaster/wire"
)

// clusterIdentity writes the RSA key that minions know this cluster by.
type clusterIdentity struct {
	node     *cluster.Node
	hashType string // of fingerprints
}

var _ runner.ClusterIdentity = clusterIdentity{}

// ExportKey implements runner.ClusterIdentity. Both files are new and on stable storage, or there is none.
func (c clusterIdentity) ExportKey(ctx context.Context, dir string) (files []string, fingerprint string, err error) {
	if err := c.node.ReadIndex(ctx); err != nil && !errors.Is(err, cluster.ErrNoQuorum) { // a lone survivor's key is the cluster's too
		return nil, "", err
	}
	key := c.node.ClusterKey()
	if key == nil {
		return nil, "", cluster.ErrNotFounded
	}
	pub := key.Public().Text() + "\n"
	if fingerprint, err = wire.Fingerprint(pub, c.hashType); err != nil {
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

// writeNew writes a file that must not be there yet, whatever the umask; made says whether there is one now.
func writeNew(path string, mode os.FileMode, text []byte) (made bool, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return false, fmt.Errorf("%s is there already; name another folder", path)
	}
	if err != nil {
		return false, err
	}
	_, err = f.Write(text)
	return true, errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}
