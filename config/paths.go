package config

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
)

// paths derives the options that depend on others, in Salt's order: id, socket
// folder, folders below cachedir, then the root_dir prefix.
func (o *Options) paths(h host) {
	if o.User == "" {
		o.User = h.user
	}
	if dir, _ := o.Extra["log_dir"].(string); dir != "" {
		if name, set := o.Extra["log_file"].(string); !set {
			o.LogFile = filepath.Join(dir, filepath.Base(o.LogFile))
		} else if !filepath.IsAbs(name) {
			o.LogFile = filepath.Join(dir, name)
		}
	}
	if o.LogLevelLogfile == "" {
		o.LogLevelLogfile = o.LogLevel
	}
	o.HashType = strings.ToLower(o.HashType)
	for i, name := range o.FileserverBackend {
		switch name {
		case "git", "hg", "svn", "minion":
			o.FileserverBackend[i] = name + "fs"
		}
	}
	if len(o.SockDir) > len(o.CacheDir)+10 {
		o.SockDir = filepath.Join(o.CacheDir, ".salt-unix")
	}
	o.TokenDir = filepath.Join(o.CacheDir, "tokens")
	o.SyndicDir = filepath.Join(o.CacheDir, "syndics")
	if o.ID == "" {
		o.ID = defaultID(o.RootDir, h.name, o.appendDomain()) + "_master"
	} else {
		o.ID = withDomain(o.ID, o.appendDomain())
	}
	root, err := filepath.Abs(o.RootDir)
	if err != nil {
		root = o.RootDir
	}
	for _, p := range []*string{&o.PkiDir, &o.CacheDir, &o.PidFile, &o.SockDir, &o.AutosignFile,
		&o.AutorejectFile, &o.AutosignGrainsDir, &o.TokenDir, &o.SyndicDir} {
		*p = prefix(root, *p)
	}
	for _, p := range []*string{&o.LogFile, &o.KeyLogfile} {
		if !isURI(*p) {
			*p = prefix(root, *p)
		}
	}
	if o.ClusterID == "" {
		o.ClusterPeers, o.ClusterPkiDir = nil, ""
	} else if o.ClusterPkiDir == "" {
		o.ClusterPkiDir = o.PkiDir
	}
}

func (o *Options) appendDomain() string {
	s, _ := o.Extra["append_domain"].(string)
	return s
}

func withDomain(id, domain string) string {
	if domain == "" || strings.HasSuffix(id, domain) || strings.HasSuffix(id, ".") {
		return id
	}
	return id + "." + domain
}

// defaultID is the id that a minion on this machine has cached, else the host's name.
func defaultID(root, name, domain string) string {
	if b, err := os.ReadFile(filepath.Join(root, DefaultDir, "minion_id")); err == nil {
		line, _, _ := strings.Cut(string(b), "\n")
		if line = strings.TrimPrefix(strings.TrimSpace(line), "\ufeff"); line != "" &&
			line != "localhost" {
			return withDomain(line, domain)
		}
	}
	return withDomain(name, domain)
}

// prefix puts root before a path that isn't below it yet. It leaves an empty path empty.
func prefix(root, path string) string {
	if path == "" {
		return ""
	}
	if inside, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/"); ok {
		path = inside
	}
	return filepath.Join(root, path)
}

// ExpandUser is Python's os.path.expanduser: ~ is home, and ~NAME is the home folder of that user.
// It returns other paths, and those of unknown users, as they are.
func ExpandUser(path, home string) string {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok {
		return path
	}
	name, below, slash := strings.Cut(rest, "/")
	if name != "" {
		u, err := user.Lookup(name)
		if err != nil {
			return path
		}
		home = u.HomeDir
	}
	if !slash {
		return home
	}
	return strings.TrimRight(home, "/") + "/" + below
}

// isURI distinguishes udp://host and file:///dev/log from paths.
func isURI(s string) bool {
	scheme, _, ok := strings.Cut(s, ":")
	return ok && scheme != "" && !strings.ContainsAny(scheme, "/ ")
}

// DataDir is the folder of the master's own state: Raft's log and snapshots, the ring store, its
// node key.
func (o *Options) DataDir() string { return filepath.Join(o.CacheDir, "clustermaster") }

// HasFile reports whether the main file is there. Without it all options have their defaults.
func (o *Options) HasFile() bool { return isFile(o.ConfFile) }

// NoFile says that it is not.
func (o *Options) NoFile() string {
	return "no file " + o.ConfFile + ": all options have their defaults; -c names its folder"
}

// PubkeySignatureFile is the file of the ready signature of the public key. Without
// master_pubkey_signature it has the name that Salt 3008 gives it.
func (o *Options) PubkeySignatureFile() string {
	name := o.MasterPubkeySignature
	switch {
	case name == "":
		name = o.ID + "_pubkey_signature"
	case filepath.IsAbs(name):
		return name
	}
	return filepath.Join(o.PkiDir, name)
}

// FoundFile is an order to found the cluster at the first start, as salt-master --found is:
// clustermaster migrate makes it, and the founder removes it.
func (o *Options) FoundFile() string { return filepath.Join(o.DataDir(), "found") }

// FoundingOrdered reports whether the order is there.
func (o *Options) FoundingOrdered() bool {
	_, err := os.Stat(o.FoundFile())
	return err == nil
}

// EndFounding removes the order, if it is there.
func (o *Options) EndFounding() { _ = os.Remove(o.FoundFile()) }

// OperatorSocket is the unix socket that the commands talk to.
func (o *Options) OperatorSocket() string { return filepath.Join(o.SockDir, "clustermaster.sock") }
