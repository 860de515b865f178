package simminion

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	transport "clustermaster/transport/minion"
	"clustermaster/value"
	"clustermaster/wire"
)

// signIn makes _auth on its own connection until the master accepts. With a stale crypt it does
// nothing if another goroutine has signed in since.
func (m *Minion) signIn(ctx context.Context, stale *crypt) error {
	m.signing.Lock()
	defer m.signing.Unlock()
	if now := m.crypt.Load(); stale != nil && now != stale {
		return nil
	}
	for {
		err := m.signInOnce(ctx)
		if errors.Is(err, ErrRejected) && !m.cfg.RejectedRetry {
			m.giveUp(err)
			return err
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		m.cfg.Log.Debug("sign in", "err", err)
		if err := pause(ctx, m.cfg.AcceptanceWait); err != nil {
			return err
		}
	}
}

// signInOnce makes one attempt, which lasts as long as the master answers "pending". The caller
// holds signing.
func (m *Minion) signInOnce(ctx context.Context) error {
	var client *transport.RequestClient
	hangUp := func() {
		if client != nil {
			client.Close()
			client = nil
		}
	}
	defer hangUp()
	for try := 0; try < m.cfg.AuthTries; {
		auth, err := m.authRequest()
		if err != nil {
			return err
		}
		packed, err := auth.Pack()
		if err != nil {
			return err
		}
		reply, err := m.attempt(ctx, &client, packed, m.cfg.AuthTimeout)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			hangUp()
			try++
			continue
		}
		answer, err := wire.OpenAuthReply(auth, reply)
		if err != nil {
			return err
		}
		if !answer.Accepted {
			switch answer.Ret {
			case false:
				return ErrRejected
			case "full":
				return errors.New("master is full")
			}
			m.counts.pending.Add(1)
			if err := pause(ctx, m.cfg.AcceptanceWait); err != nil {
				return err
			}
			try = 0
			continue
		}
		m.accept(answer)
		return nil
	}
	return fmt.Errorf("sign in: no answer in %d tries", m.cfg.AuthTries)
}

func (m *Minion) authRequest() (wire.AuthRequest, error) {
	nonce, err := wire.NewNonce()
	if err != nil {
		return wire.AuthRequest{}, err
	}
	a := wire.AuthRequest{Version: m.cfg.Version, ID: m.cfg.ID, Key: m.cfg.Key.Private,
		Nonce:   nonce,
		EncAlgo: m.cfg.EncAlgo, SigAlgo: m.cfg.SigAlgo, Master: m.cfg.MasterKey}
	if c := m.crypt.Load(); c != nil {
		a.Master = c.master
	}
	if a.Master != nil {
		if m.token == nil {
			random := make([]byte, 56)
			if _, err := rand.Read(random); err != nil {
				return wire.AuthRequest{}, fmt.Errorf("make token: %w", err)
			}
			m.token = []byte(base64.StdEncoding.EncodeToString(random))
		}
		a.Token = m.token
	}
	return a, nil
}

// accept replaces the keys if they changed; an unchanged AES key keeps its reader, with its last
// serial.
func (m *Minion) accept(a wire.AuthAnswer) {
	m.counts.signIns.Add(1)
	c := &crypt{aes: a.AES, session: a.Session, master: a.Master, publishPort: a.PublishPort}
	old := m.crypt.Load()
	if old != nil && old.aes == c.aes {
		c.publications = old.publications
	} else {
		var signer *wire.PublicKey
		if m.cfg.CheckSignatures {
			signer = a.Master
		}
		c.publications = wire.NewPubReader(wire.NewCrypticle(a.AES), signer)
	}
	switch {
	case old != nil && old.aes == c.aes && old.session == c.session:
		c.requests = old.requests
	case m.cfg.Version > 2:
		c.requests = wire.NewCrypticle(a.Session)
	default:
		c.requests = wire.NewCrypticle(a.AES)
	}
	m.crypt.Store(c)
}

// attempt sends one request on *client, which it connects if needed, and waits. As with libzmq, it
// does not notice that a connection broke after the request was sent: the time runs out. The caller
// closes the client after an error.
func (m *Minion) attempt(ctx context.Context, client **transport.RequestClient, packed []byte,
	timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if *client != nil {
		select {
		case <-(*client).Ended():
			*client = nil
		default:
		}
	}
	for wait := 100 * time.Millisecond; *client == nil; wait = min(2*wait, 5*time.Second) {
		c, err := transport.DialRequests(ctx, m.cfg.Master, m.clientOptions())
		if err == nil {
			*client = c
			break
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
	reply, err := (*client).Do(ctx, packed)
	if err != nil {
		<-ctx.Done()
	}
	return reply, err
}

// call sends a request on the long-lived connection and returns the opened reply.
func (m *Minion) call(ctx context.Context, load value.Map) (value.Raw, error) {
	m.line.Lock()
	defer m.line.Unlock()
	if slots := m.cfg.RequestSlots; slots != nil {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { m.closeRequests(); <-slots }()
	}
	return m.sealed(ctx, &m.req, load)
}

// sealed makes request_channel_tries attempts. A reply that doesn't open means that the keys have
// changed: it signs in and repeats, once.
func (m *Minion) sealed(ctx context.Context, client **transport.RequestClient,
	load value.Map) (value.Raw, error) {
	var errLast error
	signedIn := false
	for try := 0; try < m.cfg.RequestTries; try++ {
		c := m.crypt.Load()
		nonce, err := wire.NewNonce()
		if err != nil {
			return nil, err
		}
		packed, err := m.sender.SealRequest(c.requests, load, nonce, time.Now())
		if err != nil {
			return nil, err
		}
		reply, err := m.attempt(ctx, client, packed, m.cfg.RequestTimeout)
		if err != nil {
			if *client != nil {
				(*client).Close()
				*client = nil
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			errLast = err
			continue
		}
		val, err := wire.OpenReply(c.requests, reply, nonce)
		if err == nil {
			return val, nil
		}
		errLast = err
		if errors.Is(err, wire.ErrAuthentication) {
			if signedIn {
				break
			}
			signedIn = true
			if err := m.signIn(ctx, c); err != nil {
				return nil, err
			}
			try--
		}
	}
	return nil, fmt.Errorf("request %s: %w", load.String("cmd"), errLast)
}

// fetchPillar requests the pillar on its own connection. All its tries use one nonce.
func (m *Minion) fetchPillar(ctx context.Context) error {
	nonce, err := wire.NewNonce()
	if err != nil {
		return err
	}
	load := value.Map{{Key: "id", Value: m.cfg.ID}, {Key: "grains", Value: m.grains()},
		{Key: "saltenv", Value: nil},
		{Key: "pillarenv", Value: nil}, {Key: "pillar_override", Value: value.Map{}},
		{Key: "extra_minion_data", Value: value.Map{}},
		{Key: "ver", Value: "2"}, {Key: "cmd", Value: "_pillar"}}
	var client *transport.RequestClient
	defer func() {
		if client != nil {
			client.Close()
		}
	}()
	var errLast error
	for range m.cfg.RequestTries {
		c := m.crypt.Load()
		packed, err := m.sender.SealRequest(c.requests, load, nonce, time.Now())
		if err != nil {
			return err
		}
		reply, err := m.attempt(ctx, &client, packed, m.cfg.RequestTimeout)
		if err != nil {
			if client != nil {
				client.Close()
				client = nil
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			errLast = err
			continue
		}
		val, err := wire.OpenPrivate(m.cfg.Key.Private, c.master, m.sender, reply, "pillar", nonce)
		if err == nil {
			m.pillar.Store(&val)
			return nil
		}
		errLast = err
		if err := m.signIn(ctx, c); err != nil {
			return err
		}
	}
	return fmt.Errorf("request _pillar: %w", errLast)
}

// hangUp closes the long-lived connection.
func (m *Minion) hangUp() {
	m.line.Lock()
	defer m.line.Unlock()
	m.closeRequests()
}

// closeRequests closes the request connection; the caller holds line.
func (m *Minion) closeRequests() {
	if m.req != nil {
		m.req.Close()
		m.req = nil
	}
}
