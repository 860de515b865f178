package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clustermaster/tools/simminion"
	transport "clustermaster/transport/minion"
	"clustermaster/value"
	"clustermaster/wire"
)

// errPending means that the master has not accepted the minion's key.
var errPending = errors.New("the master has not accepted the key")

// session is one signed-in minion. Only one worker uses it.
type session struct {
	id      string
	key     *simminion.Key
	sender  wire.Sender
	master  *wire.PublicKey // known since the first sign-in
	current wire.Key
	crypt   *wire.Crypticle
}

func newSession(id string, key *simminion.Key) *session {
	return &session{id: id, key: key, sender: wire.Sender{
		Version: 3, ID: id, Tok: key.Token(), EncAlgo: wire.EncSHA1, SigAlgo: wire.SigSHA1,
	}}
}

// auth sends _auth of a minion that knows this key of the master, or none if it is nil.
func (s *session) auth(ctx context.Context, line *line, master *wire.PublicKey) (
	auth wire.AuthRequest, reply []byte, err error) {
	auth = wire.AuthRequest{Version: 3, ID: s.id, Key: s.key.Private, EncAlgo: wire.EncSHA1,
		SigAlgo: wire.SigSHA1, Master: master}
	var packed []byte
	if auth.Nonce, err = wire.NewNonce(); err == nil {
		packed, err = auth.Pack()
	}
	if err == nil {
		reply, err = line.do(ctx, packed)
	}
	return auth, reply, err
}

// signIn makes _auth with all of a minion's checks and keeps the session key.
func (s *session) signIn(ctx context.Context, line *line) error {
	auth, reply, err := s.auth(ctx, line, s.master)
	if err != nil {
		return err
	}
	answer, err := wire.OpenAuthReply(auth, reply)
	if err != nil {
		return err
	}
	if !answer.Accepted {
		if answer.Ret == true {
			return errPending
		}
		return fmt.Errorf("the master refuses the key of %s (%v): if it knows another one, delete that (salt-key -d) or take another --prefix", s.id, answer.Ret)
	}
	s.master = answer.Master
	if s.crypt == nil || s.current != answer.Session {
		s.current, s.crypt = answer.Session, wire.NewCrypticle(answer.Session)
	}
	return nil
}

// call sends a sealed request and opens the answer. If the answer doesn't open, the keys have
// changed, or another master behind the balancer has others: the call fails, and the next one
// begins with a sign-in.
func (s *session) call(ctx context.Context, line *line, load value.Map) (value.Raw, error) {
	nonce, reply, err := s.send(ctx, line, load)
	if err != nil {
		return nil, err
	}
	val, err := wire.OpenReply(s.crypt, reply, nonce)
	if errors.Is(err, wire.ErrAuthentication) || errors.Is(err, wire.ErrNotSealed) {
		s.crypt = nil
	}
	return val, err
}

// send seals and sends a request and returns the answer unopened.
func (s *session) send(ctx context.Context, line *line, load value.Map) (nonce string, reply []byte,
	err error) {
	if s.crypt == nil {
		if err := s.signIn(ctx, line); err != nil {
			return "", nil, fmt.Errorf("sign in again: %w", err)
		}
	}
	if nonce, err = wire.NewNonce(); err != nil {
		return "", nil, err
	}
	packed, err := s.sender.SealRequest(s.crypt, load, nonce, time.Now())
	if err != nil {
		return "", nil, err
	}
	reply, err = line.do(ctx, packed)
	return nonce, reply, err
}

// line is a worker's connection to one master, made when it is needed.
type line struct {
	addr   string
	client *transport.RequestClient
}

// do sends a packed request. After a failure it closes the connection.
func (l *line) do(ctx context.Context, packed []byte) ([]byte, error) {
	if l.client == nil {
		c, err := transport.DialRequests(ctx, l.addr, transport.ClientOptions{})
		if err != nil {
			return nil, err
		}
		l.client = c
	}
	reply, err := l.client.Do(ctx, packed)
	if err != nil {
		l.close()
	}
	return reply, err
}

func (l *line) close() {
	if l.client != nil {
		l.client.Close()
		l.client = nil
	}
}
