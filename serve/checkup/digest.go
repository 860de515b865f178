package checkup

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"clustermaster/config"
	"clustermaster/value"
)

// byNature are options that differ between masters of one cluster.
var byNature = []string{
	"cluster_advertise", "cluster_peers", "conf_file", "health_listen", "id", "interface",
	"log_file", "log_level", "log_level_logfile", "master_id",
	"metrics_listen", "metrics_tls_cert", "metrics_tls_key", "metrics_client_ca", "metrics_users",
	"pidfile", "user", "root_dir", "pki_dir", "cachedir", "sock_dir",
	"cluster_pki_dir", "rest_cherrypy", "rest_tornado", "backup_dir",
	"file_roots", "pillar_roots", // compared by what is in them
}

// Digests are the digests of the options that were set, for comparison with those of other masters
// that got the same nonce.
func Digests(o *config.Options, nonce string) map[string]string {
	out := make(map[string]string)
	for name, v := range o.Extra {
		if _, secret := v.(config.Secret); secret || slices.Contains(byNature, name) {
			continue
		}
		out[name] = digest(nonce, fmt.Sprintf("%T %v", v, v))
	}
	return out
}

func digest(nonce, text string) string {
	h := hmac.New(sha256.New, []byte(nonce))
	io.WriteString(h, text)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Bounds of what is read of roots. Beyond them names and sizes alone are compared.
const (
	maxFiles = 50000
	maxBytes = 256 << 20
)

// extensions is the name in Roots of what is below extension_modules.
const extensions = "extension_modules"

// Roots are digests of what is below file_roots and pillar_roots, by environment and first part of
// the path, and of what is below extension_modules.
func Roots(ctx context.Context, o *config.Options) map[string]map[string]string {
	out := make(map[string]map[string]string)
	left := int64(maxBytes)
	if dir, _ := o.Values().Get("extension_modules"); dir != nil {
		parts := make(map[string]string)
		tree(ctx, value.Str(dir), 0, parts, &left)
		out[extensions] = parts
	}
	for _, r := range []struct {
		option string
		roots  config.Roots
	}{{"file_roots", o.FileRoots}, {"pillar_roots", o.PillarRoots}} {
		for _, env := range r.roots {
			parts := make(map[string]string)
			for i, dir := range env.Dirs {
				tree(ctx, dir, i, parts, &left)
			}
			out[r.option+" "+env.Name] = parts
		}
	}
	return out
}

// tree adds the digests of one folder of an environment.
func tree(ctx context.Context, root string, place int, parts map[string]string, left *int64) {
	files := 0
	// With the slash a link to the folder is followed.
	_ = filepath.WalkDir(root+"/", func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil || d.IsDir() {
			if d != nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "__pycache__" || d.Name() == ".staged") {
				return fs.SkipDir
			}
			return ctx.Err() // what can't be read is not served either
		}
		if files++; files > maxFiles {
			return fs.SkipAll
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil
		}
		first, _, _ := strings.Cut(rel, "/")
		parts[first] = digest(parts[first],
			fmt.Sprintf("%d %s %s", place, rel, content(path, d, left)))
		return nil
	})
}

// content is a file's digest, or its size where too much was read already.
func content(path string, d fs.DirEntry, left *int64) string {
	info, err := d.Info()
	if err != nil {
		return "gone"
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, _ := os.Readlink(path)
		return "-> " + to
	}
	if !info.Mode().IsRegular() {
		return info.Mode().Type().String()
	}
	if *left -= info.Size(); *left < 0 {
		return fmt.Sprint(info.Size())
	}
	f, err := os.Open(path)
	if err != nil {
		return "unreadable"
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, info.Size())); err != nil {
		return "unreadable"
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// certificatesIn are the files of certificates that a map of options of salt-api names.
func certificatesIn(v any) (paths []string) {
	m, _ := v.(value.Map)
	for _, e := range m {
		name, _ := e.Key.(string)
		if path, ok := e.Value.(string); ok &&
			(name == "ssl_crt" || name == "ssl_chain" || name == "certificate") {
			paths = append(paths, path)
		}
	}
	return paths
}
