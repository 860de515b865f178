package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"clustermaster/config"
	"clustermaster/salt/output"
	"clustermaster/serve/operator"
	"clustermaster/value"
	"clustermaster/wire"
)

// maxPEM bounds the size of a key file in bytes.
const maxPEM = 64 << 10

// signature is salt-key --gen-signature. It signs the public key by which minions identify the
// master, for master_use_pubkey_signature. As in Salt, it prints whether it did, and a signature
// that exists already is no failure.
func (e Env) signature(ctx context.Context, p *parser, v values) int {
	opts, code, ok := e.configuration(p, v)
	if !ok {
		return code
	}
	show, err := e.printer(v, opts)
	if err != nil {
		return p.fail(e.Stderr, err)
	}
	defer show.close()
	written, err := e.sign(ctx, v, opts)
	if err != nil {
		e.errorf("ERROR: %s; no signature was written", err)
		return ExitFailed
	}
	if err := show.show(output.Result{Value: value.Map{{Key: "return", Value: written}},
		Outputter: "key"}); err != nil {
		e.errorf("ERROR: %s", err)
		return ExitFailed
	}
	return ExitOK
}

// sign writes the signature. It returns false, and says why, if the file exists.
func (e Env) sign(ctx context.Context, v values, o *config.Options) (bool, error) {
	path := o.PubkeySignatureFile()
	named := filepath.Base(path) // as Salt names it
	if dir := v.text("signature_path"); dir != "" {
		path = filepath.Join(dir, filepath.Base(path))
		named = path
	}
	if _, err := os.Stat(path); err == nil {
		e.logError(named + " already exists at expected location")
		return false, nil
	}
	text, err := e.signedKey(ctx, v, o)
	if err != nil {
		return false, err
	}
	pub, err := wire.ParsePublicKey(text)
	if err != nil {
		return false, fmt.Errorf("read the public key: %w", err)
	}
	key, err := signingKey(v, o)
	if err != nil {
		return false, err
	}
	sig, err := key.Sign(o.PublishSigningAlgorithm, []byte(wire.CleanKey(pub.Text())))
	if err != nil {
		return false, fmt.Errorf("sign: %w", err)
	}
	return true, writeNew(path, []byte(base64.StdEncoding.EncodeToString(sig)+"\n"))
}

// signedKey returns the text of the public key: --pub's, the running master's, or the file of a
// master that does not run.
func (e Env) signedKey(ctx context.Context, v values, o *config.Options) (string, error) {
	if path := v.text("pub"); path != "" {
		b, err := readPEM(path)
		return string(b), err
	}
	if d, err := e.dial(ctx, o); err == nil {
		defer d.Close()
		lists, err := d.Lists(ctx, false)
		if err != nil {
			return "", err
		}
		if text := lists.Local[operator.OwnKeyName(o.ID, o.ClusterID != "")]; text != "" {
			return text, nil
		}
	}
	name := "master.pub"
	if o.ClusterID != "" {
		name = "cluster.pub"
	}
	b, err := readPEM(filepath.Join(o.KeysDir(), name))
	if errors.Is(err, fs.ErrNotExist) {
		return "",
			errors.New("the master does not run and has left no public key; start it, or name the key with --pub")
	}
	return string(b), err
}

// signingKey reads the key of --priv or of master_sign_key_name. --auto-create makes the latter.
func signingKey(v values, o *config.Options) (*wire.PrivateKey, error) {
	base := filepath.Join(o.PkiDir, o.MasterSignKeyName)
	path := v.text("priv")
	if path == "" {
		path = base + ".pem"
	}
	b, err := readPEM(path)
	switch {
	case err == nil:
		key, err := wire.ParsePrivateKey(b, o.SigningKeyPass.Reveal())
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		return key, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case v.text("priv") != "":
		return nil, fmt.Errorf("private key %s does not exist", path)
	case !v.on("auto_create"):
		return nil, fmt.Errorf("signing key %s does not exist; --auto-create makes one", path)
	}
	size := o.KeySize
	if v.given("keysize") {
		size = v.integer("keysize", size)
	}
	if _, err := writePair(base, size, o.SigningKeyPass.Reveal(), o.HashType); err != nil {
		return nil, err
	}
	if b, err = readPEM(base + ".pem"); err != nil {
		return nil, err
	}
	return wire.ParsePrivateKey(b, o.SigningKeyPass.Reveal())
}

// readPEM reads a regular file of bounded size.
func readPEM(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxPEM {
		return nil, fmt.Errorf("read key: %s is not a regular file or is larger than 64 KiB", path)
	}
	return os.ReadFile(path)
}
