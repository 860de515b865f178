package peer

import (
	"context"
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"clustermaster/transport/peer/peerpb"
)

// Reasons why a join attempt ended before its joiner was proved.
var (
	errJoinClosed  = errors.New("this member takes no joins now")
	errJoinHello   = errors.New("not a hello of the join channel")
	errJoinCluster = errors.New("for another cluster_id")
	errJoinLeft    = errors.New("left before its proof: cluster_pub_fingerprint may differ there")
	errJoinProof   = errors.New("cluster_secret not proved: does it differ there?")
)

// Secrets returns K, as JoinKey computed it, anew for each join attempt, so that a rotated secret
// applies at once. If ok is false no master can join now.
type Secrets interface {
	JoinKey() (k []byte, ok bool)
}

// SecretsByNode may also be implemented by Secrets: some node keys may prove another K instead of
// JoinKey's. A removed member that has only the K of its time proves itself with that, and the
// JoinHandler tells it that it was removed; a master with another node key can't join with that K.
type SecretsByNode interface {
	JoinKeyOf(spki [32]byte) (k []byte, ok bool)
}

// JoinHandler answers a join request. It is called only after both sides proved the secret;
// from.SPKI is the joiner's proved key, and k the K that it proved. Its error is logged here and
// reaches the joiner only as ErrUnanswered.
type JoinHandler interface {
	HandleJoin(ctx context.Context, from Hello, k, request []byte) (reply []byte, err error)
}

// ClusterSigner signs with the cluster's RSA key for joiners that pin it.
type ClusterSigner interface {
	// SignJoin returns cluster.pub as PEM text and the PKCS #1 v1.5 signature of
	// msg over SHA-224 (wire.SigSHA224); ErrNoClusterKey before there is a key.
	SignJoin(msg []byte) (clusterPub string, sig []byte, err error)
}

// joinService holds the arguments of ServeJoins.
type joinService struct {
	self    Hello
	secrets Secrets
	handler JoinHandler
	signer  ClusterSigner
}

// ServeJoins opens the join channel; before it every attempt is refused. signer
// may be nil: a joiner that pins the cluster's key then stops by itself.
func (p *Port) ServeJoins(self Hello, secrets Secrets, h JoinHandler, signer ClusterSigner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joins = &joinService{self: self, secrets: secrets, handler: h, signer: signer}
}

// serveJoin checks the proofs of one attempt within the hand-shake's deadline, then answers its
// request. The order is the design's: it sends nothing that depends on the secret before it has
// checked the joiner's proof. An error means that the joiner was not proved; the caller then closes
// without an answer.
func (p *Port) serveJoin(t *tls.Conn, raw net.Conn, leave func() bool) error {
	p.mu.Lock()
	js := p.joins
	p.mu.Unlock()
	if js == nil {
		return errJoinClosed
	}
	keys := js.joinKeys(t)
	if len(keys) == 0 {
		return errJoinClosed
	}
	from := sourceOf(raw.RemoteAddr())
	if !p.tries.take(from, time.Now()) {
		return errJoinLimit
	}
	joiner, err := p.checkJoiner(t, js, keys)
	if err != nil {
		return err
	}
	p.tries.giveBack(from)
	if leave() {
		return errEvicted
	}
	defer raw.Close()
	p.answerJoin(t, js, joiner)
	return nil
}

// joinKeys are the K of which this joiner must prove one.
func (js *joinService) joinKeys(t *tls.Conn) [][]byte {
	var keys [][]byte
	if k, ok := js.secrets.JoinKey(); ok {
		keys = append(keys, k)
	}
	if by, ok := js.secrets.(SecretsByNode); ok {
		if spki, err := certSPKI(t.ConnectionState().PeerCertificates); err == nil {
			if k, ok := by.JoinKeyOf(spki); ok {
				keys = append(keys, k)
			}
		}
	}
	return slices.DeleteFunc(keys, func(k []byte) bool { return len(k) != joinKeySize })
}

// provedJoiner is a joiner with the K that it proved, and this member's proof of the same K.
type provedJoiner struct {
	Hello
	k, proof []byte
}

// checkJoiner exchanges hellos, signs if requested, and checks the joiner's proof.
func (p *Port) checkJoiner(t *tls.Conn, js *joinService, keys [][]byte) (provedJoiner, error) {
	none := func(err error) (provedJoiner, error) { return provedJoiner{}, err }
	spki, err := certSPKI(t.ConnectionState().PeerCertificates)
	if err != nil {
		return none(err)
	}
	theirs, err := readFrame(t, maxHello)
	if err != nil {
		return none(fmt.Errorf("read hello: %w: %w", errJoinHello, err))
	}
	joiner, wantSignature, err := parseHello(theirs)
	switch {
	case err != nil:
		return none(err)
	case !equalSPKI(joiner.SPKI, spki):
		return none(fmt.Errorf("names another node key than it uses: %w", errJoinHello))
	case joiner.ClusterID != js.self.ClusterID:
		return none(fmt.Errorf("%q: %w", joiner.ClusterID, errJoinCluster))
	}
	ours, err := packHello(js.self, p.cfg.Key.SPKI(), false)
	if err != nil {
		return none(err)
	}
	tr, err := newTranscript(t, theirs, ours)
	if err != nil {
		return none(err)
	}
	if err := writeFrame(t, ours); err != nil {
		return none(err)
	}
	if wantSignature {
		if err := js.sign(t, tr); err != nil {
			return none(err)
		}
	}
	var proof peerpb.JoinProof
	if err := readMessage(t, maxProof, &proof); err != nil {
		return none(fmt.Errorf("%s: %w: %w", joiner.ID, errJoinLeft, err))
	}
	for _, k := range keys {
		if hmac.Equal(proof.GetMac(), tr.proof(k, joinerLabel)) {
			return provedJoiner{joiner, k, tr.proof(k, memberLabel)}, nil
		}
	}
	return none(fmt.Errorf("%s: %w", joiner.ID, errJoinProof))
}

// sign sends the cluster key's signature to a joiner that requested it; an empty message means that
// there is no key yet.
func (js *joinService) sign(t *tls.Conn, tr transcript) error {
	var m peerpb.JoinSignature
	if js.signer != nil {
		pub, sig, err := js.signer.SignJoin(tr.signed())
		switch {
		case err == nil:
			m.ClusterPub, m.Signature = pub, sig
		case !errors.Is(err, ErrNoClusterKey):
			return fmt.Errorf("sign for joiner: %w", err)
		}
	}
	return writeMessage(t, &m)
}

// answerJoin serves the single request of a proved joiner.
func (p *Port) answerJoin(t *tls.Conn, js *joinService, joiner provedJoiner) {
	log := p.cfg.Log.With("peer", joiner.ID, "addr", t.RemoteAddr().String())
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.JoinTimeout)
	defer cancel()
	defer p.endWithPort(cancel, t)()
	deadline, _ := ctx.Deadline()
	// so that a handler that used all its time can still be answered for
	err := t.SetDeadline(deadline.Add(time.Second))
	if err == nil {
		err = writeMessage(t, &peerpb.JoinProof{Mac: joiner.proof})
	}
	result, reply := "broken", peerpb.JoinReply{Unanswered: true}
	if err == nil {
		select {
		case p.joinSlots <- struct{}{}:
			result, err = p.answer(ctx, t, js, joiner, &reply)
			<-p.joinSlots
		default:
			result, err = "busy", errors.New("too many join requests at a time")
		}
	}
	p.m.joins.WithLabelValues(result).Inc()
	if err != nil {
		log.Warn("join request not answered", "reason", result, "err", err)
	}
	if err := writeMessage(t, &reply); err != nil {
		log.Info("joiner left before its answer", "err", err)
		return
	}
	_ = t.Close() // says goodbye, so that no reset loses the answer
}

// answer reads the request and fills reply with the handler's answer.
func (p *Port) answer(ctx context.Context, t *tls.Conn, js *joinService, joiner provedJoiner,
	reply *peerpb.JoinReply) (result string, err error) {
	var request peerpb.JoinRequest
	if err := readMessage(t, maxRequest, &request); err != nil {
		return "broken", err
	}
	joiner.Rival = p.rivalOf(ctx, joiner.Hello, processOf(t.ConnectionState()))
	b, err := js.handler.HandleJoin(ctx, joiner.Hello, joiner.k, request.GetRequest())
	if err == nil && len(b) > maxRequest-16 {
		err = fmt.Errorf("reply of %d bytes: %w", len(b), errTooLong)
	}
	if err != nil {
		return "failed", err
	}
	reply.Reply, reply.Unanswered = b, false
	return "answered", nil
}

// endWithPort calls cancel and closes t when the port closes, until stop.
func (p *Port) endWithPort(cancel func(), t *tls.Conn) (stop func()) {
	ended := make(chan struct{})
	end := func() {
		cancel()
		_ = t.NetConn().Close()
	}
	if !p.spawn(func() {
		select {
		case <-p.closing:
			end()
		case <-ended:
		}
	}) {
		end()
	}
	return func() { close(ended) }
}
