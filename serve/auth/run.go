package auth

import (
	"context"
	"errors"

	"clustermaster/value"
)

// Run makes and deletes tokens for salt-run.
type Run struct{ *Auth }

// MakeToken returns Salt's map of a token. Ok is false for refused credentials, which is no error
// there.
func (r Run) MakeToken(ctx context.Context, creds value.Map) (token value.Map, ok bool, err error) {
	token, err = r.Auth.MakeToken(ctx, "salt-run", creds)
	if errors.Is(err, ErrRefused) {
		return nil, false, nil
	}
	return token, err == nil, err
}
