package auth

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"

	"clustermaster/value"
)

// AdoptTokens imports the tokens of a Salt master from its token_dir. Salt 3006 and 3007 name a
// file as the token, 3008 appends ".p" and wraps the map. Expired tokens are left out; a token that
// is known stays. Failed counts files that could not be read or stored; the log has each, without
// its name.
func (a *Auth) AdoptTokens(ctx context.Context, dir string) (adopted, expired, failed int,
	err error) {
	root, err := os.OpenRoot(dir) // no link leads outside
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, 0, nil
	}
	if err != nil {
		return 0, 0, 0, fmt.Errorf("take in tokens: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return 0, 0, 0, fmt.Errorf("take in tokens: %w", err)
	}
	for _, e := range entries {
		text := strings.TrimSuffix(e.Name(), ".p")
		if _, err := hex.DecodeString(text); err != nil || !e.Type().IsRegular() ||
			len(text) < minTokenText || len(text) > maxTokenText {
			continue
		}
		t, err := readToken(root, e.Name(), text)
		switch {
		case err != nil:
		case !t.Expire.After(a.deps.Now()):
			expired++
			continue
		default:
			if _, known := a.deps.Tokens.Token(t.Hash); !known {
				err = a.deps.Tokens.PutToken(ctx, t, maxTokens, maxTokensPerOwner)
			}
		}
		if ctx.Err() != nil {
			return adopted, expired, failed, ctx.Err()
		}
		if err != nil {
			failed++
			a.log.Warn("a token of Salt's master was not taken in", "owner", t.Owner, "err", err)
			continue
		}
		adopted++
	}
	if adopted > 0 {
		a.log.Info("tokens of Salt's master taken in", "n", adopted, "dir", dir)
	}
	return adopted, expired, failed, nil
}

// readToken reads one file of a token_dir.
func readToken(root *os.Root, name, text string) (Token, error) {
	f, err := root.Open(name)
	if err != nil {
		return Token{}, errors.New("its file can't be opened")
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 2*maxTokenData+1))
	if err != nil || len(b) > 2*maxTokenData {
		return Token{}, fmt.Errorf("its file can't be read, or has more than %d bytes",
			2*maxTokenData)
	}
	data, err := value.UnpackMap(b)
	if err != nil {
		return Token{}, fmt.Errorf("no map: %w", err)
	}
	if inner, wrapped := data.Get("data"); wrapped {
		if data, wrapped = inner.(value.Map); !wrapped {
			return Token{}, errors.New("no map in its data")
		}
	}
	expire, err := number(data, "expire")
	if err != nil {
		return Token{}, err
	}
	start, err := number(data, "start")
	if err != nil {
		return Token{}, err
	}
	owner, back := data.String("name"), data.String("eauth")
	if owner == "" || back == "" {
		return Token{}, errors.New("it names no user or no back end")
	}
	data = data.Without("token").Set("start", start).Set("expire", expire)
	packed, err := value.Pack(data)
	if err != nil {
		return Token{}, err
	}
	if len(packed) > maxTokenData {
		return Token{}, fmt.Errorf("it has %d bytes, more than %d", len(packed), maxTokenData)
	}
	return Token{Hash: hashOf(text), Owner: back + "/" + owner, Data: packed,
		Expire: timeOf(data).UTC().Truncate(time.Microsecond)}, nil
}

// number reads seconds since the epoch.
func number(data value.Map, key string) (float64, error) {
	v, _ := data.Get(key)
	var s float64
	switch n := v.(type) {
	case float64:
		s = n
	case int64:
		s = float64(n)
	case uint64:
		s = float64(n)
	}
	if !(s > 0) || s > float64(math.MaxInt32)*100 { // NaN as well
		return 0, fmt.Errorf("its %s is no time", key)
	}
	return s, nil
}
