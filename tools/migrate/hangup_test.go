package migrate

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/keystore"
)

// box is a configuration with the keys of a master of Salt. ln has its return port.
func box(t *testing.T) (dir string, ln net.Listener) {
	t.Helper()
	dir = t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	pub, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(5), 2045), E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "pki", "master.pub"),
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})))
	put(t, filepath.Join(dir, "etc", "master"), fmt.Sprintf("id: box\ninterface: 127.0.0.1\nroot_dir: %s\n"+
		"pki_dir: %[1]s/pki\ncachedir: %[1]s/cache\nsock_dir: %[1]s/sock\npidfile: %[1]s/pid\nret_port: %d\n", dir,
		ln.Addr().(*net.TCPAddr).Port))
	for _, name := range []string{"cache", "sock"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(dir, "pki", keystore.Accepted.String(), "web1"), "key")
	return dir, ln
}

// TestHangUp: apply whose terminal goes ends its command with all that this has started, and then
// puts Salt's master back.
func TestHangUp(t *testing.T) {
	dir, _ := box(t)
	pids, undone := filepath.Join(dir, "pids"), filepath.Join(dir, "undone")
	var out, errs strings.Builder
	code := Command(t.Context(), []string{"apply", "-c", filepath.Join(dir, "etc"), "--wait", "60",
		"--stop", "sleep 300 & echo $! > " + pids + "; kill -HUP $PPID; wait",
		"--undo", "kill -0 $(cat " + pids + ") || touch " + undone}, nil, &out, &errs)
	if code != exitBlocked || !strings.Contains(errs.String(), "Salt's master was restored") {
		t.Errorf("exit %d\n%s%s", code, &out, &errs)
	}
	if _, err := os.Stat(undone); err != nil {
		t.Errorf("--undo ran beside what --stop had started: %v\n%s%s", err, &out, &errs)
	}
}

// TestRollbackGoesOn: rollback does not end at SIGHUP. Nothing listens after its --start.
func TestRollbackGoesOn(t *testing.T) {
	dir, ln := box(t)
	ln.Close()
	j := &journal{Began: time.Now(), State: applied, Pki: filepath.Join(dir, "pki"),
		Sock: filepath.Join(dir, "sock"), Added: filepath.Join(dir, "etc", "master.d", added),
		dir: stateDir(filepath.Join(dir, "cache"))}
	put(t, filepath.Join(j.dir, "before", "conf", "master"), "")
	if err := j.save(); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	started := filepath.Join(dir, "started")
	code := Command(t.Context(), []string{"rollback", "-c", filepath.Join(dir, "etc"), "--wait", "2", "--stop", "kill -HUP $PPID",
		"--start", "touch " + started}, nil, &out, &errs)
	if _, err := os.Stat(started); err != nil {
		t.Errorf("exit %d, %v\n%s%s", code, err, &out, &errs)
	}
}
