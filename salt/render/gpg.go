package render

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"clustermaster/value"
)

var ciphertext = regexp.MustCompile(`(?s)-----BEGIN PGP MESSAGE-----.*?-----END PGP MESSAGE-----`)

// maxSecret bounds the result of one decryption in bytes.
const maxSecret = 16 << 20

// decryptAll replaces every PGP message inside val by its plain text. The keys are in gpg_keydir. A
// message that can't be decrypted is an error, unless gpg_decrypt_must_succeed is false.
func decryptAll(ctx context.Context, val any, opts value.Map) (any, error) {
	exe, err := exec.LookPath("gpg")
	if err != nil {
		return nil, errors.New("GPG unavailable")
	}
	g := gpg{exe: exe, home: keyDir(opts), must: true}
	if v, ok := opts.Get("gpg_decrypt_must_succeed"); ok {
		g.must, _ = v.(bool)
	}
	return g.value(ctx, val)
}

func keyDir(opts value.Map) string {
	if dir := opts.String("gpg_keydir"); dir != "" {
		return dir
	}
	dir := opts.String("config_dir")
	if dir == "" {
		dir = filepath.Dir(opts.String("conf_file"))
	}
	return filepath.Join(dir, "gpgkeys")
}

type gpg struct {
	exe, home string
	must      bool
}

func (g gpg) value(ctx context.Context, v any) (any, error) {
	switch v := v.(type) {
	case string:
		return g.text(ctx, v)
	case []byte:
		return g.text(ctx, string(v))
	case value.Map:
		out := make(value.Map, len(v))
		for i, p := range v {
			inner, err := g.value(ctx, p.Value)
			if err != nil {
				return nil, err
			}
			out[i] = value.Pair{Key: p.Key, Value: inner}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			inner, err := g.value(ctx, e)
			if err != nil {
				return nil, err
			}
			out[i] = inner
		}
		return out, nil
	}
	return v, nil
}

// text decrypts the messages in a text and then drops the line ends at its end. A text without
// messages stays as it is.
func (g gpg) text(ctx context.Context, s string) (any, error) {
	if !strings.Contains(s, "-----BEGIN PGP MESSAGE-----") || !ciphertext.MatchString(s) {
		return textOrBytes(s), nil
	}
	var failed error
	out := ciphertext.ReplaceAllStringFunc(s, func(m string) string {
		if failed != nil {
			return m
		}
		plain, err := g.decrypt(ctx, strings.ReplaceAll(m, `\n`, "\n"))
		if err != nil {
			failed = err
			return m
		}
		return plain
	})
	if failed != nil {
		return nil, failed
	}
	return textOrBytes(strings.TrimRight(out, "\n")), nil
}

var (
	// decryptions bounds the processes of gpg. All ask one agent, which has little memory that is
	// not swapped out: for some hundred RSA messages at once it has not enough, and refuses them.
	decryptions = semaphore.NewWeighted(8)
	// shared decrypts a message once for all who ask for it at the same time, as minions do after
	// an order to all of them. Nothing is kept afterwards.
	shared singleflight.Group
)

const decryptTime = time.Minute // for one message, with the wait for its turn

func (g gpg) decrypt(ctx context.Context, message string) (string, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%q %t %s", g.home, g.must, message))
	made := shared.DoChan(string(key[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decryptTime)
		defer cancel()
		if err := decryptions.Acquire(ctx, 1); err != nil {
			return "", fmt.Errorf("wait for other PGP messages: %w", err)
		}
		defer decryptions.Release(1)
		return g.process(ctx, message)
	})
	select {
	case r := <-made:
		plain, _ := r.Val.(string)
		return plain, r.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// process decrypts a message by a process of gpg.
func (g gpg) process(ctx context.Context, message string) (string, error) {
	cmd := exec.CommandContext(ctx, g.exe, "--homedir", g.home, "--status-fd", "2",
		"--no-tty", "-d")
	cmd.Stdin = strings.NewReader(message)
	plain, words := &limited{left: maxSecret}, &limited{left: 4096, cut: true}
	cmd.Stdout, cmd.Stderr = plain, words
	err := cmd.Run()
	if plain.b.Len() > 0 && !errors.Is(err, errSecretTooLarge) {
		return plain.b.String(), nil
	}
	if !g.must && ctx.Err() == nil {
		return message, nil
	}
	return "", fmt.Errorf("Could not decrypt a PGP message with the keys of %s: %s", g.home,
		strings.TrimSpace(words.b.String()))
}

var errSecretTooLarge = fmt.Errorf("more than %d bytes", maxSecret)

// limited keeps what fits into left bytes. The rest is an error or, with cut, dropped.
type limited struct {
	b    bytes.Buffer
	left int
	cut  bool
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.b.Write(p[:n])
	l.left -= n
	if n < len(p) && !l.cut {
		return n, errSecretTooLarge
	}
	return len(p), nil
}
