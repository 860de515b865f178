package runner

import (
	"context"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Tokens makes and deletes the tokens of external_auth.
type Tokens interface {
	// MakeToken returns Salt's map of a token; ok is false if the credentials are refused.
	MakeToken(ctx context.Context, creds value.Map) (token value.Map, ok bool, err error)
	// DeleteToken removes a token from all masters; had reports whether it existed.
	DeleteToken(ctx context.Context, token string) (had bool, err error)
	// Adopt imports the tokens of a Salt master from token_dir.
	Adopt(ctx context.Context) (adopted, expired, failed int, err error)
}

// Auth is the family auth.
func Auth(tokens Tokens) []Function {
	token := function.Need("token")
	token.Secret = true
	return []Function{
		{
			Name: "auth.mk_token", Params: []function.Param{function.Opt("username", nil),
				function.Secret("password"), function.Opt("eauth", nil),
				function.Opt("token_expire", nil)},
			Reveals: true,
			Doc: `Make a token of external_auth, good on all masters. token_expire, in seconds, needs
token_expire_user_override.

Example:

    salt-run auth.mk_token username=carol password=secret eauth=pam
    salt-run auth.mk_token username=carol password=secret eauth=pam token_expire=600`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				var creds value.Map
				for _, name := range []string{"username", "password", "eauth", "token_expire"} {
					if v := c.Arg(name); v != nil {
						creds = append(creds, value.Pair{Key: name, Value: v})
					}
				}
				made, ok, err := tokens.MakeToken(ctx, creds)
				if err != nil {
					return nil, err
				}
				if !ok {
					return "", nil
				}
				kept := append(made.Without("token"), value.Pair{Key: "token", Value: redacted})
				return Told{Value: made, Kept: kept}, nil
			},
		},
		{
			Name: "auth.del_token", Params: []function.Param{token},
			Doc: `Delete a token of external_auth on all masters. It returns whether there was one.

Example:

    salt-run auth.del_token 6556760736e4077daa601baec2b67c24`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return tokens.DeleteToken(ctx, c.Text("token"))
			},
		},
		{
			Name: "auth.adopt_tokens",
			Doc: `Import the tokens of external_auth that a Salt master stored as files in token_dir. Known and
expired ones are left out.

Example:

    salt-run auth.adopt_tokens`,
			Run: func(ctx context.Context, _ *Call) (any, error) {
				adopted, expired, failed, err := tokens.Adopt(ctx)
				if err != nil {
					return nil, err
				}
				return value.Map{{Key: "adopted", Value: int64(adopted)},
					{Key: "expired", Value: int64(expired)},
					{Key: "failed", Value: int64(failed)}}, nil
			},
		},
	}
}
