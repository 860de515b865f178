package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"

	"clustermaster/serve/acl"
	"clustermaster/value"
	"clustermaster/value/hashtype"
)

// Bounds of tokens.
const (
	maxTokens         = 10_000
	maxTokensPerOwner = 2_000
	maxTokenData      = 16 << 10                   // bytes of the stored data of one
	maxTokenText      = 256                        // bytes of a text to look up
	maxTokenAge       = 100 * 365 * 24 * time.Hour // maximum token_expire in a request
	minTokenText      = 16
)

// ErrTokensFull says that a cap of tokens is reached.
var ErrTokensFull = errors.New("too many tokens; delete some with salt-run auth.del_token, or wait until some expire")

// Tokens is the replicated state of tokens.
type Tokens interface {
	// PutToken stores a token on all masters. Error: ErrTokensFull, or why the masters can't agree.
	PutToken(ctx context.Context, t Token, most, mostPerOwner int) error
	// DropToken removes a token from all masters. Had reports whether it existed.
	DropToken(ctx context.Context, hash [32]byte) (had bool, err error)
	// Token finds a token, even an expired one.
	Token(hash [32]byte) (Token, bool)
	// Tokens counts them.
	Tokens() int
}

// Token is the stored record of a token.
type Token struct {
	Hash   [32]byte // SHA-256 of its text
	Owner  string   // back end and name
	Data   []byte   // Salt's token map without the text, packed
	Expire time.Time
}

// MakeToken authenticates and makes a token. It returns Salt's map: token, start, expire, name,
// eauth, groups and, with keep_acl_in_token, auth_list. It uses token_expire in creds, in seconds,
// if token_expire_user_override lets the user choose. Errors: those of Authenticate, or
// ErrTokensFull.
func (a *Auth) MakeToken(ctx context.Context, source string, creds value.Map) (value.Map, error) {
	id, err := a.Authenticate(ctx, source, creds)
	if err != nil {
		return nil, err
	}
	f := a.now.Load()
	age, err := f.age(id, creds)
	if err != nil {
		a.log.Warn("no token made", "eauth", id.Eauth, "user", id.Name, "err", err)
		return nil, err
	}
	text, err := newTokenText(f.opts.HashType)
	if err != nil {
		return nil, err
	}
	now := a.deps.Now()
	expire := now.Add(age)
	data := value.Map{
		{Key: "start", Value: seconds(now)}, {Key: "expire", Value: seconds(expire)},
		{Key: "name", Value: id.Name}, {Key: "eauth", Value: id.Eauth},
	}
	if f.opts.KeepACLInToken {
		data = append(data, value.Pair{Key: "auth_list", Value: id.Rights.List()})
	}
	if len(id.Groups) > 0 {
		groups := make([]any, len(id.Groups))
		for i, g := range id.Groups {
			groups[i] = g
		}
		data = append(data, value.Pair{Key: "groups", Value: groups})
	}
	packed, err := value.Pack(data)
	if err != nil {
		return nil, fmt.Errorf("make token: %w", err)
	}
	if len(packed) > maxTokenData {
		return nil,
			fmt.Errorf("make token: the groups and rights of %s take %d bytes, more than %d; turn keep_acl_in_token off", id.Name, len(packed), maxTokenData)
	}
	t := Token{Hash: hashOf(text), Owner: id.Eauth + "/" + id.Name, Data: packed,
		Expire: expire.UTC()}
	if err := a.deps.Tokens.PutToken(ctx, t, maxTokens, maxTokensPerOwner); err != nil {
		a.m.tokens.WithLabelValues("refused").Inc()
		a.log.Warn("no token made", "eauth", id.Eauth, "user", id.Name, "err", err)
		return nil, fmt.Errorf("make token: %w", err)
	}
	a.m.tokens.WithLabelValues("made").Inc()
	a.log.Info("token made", "eauth", id.Eauth, "user", id.Name, "expire", t.Expire)
	return append(data, value.Pair{Key: "token", Value: text}), nil
}

// age returns how long a new token is valid.
func (f *inForce) age(id Identity, creds value.Map) (time.Duration, error) {
	asked, given := creds.Get("token_expire")
	if !given || !f.mayChoose(id) {
		return f.opts.TokenExpire, nil
	}
	var s float64
	switch v := asked.(type) {
	case int64:
		s = float64(v)
	case uint64:
		s = float64(v)
	case float64:
		s = v
	default:
		return 0, fmt.Errorf("token_expire is not a number of seconds: %w", ErrRefused)
	}
	if !(s > 0) || s > maxTokenAge.Seconds() { // NaN as well
		return 0, fmt.Errorf("token_expire of %v s is not between 0 and 100 years: %w", s,
			ErrRefused)
	}
	return time.Duration(s * float64(time.Second)), nil
}

// mayChoose reports whether token_expire_user_override lets a user choose how long his token is
// valid.
func (f *inForce) mayChoose(id Identity) bool {
	switch o := f.opts.ExpireOverride.(type) {
	case bool:
		return o
	case value.Map:
		v, _ := o.Get(id.Eauth)
		users, _ := v.([]any)
		for _, u := range users {
			if u == id.Name {
				return true
			}
		}
	}
	return false
}

// Token returns Salt's map of a token, with its text; false if it is unknown, expired or deleted.
func (a *Auth) Token(_ context.Context, text string) (value.Map, bool) {
	if len(text) < minTokenText || len(text) > maxTokenText {
		a.m.tokens.WithLabelValues("unknown").Inc()
		return nil, false
	}
	t, ok := a.deps.Tokens.Token(hashOf(text))
	if !ok || !t.Expire.After(a.deps.Now()) {
		a.m.tokens.WithLabelValues("unknown").Inc()
		return nil, false
	}
	data, err := value.UnpackMap(t.Data)
	if err != nil {
		a.log.Warn("a token's record can't be read; delete the token", "err", err)
		return nil, false
	}
	a.m.tokens.WithLabelValues("good").Inc()
	return append(data, value.Pair{Key: "token", Value: text}), true
}

// refuseToken returns the refusal of a token, and logs it now and then: any stranger may send one.
func (a *Auth) refuseToken(user string, why error) error {
	a.refusals.tell(a.log, "token", "", shown(user), why)
	return fmt.Errorf("%w: %w", ErrRefused, why)
}

// ByToken is Authenticate for a token. The present external_auth counts, except for a list that the
// token holds. Error: ErrRefused, at once, because tokens can't be guessed.
func (a *Auth) ByToken(ctx context.Context, text string) (Identity, error) {
	data, ok := a.Token(ctx, text)
	if !ok {
		return Identity{}, a.refuseToken("", errors.New("the token is unknown, expired or deleted"))
	}
	id := Identity{Name: data.String("name"), Eauth: data.String("eauth"), Expire: timeOf(data)}
	f := a.now.Load()
	if _, enabled := f.backEnds[id.Eauth]; !enabled {
		return Identity{}, a.refuseToken(id.Name, fmt.Errorf("external_auth no longer has the token's back end %q",
			id.Eauth))
	}
	groups, _ := data.Get("groups")
	names, _ := groups.([]any)
	for _, g := range names {
		if name, ok := g.(string); ok {
			id.Groups = append(id.Groups, name)
		}
	}
	if kept, has := data.Get("auth_list"); has && f.opts.KeepACLInToken {
		list, _ := kept.([]any)
		id.Rights = acl.FromList(list)
		return id, nil
	}
	var err error
	if id.Rights, err = f.expanded(ctx, id.Eauth,
		acl.Granted(f.section(id.Eauth), id.Name, id.Groups,
			f.opts.PermissiveACL).List()); err != nil {
		return Identity{}, a.refuseToken(id.Name, err)
	}
	return id, nil
}

// DeleteToken deletes a token on all masters. Had reports whether it existed.
func (a *Auth) DeleteToken(ctx context.Context, text string) (had bool, err error) {
	if len(text) < minTokenText || len(text) > maxTokenText {
		return false, nil
	}
	had, err = a.deps.Tokens.DropToken(ctx, hashOf(text))
	if had {
		a.m.tokens.WithLabelValues("deleted").Inc()
	}
	return had, err
}

func hashOf(text string) [32]byte { return sha256.Sum256([]byte(text)) }

// newTokenText hashes 512 random bytes with hash_type, as Salt does.
func newTokenText(hashType string) (string, error) {
	random := make([]byte, 512)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	newHash, err := hashtype.Of(hashType)
	if err != nil {
		return "", err
	}
	h := newHash()
	h.Write(random)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// seconds returns a time as Salt writes it: since the epoch, with a fraction.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func timeOf(data value.Map) time.Time {
	v, _ := data.Get("expire")
	s, _ := v.(float64)
	whole, part := math.Modf(s)
	return time.Unix(int64(whole), int64(part*1e9))
}
