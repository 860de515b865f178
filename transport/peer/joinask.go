package peer

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"clustermaster/transport/peer/peerpb"
)

// Errors of AskJoin, besides those of the network.
var (
	// ErrRefused: the member closed the connection and gives no reason.
	ErrRefused = errors.New("the member refused: cluster_secret or cluster_id differ there, it " +
		"does not accept joins yet, or there were too many attempts; its log has the reason")
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
	ErrUnanswered = errors.New("the member could not answer the join request; its log has the reason")
)

// AskJoin makes one attempt at the member at addr: hand-shake, the member's signature if
// fingerprint is not empty, our proof, the member's proof, and only then the request. It fills in
// SPKI and Nonce of self. fingerprint is cluster_pub_fingerprint: the SHA-256 of cluster.pub in
// hex. It returns the member also with ErrUnanswered. It ends with ctx, or after JoinTimeout.
func (p *Port) AskJoin(ctx context.Context, addr string, self Hello, k []byte, fingerprint string,
	request []byte) (member Hello, reply []byte, err error) {
	member, reply, err = p.askJoin(ctx, addr, self, k, fingerprint, request)
	if err != nil {
		err = fmt.Errorf("ask %s to join: %w", addr, err)
	}
	return member, reply, err
}

func (p *Port) askJoin(ctx context.Context, addr string, self Hello, k []byte, fingerprint string,
	request []byte) (Hello, []byte, error) {
	if len(k) != joinKeySize {
		return Hello{}, nil, ErrSecret
	}
	if len(request) > maxRequest-16 {
		return Hello{}, nil, fmt.Errorf("request of %d bytes: %w", len(request), errTooLong)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.JoinTimeout)
	defer cancel()
	var spki [32]byte
	t, raw, err := p.dial(ctx, addr, protoJoin, func(s [32]byte) error {
		if spki = s; equalSPKI(s, p.cfg.Key.SPKI()) {
			return ErrSelf
		}
		return nil
	})
	if err != nil {
		return Hello{}, nil, refused(ctx, err)
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	defer p.endWithPort(cancel, t)()

	// The proofs get a hand-shake's time, the answer gets the rest of ctx.
	if err := raw.SetDeadline(time.Now().Add(p.cfg.HandshakeTimeout)); err != nil {
		return Hello{}, nil, err
	}
	member, err := p.proveJoin(t, spki, self, k, fingerprint)
	if err != nil {
		return Hello{}, nil, refused(ctx, err)
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return Hello{}, nil, err
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

// proveJoin exchanges hellos, signature and both proofs.
func (p *Port) proveJoin(t *tls.Conn, spki [32]byte, self Hello, k []byte,
	fingerprint string) (Hello, error) {
	ours, err := packHello(self, p.cfg.Key.SPKI(), fingerprint != "")
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
	if fingerprint != "" {
		var m peerpb.JoinSignature
		if err := readMessage(t, maxSignature, &m); err != nil {
			return Hello{}, err
		}
		if err := checkClusterKey(&m, fingerprint, tr.signed()); err != nil {
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
func checkClusterKey(m *peerpb.JoinSignature, fingerprint string, signed []byte) error {
	if m.GetClusterPub() == "" {
		return ErrNoClusterKey
	}
	if !isFingerprint(m.GetClusterPub(), fingerprint) {
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

// isFingerprint compares with the SHA-256 of the PEM text: unchanged, and trimmed with and without
// a line end, because `sha256sum cluster.pub` counts the file's own (salt/channel/server.py, Salt
// 3008, hashes the text as received).
func isFingerprint(pub, fingerprint string) bool {
	want, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(fingerprint), ":", ""))
	if err != nil || len(want) != sha256.Size {
		return false
	}
	clean := strings.TrimSpace(strings.ReplaceAll(pub, "\r\n", "\n"))
	for _, text := range []string{pub, clean, clean + "\n"} {
		if sum := sha256.Sum256([]byte(text)); subtle.ConstantTimeCompare(sum[:], want) == 1 {
			return true
		}
	}
	return false
}

// refused turns a connection that the member ended into ErrRefused: before both proofs the member
// gives no other reason.
func refused(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if hungUp(err) {
		return fmt.Errorf("%w (%w)", ErrRefused, err)
	}
	return err
}

func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if hungUp(err) {
		return fmt.Errorf("%w (%w)", ErrUnanswered, err)
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
