package auth

import (
	"context"
	"fmt"
	"time"

	"clustermaster/cluster/fsm"
)

// Cluster is the replicated state; *cluster.Node implements it.
type Cluster interface {
	State() *fsm.State
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, uint64, error)
	// ConfirmEverywhere returns when every serving master has applied an index, or the masters that
	// did not in time.
	ConfirmEverywhere(ctx context.Context, index uint64) (unconfirmed []string)
	Now() time.Time
}

// Agreed implements Tokens with the replicated state.
type Agreed struct{ Cluster Cluster }

var _ Tokens = Agreed{}

// PutToken implements Tokens; so do the next three methods.
func (t Agreed) PutToken(ctx context.Context, token Token, most, mostPerOwner int) error {
	r, index, err := t.Cluster.Propose(ctx,
		&fsm.PutToken{Token: fsm.Token(token), Max: most, MaxPerOwner: mostPerOwner,
			At: t.Cluster.Now().UTC()})
	switch {
	case err != nil:
		return err
	case r.Refused == fsm.RefusedFull:
		return ErrTokensFull
	case r.Refused != "":
		return fmt.Errorf("refused: %s", r.Refused)
	}
	t.Cluster.ConfirmEverywhere(ctx, index)
	return nil
}

func (t Agreed) DropToken(ctx context.Context, hash [32]byte) (bool, error) {
	r, index, err := t.Cluster.Propose(ctx, &fsm.DropToken{Hash: hash, At: t.Cluster.Now().UTC()})
	if err == nil && r.Refused != "" {
		err = fmt.Errorf("refused: %s", r.Refused)
	}
	if err != nil {
		return false, fmt.Errorf("delete token: %w", err)
	}
	t.Cluster.ConfirmEverywhere(ctx, index)
	return r.Changed, nil
}

func (t Agreed) Token(hash [32]byte) (Token, bool) {
	token, ok := t.Cluster.State().Token(hash)
	return Token(token), ok
}

func (t Agreed) Tokens() int { return t.Cluster.State().Tokens() }
