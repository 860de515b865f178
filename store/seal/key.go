package seal

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	minKey      = 32      // least bytes of a source
	maxKey      = 4 << 10 // most bytes of a source
	commandTime = 30 * time.Second
)

// Key is the secret from which all other keys are derived. A nil Key seals nothing.
type Key struct{ secret []byte }

// CheckSource says what is wrong with a value of the option seal_key, without using it.
func CheckSource(source string) error {
	kind, rest, ok := strings.Cut(source, ":")
	if !ok || rest == "" || kind != "file" && kind != "command" && kind != "credential" {
		return fmt.Errorf("%q names no source of a key; write file:/path, command:COMMAND or credential:NAME", source)
	}
	if kind == "credential" && strings.ContainsAny(rest, "/\x00") {
		return fmt.Errorf("%q is not the name of a credential of systemd", rest)
	}
	return nil
}

// Load gets the key of the option seal_key:
//
//	file:/path        the bytes of a file that only its owner can read
//	command:COMMAND   the output of a shell command (exit code 0, within 30 s)
//	credential:NAME   a credential of the systemd unit (LoadCredential=, LoadCredentialEncrypted=)
//
// An empty source gives nil. White space at the end does not count; at least 32 bytes must be left.
func Load(ctx context.Context, source string, getenv func(string) string) (*Key, error) {
	if source == "" {
		return nil, nil
	}
	if err := CheckSource(source); err != nil {
		return nil, err
	}
	kind, rest, _ := strings.Cut(source, ":")
	var secret []byte
	var err error
	switch kind {
	case "file":
		secret, err = readPrivate(rest)
	case "command":
		secret, err = run(ctx, rest)
	case "credential":
		dir := getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return nil, errors.New("systemd gave this process no credentials; add LoadCredential=" +
				rest + ":/path to the unit")
		}
		secret, err = readPrivate(filepath.Join(dir, rest))
	}
	if err != nil {
		return nil, err
	}
	secret = bytes.TrimRight(secret, " \t\r\n")
	if len(secret) < minKey {
		return nil,
			fmt.Errorf("%s gives %d bytes, at least %d are needed; make a key with: openssl rand -base64 48", source, len(secret), minKey)
	}
	return &Key{secret}, nil
}

func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	if !st.Mode().IsRegular() || st.Mode().Perm()&0o077 != 0 {
		return nil,
			fmt.Errorf("%s has mode %04o; it must be a file that only its owner can read: chmod 400", path, st.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	return b, nil
}

func run(ctx context.Context, command string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = &limited{&out}, &limited{&errs}
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("command of seal_key: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// limited keeps the first maxKey bytes.
type limited struct{ b *bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.b.Write(p[:min(len(p), maxKey-l.b.Len())])
	return len(p), nil
}

// Derive returns the 32-byte key of a purpose. salt is nil, or random per stream or file.
func (k *Key) Derive(purpose string, salt []byte) []byte {
	key, err := hkdf.Key(sha256.New, k.secret, salt, "clustermaster seal 1 "+purpose, 32)
	if err != nil {
		panic(err) // only for lengths beyond 8,160 bytes
	}
	return key
}

// String keeps the key out of logs.
func (k *Key) String() string { return "seal key" }
