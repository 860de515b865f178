package peer

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"clustermaster/transport/peer/peerpb"
)

// Errors of AskJoin, besides those of the network.
var (
	// ErrRefused: the member closed the connection and gives no reason.
	ErrRefused = errors.New("the member refused: it has another cluster_secret or cluster_id, does not accept " +
		"joins yet, or got too many attempts")
	// ErrMemberProof: the other end does not know the secret.
	ErrMemberProof = errors.New("the member did not prove cluster_secret: it may be an impostor")
	// ErrFingerprint: the other end does not hold the pinned cluster key.
	ErrFingerprint = errors.New("the member does not hold the key of cluster_pub_fingerprint: it may be an impostor")
	// ErrNoClusterKey: the member has no cluster key yet, so it can't sign.
	ErrNoClusterKey = errors.New("no cluster key there yet")
	// ErrSelf: addr is this master's own port.
	ErrSelf = errors.New("this is the master itself")
	// ErrSecret: k is not a key that JoinKey made.
	ErrSecret = errors.New("no usable cluster_secret")
	// ErrUnanswered: both sides are proved but the member could not answer; try again later.
	ErrUnanswered = errors.New("the member could not answer the join request")
)

// AskJoin makes one attempt at the member at addr: hand-shake, the member's signature if pinned is
// not nil, our proof, the member's proof, and only then the request. It fills in SPKI and Nonce of
// self. pinned reports whether a public key, PEM, is that of cluster_pub_fingerprint. AskJoin
// returns the member also with ErrUnanswered. It ends with ctx, or after JoinTimeout.
func (p *Port) AskJoin(ctx context.Context, addr string, self Hello, k []byte, pinned func(pub string) bool,
	request []byte) (member Hello, reply []byte, err error) {
	member, reply, err = p.askJoin(ctx, addr, self, k, pinned, request)
	if err != nil {
		err = fmt.Errorf("ask %s to join: %w", addr, err)
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrUnanswered) {
			err = fmt.Errorf("%w; the log of %s has the reason", err, addr)
		}
	}
	return member, reply, err
}

func (p *Port) askJoin(ctx context.Context, addr string, self Hello, k []byte, pinned func(pub string) bool,
	request []byte) (Hello, []byte, error) {
	if len(k) != joinKeySize {
		return Hello{}, nil, ErrSecret
	}
	if len(request) > maxRequest-16 {
		return Hello{}, nil, fmt.Errorf("request of %d bytes: %w", len(request), errTooLong)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.JoinTimeout)
	defer cancel()
	t, spki, err := p.dialJoin(ctx, addr)
	if err != nil {
		return Hello{}, nil, refused(ctx, err)
	}
	raw := t.NetConn()
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	defer p.endWithPort(cancel, t)()

	// The proofs get a hand-shake's time, the answer gets the rest of ctx.
	if err := raw.SetDeadline(time.Now().Add(p.cfg.HandshakeTimeout)); err != nil {
		return Hello{}, nil, err
	}
	member, err := p.proveJoin(t, spki, self, k, pinned)
	if err != nil {
		return Hello{}, nil, refused(ctx, err)
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return Hello{}, nil, err
	}
	if at := p.rivalOf(ctx, member, processOf(t.ConnectionState())); at != "" {
		return member, nil, fmt.Errorf("the master there has a copied data directory: it is not the one at %s", at)
	}
	if err := writeMessage(t, &peerpb.JoinRequest{Request: request}); err != nil {
		return member, nil, lost(ctx, err)
	}
	var m peerpb.JoinReply
	if err := readMessage(t, maxRequest, &m); err != nil {
		return member, nil, lost(ctx, err)
	}
	if m.GetUnanswered() {
		return member, nil, ErrUnanswered
	}
	_ = t.Close() // the answer has arrived
	return member, m.GetReply(), nil
}

// dialJoin connects to the master at addr, within HandshakeTimeout, and returns its key.
func (p *Port) dialJoin(ctx context.Context, addr string) (t *tls.Conn, spki [32]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.HandshakeTimeout)
	defer cancel()
	r, err := p.line(ctx, addr, protoJoin, func(s [32]byte) error {
		spki = s
		return nil
	})
	return r.Conn, spki, err
}

// proveJoin exchanges hellos, signature and both proofs.
func (p *Port) proveJoin(t *tls.Conn, spki [32]byte, self Hello, k []byte,
	pinned func(pub string) bool) (Hello, error) {
	ours, err := packHello(self, p.cfg.Key.SPKI(), pinned != nil)
	if err != nil {
		return Hello{}, err
	}
	if err := writeFrame(t, ours); err != nil {
		return Hello{}, err
	}
	theirs, err := readFrame(t, maxHello)
	if err != nil {
		return Hello{}, err
	}
	member, _, err := parseHello(theirs)
	switch {
	case err != nil:
		return Hello{}, err
	case !equalSPKI(member.SPKI, spki):
		return Hello{}, fmt.Errorf("names another node key than it uses: %w", errJoinHello)
	case member.ClusterID != self.ClusterID:
		return Hello{}, fmt.Errorf("%q: %w", member.ClusterID, errJoinCluster)
	}
	tr, err := newTranscript(t, ours, theirs)
	if err != nil {
		return Hello{}, err
	}
	if pinned != nil {
		var m peerpb.JoinSignature
		if err := readMessage(t, maxSignature, &m); err != nil {
			return Hello{}, err
		}
		if err := checkClusterKey(&m, pinned, tr.signed()); err != nil {
			return Hello{}, err
		}
	}
	if err := writeMessage(t, &peerpb.JoinProof{Mac: tr.proof(k, joinerLabel)}); err != nil {
		return Hello{}, err
	}
	var proof peerpb.JoinProof
	if err := readMessage(t, maxProof, &proof); err != nil {
		return Hello{}, err
	}
	if !hmac.Equal(proof.GetMac(), tr.proof(k, memberLabel)) {
		return Hello{}, ErrMemberProof
	}
	return member, nil
}

// checkClusterKey accepts the member's cluster key only if it is the pinned one and has signed this
// very TLS session.
func checkClusterKey(m *peerpb.JoinSignature, pinned func(pub string) bool, signed []byte) error {
	if m.GetClusterPub() == "" {
		return ErrNoClusterKey
	}
	if !pinned(m.GetClusterPub()) {
		return ErrFingerprint
	}
	block, _ := pem.Decode([]byte(m.GetClusterPub()))
	if block == nil {
		return fmt.Errorf("cluster key is not PEM: %w", ErrFingerprint)
	}
	var pub *rsa.PublicKey
	if any, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
		pub, _ = any.(*rsa.PublicKey)
	} else if pub, err = x509.ParsePKCS1PublicKey(block.Bytes); err != nil {
		return fmt.Errorf("cluster key: %w: %w", ErrFingerprint, err)
	}
	if pub == nil {
		return fmt.Errorf("cluster key is not RSA: %w", ErrFingerprint)
	}
	h := crypto.SHA224.New()
	h.Write(signed)
	if err := rsa.VerifyPKCS1v15(pub, crypto.SHA224, h.Sum(nil), m.GetSignature()); err != nil {
		return fmt.Errorf("signature of the session: %w: %w", ErrFingerprint, err)
	}
	return nil
}

// refused turns a connection that the member ended into ErrRefused: before both proofs the member
// gives no other reason.
func refused(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if hungUp(err) {
		return ErrRefused
	}
	return err
}

func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if hungUp(err) {
		return ErrUnanswered
	}
	return err
}

// hungUp reports whether the other end closed, reset, or sent a TLS alert.
func hungUp(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.As(err, &op) && op.Op == "remote error"
}
