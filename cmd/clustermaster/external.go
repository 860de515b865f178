package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"clustermaster/cluster"
	"clustermaster/cluster/fsm"
	"clustermaster/config/settings"
	"clustermaster/serve/auth"
	"clustermaster/value"
)

// systemPython is what calls libpam where it is there, as in Salt.
const systemPython = "/usr/bin/python3"

// newAuth joins external_auth to what the masters agree on.
func newAuth(r *rooms) (*auth.Auth, error) {
	return auth.New(settings.Auth(r.opts), auth.Deps{
		Now: r.node.Now, Tokens: agreedTokens{r.node}, Log: r.log, Registry: r.reg,
		Python: func(context.Context) ([]string, error) {
			if exe, _ := r.opts.Extra["auth.pam.python"].(string); exe != "" {
				return []string{exe, "-I"}, nil
			}
			if _, err := os.Stat(systemPython); !errors.Is(err, fs.ErrNotExist) {
				return []string{systemPython, "-I"}, nil
			}
			return r.render.Interpreter()
		},
	})
}

// agreedTokens are the tokens of the replicated state.
type agreedTokens struct{ n *cluster.Node }

var _ auth.Tokens = agreedTokens{}

func (t agreedTokens) PutToken(ctx context.Context, token auth.Token, most, mostPerOwner int) error {
	r, index, err := t.n.Propose(ctx, &fsm.PutToken{Token: fsm.Token(token), Max: most, MaxPerOwner: mostPerOwner, At: t.n.Now().UTC()})
	switch {
	case err != nil:
		return err
	case r.Refused == fsm.RefusedFull:
		return auth.ErrTokensFull
	case r.Refused != "":
		return fmt.Errorf("refused: %s", r.Refused)
	}
	t.n.ConfirmEverywhere(ctx, index)
	return nil
}

func (t agreedTokens) DropToken(ctx context.Context, hash [32]byte) (bool, error) {
	r, index, err := t.n.Propose(ctx, &fsm.DropToken{Hash: hash, At: t.n.Now().UTC()})
	if err == nil && r.Refused != "" {
		err = fmt.Errorf("refused: %s", r.Refused)
	}
	if err != nil {
		return false, fmt.Errorf("delete token: %w", err)
	}
	t.n.ConfirmEverywhere(ctx, index)
	return r.Changed, nil
}

func (t agreedTokens) Token(hash [32]byte) (auth.Token, bool) {
	token, ok := t.n.State().Token(hash)
	return auth.Token(token), ok
}

func (t agreedTokens) Tokens() int { return t.n.State().Tokens() }

// tokenMaker is what the runner family auth asks.
type tokenMaker struct{ a *auth.Auth }

func (t tokenMaker) MakeToken(ctx context.Context, creds value.Map) (value.Map, bool, error) {
	token, err := t.a.MakeToken(ctx, "salt-run", creds)
	if errors.Is(err, auth.ErrRefused) {
		return nil, false, nil
	}
	return token, err == nil, err
}

func (t tokenMaker) DeleteToken(ctx context.Context, token string) (bool, error) {
	return t.a.DeleteToken(ctx, token)
}
