package settings

import (
	"path/filepath"
	"slices"

	"clustermaster/config"
	"clustermaster/serve/minionfs"
)

// MinionFiles returns the folder where Salt keeps the data of each minion.
func MinionFiles(o *config.Options) string { return filepath.Join(o.CacheDir, "minions") }

// PushedCopies returns the folder for copies of pushed files; "" if none are wanted.
func PushedCopies(o *config.Options) string {
	if !o.FileRecvCopies {
		return ""
	}
	return MinionFiles(o)
}

// Minionfs takes the options for serving pushed files; false: they are not served.
func Minionfs(o *config.Options) (minionfs.Options, bool) {
	return minionfs.Options{
		Env: o.MinionfsEnv, Mountpoint: o.MinionfsMountpoint, White: o.MinionfsWhitelist,
		Black: o.MinionfsBlacklist, HashType: o.HashType, Dir: MinionFiles(o),
	}, o.FileRecv && slices.Contains(o.FileserverBackend, minionfs.Name)
}
