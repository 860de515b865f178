package auth

import (
	"context"
	"errors"

	"clustermaster/value"
)

// Run makes, deletes and imports tokens for salt-run. Dir is token_dir.
type Run struct {
	*Auth
	Dir string
}

// Adopt imports the tokens of a Salt master; see Auth.AdoptTokens.
func (r Run) Adopt(ctx context.Context) (adopted, expired, failed int, err error) {
	return r.AdoptTokens(ctx, r.Dir)
}

// MakeToken returns Salt's map of a token. Ok is false for refused credentials, which is no error
// there.
func (r Run) MakeToken(ctx context.Context, creds value.Map) (token value.Map, ok bool, err error) {
	token, err = r.Auth.MakeToken(ctx, "salt-run", creds)
	if errors.Is(err, ErrRefused) {
		return nil, false, nil
	}
	return token, err == nil, err
}
