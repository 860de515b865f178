package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"clustermaster/salt/output"
	"clustermaster/value"
	"clustermaster/wire"
)

// generate makes a key pair for a minion to be preseeded and prints its fingerprint. It
// never overwrites a file.
func (e Env) generate(p *parser, v values) int {
	name, dir := v.text("gen_keys"), "."
	if v.given("gen_keys_dir") {
		dir = v.text("gen_keys_dir")
	}
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		e.errorf("ERROR: %q is not a valid key name; use a plain file name", name)
		return ExitFailed
	}
	opts, code, ok := e.configuration(p, v)
	if !ok {
		return code
	}
	finger, err := writePair(filepath.Join(dir, name), v.integer("keysize", 2048), "", opts.HashType)
	if err != nil {
		e.errorf("ERROR: %s", err)
		return ExitFailed
	}
	show, err := e.printer(v, opts)
	if err == nil {
		defer show.close()
		err = show.show(output.Result{Value: value.Map{{Key: "return", Value: finger}},
			Outputter: "nested"})
	}
	if err != nil {
		e.errorf("ERROR: %s", err)
		return ExitFailed
	}
	return ExitOK
}

func writePair(base string, bits int, passphrase, hashType string) (finger string, err error) {
	key, err := wire.GeneratePrivateKey(bits)
	if err != nil {
		return "", fmt.Errorf("generate key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(base), 0o700); err != nil {
		return "", fmt.Errorf("make folder for key: %w", err)
	}
	pub := key.Public().Text()
	private, err := key.SealedPEM(passphrase)
	if err != nil {
		return "", err
	}
	for _, f := range []struct {
		suffix string
		text   []byte
	}{{".pem", private}, {".pub", []byte(pub)}} {
		if err := writeNew(base+f.suffix, f.text); err != nil {
			return "", err
		}
	}
	return wire.Fingerprint(pub, hashType)
}

func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	_, err = f.Write(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write key %s: %w", path, err)
	}
	return nil
}
