package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/wire"
)

// salted runs salt-key with a configuration folder.
func salted(t *testing.T, d Daemon, words ...string) ran {
	t.Helper()
	var out, errs strings.Builder
	env := Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Getenv: func(string) string { return "" },
		Dial:   func(context.Context, string) (Daemon, error) { return d, nil },
	}
	return ran{SaltKey(t.Context(), words, env), out.String(), errs.String()}
}

// TestGenSignature signs the key of a running master with a newly made signing key,
// and verifies the signature.
func TestGenSignature(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pki := filepath.Join(dir, "pki")
	if err := os.WriteFile(filepath.Join(dir, "master"),
		[]byte(fmt.Sprintf("id: m1\npki_dir: %s\ncachedir: %s\n", pki, dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	masters, err := wire.GeneratePrivateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDaemon{local: map[string]string{"m1.pub": masters.Public().Text()}}
	salted(t, d, "-c", dir, "--gen-signature").check(t, 1, "",
		"ERROR: signing key "+pki+
			"/master_sign.pem does not exist; --auto-create makes one; no signature was written\n")
	path := filepath.Join(pki, "m1_pubkey_signature")
	salted(t, d, "-c", dir, "--gen-signature", "--auto-create").check(t, 0,
		"return:\n    True\n", "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	pub, err := os.ReadFile(filepath.Join(pki, "master_sign.pub"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := wire.ParsePublicKey(string(pub))
	if err != nil {
		t.Fatal(err)
	}
	if err := signer.Verify("PKCS1v15-SHA1", []byte(wire.CleanKey(masters.Public().Text())),
		sig); err != nil {
		t.Error(err)
	}
	salted(t, d, "-c", dir, "--gen-signature").check(t, 0, "return:\n    False\n",
		"[ERROR   ] m1_pubkey_signature already exists at expected location\n")
	salted(t, d, "-c", dir, "--gen-signature", "--priv", "/nowhere", "--signature-path",
		dir).check(t, 1, "",
		"ERROR: private key /nowhere does not exist; no signature was written\n")
}
