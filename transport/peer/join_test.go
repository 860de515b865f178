package peer

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"clustermaster/test/logtest"
	"clustermaster/transport/peer/peerpb"
)

const testSecret = "correct horse battery staple"

// testK is costly to make; one is enough.
var testK = sync.OnceValue(func() []byte { return JoinKey(testSecret, "kc") })

type fixedKey []byte

func (k fixedKey) JoinKey() ([]byte, bool) { return k, k != nil }

// recorder answers joins and remembers who asked.
type recorder struct {
	mu   sync.Mutex
	from []Hello
	k    []byte // that the last one proved
	err  error
}

func (r *recorder) HandleJoin(_ context.Context, from Hello, k, request []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from, r.k = append(r.from, from), k
	return append([]byte("re: "), request...), r.err
}

func (r *recorder) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.from)
}

// clusterKey signs as the cluster's key would.
type clusterKey struct {
	key *rsa.PrivateKey
	pub string
}

func newClusterKey(t *testing.T) *clusterKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return &clusterKey{key: key,
		pub: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
}

func (c *clusterKey) SignJoin(msg []byte) (string, []byte, error) {
	h := crypto.SHA224.New()
	h.Write(msg)
	sig, err := rsa.SignPKCS1v15(rand.Reader, c.key, crypto.SHA224, h.Sum(nil))
	return c.pub, sig, err
}

func (c *clusterKey) is(pub string) bool { return pub == c.pub }

type noKeyYet struct{}

func (noKeyYet) SignJoin([]byte) (string, []byte, error) { return "", nil, ErrNoClusterKey }

func helloOf(id string) Hello {
	return Hello{ID: id, Addr: id + ".example:4520", Incarnation: "00ff", ClusterID: "kc",
		Version: "1"}
}

// newJoinPair is a member that takes joins and a joiner that is not pinned.
func newJoinPair(t *testing.T, secrets Secrets, signer ClusterSigner,
	tune ...func(*Config)) (member, joiner *master, asked *recorder) {
	t.Helper()
	_, ms := newMasters(t, 1, tune...)
	asked = &recorder{}
	ms[0].ServeJoins(helloOf("m1"), secrets, asked, signer)
	return ms[0], newPort(t, newMembers(), "j1/00ff", tune...).serve(), asked
}

func (m *master) askJoin(to *master, k []byte, pinned func(string) bool) (Hello, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return m.AskJoin(ctx, to.Addr().String(), helloOf("j1"), k, pinned, []byte("let me in"))
}

func TestJoin(t *testing.T) {
	t.Parallel()
	cluster := newClusterKey(t)
	member, joiner, asked := newJoinPair(t, fixedKey(testK()), cluster)
	for _, pinned := range []func(string) bool{nil, cluster.is} {
		from, reply, err := joiner.askJoin(member, testK(), pinned)
		if err != nil {
			t.Fatal(err)
		}
		if string(reply) != "re: let me in" {
			t.Errorf("reply %q", reply)
		}
		if from.ID != "m1" || from.Node() != "m1/00ff" || from.SPKI != member.key.SPKI() {
			t.Errorf("member says %+v", from)
		}
	}
	got := asked.from[0]
	if got.ID != "j1" || got.Addr != "j1.example:4520" || got.SPKI != joiner.key.SPKI() ||
		got.Nonce == asked.from[1].Nonce {
		t.Errorf("joiner came as %+v", got)
	}
	if n := member.count("clustermaster_peer_joins_total", "answered"); n != 2 {
		t.Errorf("%v joins counted", n)
	}
	if _, _, err := member.AskJoin(context.Background(), member.Addr().String(), helloOf("m1"),
		testK(), nil, nil); !errors.Is(err, ErrSelf) {
		t.Errorf("join of itself: %v", err)
	}
	asked.err = errors.New("no leader")
	if _, _, err := joiner.askJoin(member, testK(), nil); !errors.Is(err, ErrUnanswered) ||
		strings.Contains(err.Error(), "no leader") {
		t.Errorf("failing handler: %v", err)
	}
	eventually(t, "logged", func() bool { return member.logs.Contains("no leader") })
}

// twoKeys takes joiners with K, and those with one node key also with a former K.
type twoKeys struct {
	fixedKey
	former []byte
	spki   [32]byte
}

func (s *twoKeys) JoinKeyOf(spki [32]byte) ([]byte, bool) { return s.former, spki == s.spki }

// A node key with a K of its own may prove that or the present one, and the handler learns which.
func TestJoinTellsWhatWasProved(t *testing.T) {
	t.Parallel()
	former := JoinKey("the secret of an earlier time", "kc")
	secrets := &twoKeys{fixedKey: testK(), former: former}
	member, joiner, asked := newJoinPair(t, secrets, nil)
	if _, _, err := joiner.askJoin(member, former, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("the former K with another node key: %v", err)
	}
	secrets.spki = joiner.key.SPKI()
	for _, k := range [][]byte{testK(), former} {
		if _, _, err := joiner.askJoin(member, k, nil); err != nil || !bytes.Equal(asked.k, k) {
			t.Errorf("the handler heard %x instead of %x; %v", asked.k, k, err)
		}
	}
}

func TestJoinKeyRefusesWeakSecrets(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "short", strings.Repeat("x", MinSecret-1)} {
		if CheckSecret(secret) == nil || JoinKey(secret, "kc") != nil {
			t.Errorf("secret %q is taken", secret)
		}
	}
	if bytes.Equal(JoinKey(testSecret, "other"), testK()) ||
		bytes.Equal(JoinKey(testSecret+".", "kc"), testK()) {
		t.Error("K does not depend on secret and cluster_id")
	}
	// A golden value: two releases must agree on K.
	if got := hex.EncodeToString(testK()); got != goldenK {
		t.Errorf("K is %s, was %s", got, goldenK)
	}
}

func TestJoinRefusals(t *testing.T) {
	t.Parallel()
	cluster, other := newClusterKey(t), newClusterKey(t)
	wrong := JoinKey("another secret of length", "kc")
	for _, tc := range []struct {
		name    string
		secrets Secrets
		signer  ClusterSigner
		self    func(*Hello)
		k       []byte
		pinned  func(string) bool
		want    error
		reason  string // at the member
	}{
		{name: "wrong secret", secrets: fixedKey(testK()), k: wrong, want: ErrRefused,
			reason: "join_proof"},
		{name: "member of another secret", secrets: fixedKey(wrong), k: testK(), want: ErrRefused,
			reason: "join_proof"},
		{name: "no secret here", secrets: fixedKey(testK()), k: JoinKey("", "kc"), want: ErrSecret},
		{name: "short secret here", secrets: fixedKey(testK()), k: JoinKey("short", "kc"),
			want: ErrSecret},
		{name: "no secret there", secrets: fixedKey(nil), k: testK(), want: ErrRefused,
			reason: "join_closed"},
		{name: "short secret there", secrets: fixedKey("short"), k: testK(), want: ErrRefused,
			reason: "join_closed"},
		{name: "another cluster_id", secrets: fixedKey(testK()), k: testK(),
			self: func(h *Hello) { h.ClusterID = "other" }, want: ErrRefused,
			reason: "join_cluster"},
		{name: "bad id", secrets: fixedKey(testK()), k: testK(),
			self: func(h *Hello) { h.ID = "../x" }, want: errJoinHello},
		{name: "wrong fingerprint", secrets: fixedKey(testK()), signer: cluster, k: testK(),
			pinned: other.is, want: ErrFingerprint, reason: "join_left"},
		{name: "key shown, not held", secrets: fixedKey(testK()),
			signer: &clusterKey{key: other.key, pub: cluster.pub}, k: testK(),
			pinned: cluster.is, want: ErrFingerprint, reason: "join_left"},
		{name: "no cluster key yet", secrets: fixedKey(testK()), signer: noKeyYet{}, k: testK(),
			pinned: cluster.is, want: ErrNoClusterKey, reason: "join_left"},
		{name: "no signer", secrets: fixedKey(testK()), k: testK(),
			pinned: cluster.is, want: ErrNoClusterKey, reason: "join_left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			member, joiner, asked := newJoinPair(t, tc.secrets, tc.signer)
			self := helloOf("j1")
			if tc.self != nil {
				tc.self(&self)
			}
			_, reply, err := joiner.AskJoin(context.Background(), member.Addr().String(), self,
				tc.k, tc.pinned, []byte("let me in"))
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if where := "; the log of " + member.Addr().String() + " has the reason"; tc.want == ErrRefused &&
				(!strings.HasSuffix(err.Error(), where) || strings.Contains(err.Error(), "EOF")) {
				t.Errorf("error %v does not say where the reason is", err)
			}
			if reply != nil || asked.asked() != 0 {
				t.Errorf("reply %q, handler asked %d times", reply, asked.asked())
			}
			if tc.reason != "" {
				eventually(t, "counted as "+tc.reason,
					func() bool { return member.refusedFor(tc.reason) == 1 })
				eventually(t, "logged with address",
					func() bool { return member.logs.Contains("addr=127.0.0.1:") })
			}
			if member.logs.Contains(testSecret) || joiner.logs.Contains(testSecret) {
				t.Error("the secret is in a log")
			}
		})
	}
}

// rawJoin shakes hands as key for join, with no port behind it.
func rawJoin(t *testing.T, addr string, key *NodeKey) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{key.cert},
		NextProtos: []string{protoJoin}, InsecureSkipVerify: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// One proof per connection; after a wrong one nothing comes back, though the
// right one follows.
func TestJoinOneAttemptPerConnection(t *testing.T) {
	t.Parallel()
	member, joiner, asked := newJoinPair(t, fixedKey(testK()), nil)
	c := rawJoin(t, member.Addr().String(), joiner.key)
	ours, err := packHello(helloOf("j1"), joiner.key.SPKI(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFrame(c, ours); err != nil {
		t.Fatal(err)
	}
	theirs, err := readFrame(c, maxHello)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := newTranscript(c, ours, theirs)
	if err != nil {
		t.Fatal(err)
	}
	// Reflecting the member's label is a wrong proof, too.
	for _, mac := range [][]byte{tr.proof(testK(), memberLabel), tr.proof(testK(), joinerLabel)} {
		_ = writeMessage(c, &peerpb.JoinProof{Mac: mac}) // the second meets a closed connection
	}
	readsNothing(t, c)
	eventually(t, "counted", func() bool { return member.refusedFor("join_proof") == 1 })
	if asked.asked() != 0 {
		t.Error("the handler was asked")
	}
}

// A joiner that stops half-way costs only its connection.
func TestJoinHasADeadline(t *testing.T) {
	t.Parallel()
	member, joiner, asked := newJoinPair(t, fixedKey(testK()), nil,
		func(c *Config) { c.HandshakeTimeout = 2 * time.Second })
	ours, err := packHello(helloOf("j1"), joiner.key.SPKI(), false)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]*tls.Conn{}
	for name, say := range map[string][]byte{"nothing": nil, "half a length": {0, 0},
		"a hello": append([]byte{0, 0, 0, byte(len(ours))}, ours...)} {
		open[name] = rawJoin(t, member.Addr().String(), joiner.key)
		if _, err := open[name].Write(say); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range open {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: left open", name)
		}
	}
	eventually(t, "timeouts counted", func() bool { return member.refusedFor("timeout") == 3 })
	if asked.asked() != 0 {
		t.Error("the handler was asked")
	}
}

// A frame that claims too much is refused before it is read.
func TestJoinRefusesALongFrame(t *testing.T) {
	t.Parallel()
	member, joiner, asked := newJoinPair(t, fixedKey(testK()), nil)
	c := rawJoin(t, member.Addr().String(), joiner.key)
	if _, err := c.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	readsNothing(t, c)
	eventually(t, "counted", func() bool { return member.refusedFor("join_hello") == 1 })
	if asked.asked() != 0 {
		t.Error("the handler was asked")
	}
}

// tap relays one TCP connection and keeps what the dialler sent.
func tap(t *testing.T, to string) (addr string, sent func() []byte) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	var kept logtest.Buffer
	go func() {
		in, err := ln.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer out.Close()
		go func() { _, _ = io.Copy(in, out); in.Close() }()
		_, _ = io.Copy(io.MultiWriter(out, &kept), in)
	}()
	return ln.Addr().String(), func() []byte { return []byte(kept.String()) }
}

// A hand-shake that succeeded is worth nothing to one who recorded it: neither
// its bytes on the wire nor, had TLS been opened, its frames.
func TestJoinReplayIsUseless(t *testing.T) {
	t.Parallel()
	member, joiner, asked := newJoinPair(t, fixedKey(testK()), nil)
	addr, sent := tap(t, member.Addr().String())
	if _, _, err := joiner.AskJoin(context.Background(), addr, helloOf("j1"), testK(), nil,
		[]byte("let me in")); err != nil {
		t.Fatal(err)
	}
	if asked.asked() != 1 || len(sent()) == 0 {
		t.Fatal("nothing was recorded")
	}
	c, err := net.Dial("tcp", member.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(sent()); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.Copy(io.Discard, c) // the member's hand-shake, then its end
	eventually(t, "wire replay refused",
		func() bool { return member.count("clustermaster_peer_refused_total") == 1 })

	// The frames of one session, replayed in another by the very same key.
	record := func() (hello, proof []byte) {
		c := rawJoin(t, member.Addr().String(), joiner.key)
		ours, err := packHello(helloOf("j1"), joiner.key.SPKI(), false)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeFrame(c, ours); err != nil {
			t.Fatal(err)
		}
		theirs, err := readFrame(c, maxHello)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := newTranscript(c, ours, theirs)
		if err != nil {
			t.Fatal(err)
		}
		proof, err = proto.Marshal(&peerpb.JoinProof{Mac: tr.proof(testK(), joinerLabel)})
		if err != nil {
			t.Fatal(err)
		}
		if err := writeFrame(c, proof); err != nil {
			t.Fatal(err)
		}
		if _, err := readFrame(c, maxProof); err != nil {
			t.Fatalf("the recorded session was no good one: %v", err)
		}
		return ours, proof
	}
	hello, proof := record()
	again := rawJoin(t, member.Addr().String(), joiner.key)
	if err := writeFrame(again, hello); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(again, maxHello); err != nil {
		t.Fatal(err)
	}
	if err := writeFrame(again, proof); err != nil {
		t.Fatal(err)
	}
	readsNothing(t, again)
	eventually(t, "frame replay refused",
		func() bool { return member.refusedFor("join_proof") == 1 })
	// Under another key it does not even get a hello.
	thief, err := LoadNodeKey(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	other := rawJoin(t, member.Addr().String(), thief)
	if err := writeFrame(other, hello); err != nil {
		t.Fatal(err)
	}
	readsNothing(t, other)
	if asked.asked() != 1 {
		t.Errorf("handler asked %d times, want 1", asked.asked())
	}
}

// A man in the middle has two TLS sessions; relaying frames, even with his own
// key written into the joiner's hello, proves nothing in either.
func TestJoinRelayIsUseless(t *testing.T) {
	t.Parallel()
	member, joiner, asked := newJoinPair(t, fixedKey(testK()), nil)
	mallory, err := LoadNodeKey(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{mallory.cert},
		NextProtos: []string{protoJoin}, ClientAuth: tls.RequireAnyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	swap := func(b []byte) []byte {
		var m peerpb.JoinHello
		if proto.Unmarshal(b, &m) != nil {
			return b
		}
		s := mallory.SPKI()
		m.Spki = s[:]
		out, _ := proto.Marshal(&m)
		return out
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in, err := ln.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := tls.Dial("tcp", member.Addr().String(),
			&tls.Config{Certificates: []tls.Certificate{mallory.cert},
				NextProtos: []string{protoJoin}, InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer out.Close()
		relay := func(from io.Reader, to io.Writer, change func([]byte) []byte) bool {
			b, err := readFrame(from, maxHello)
			return err == nil && writeFrame(to, change(b)) == nil
		}
		keep := func(b []byte) []byte { return b }
		_ = relay(in, out, swap) && relay(out, in, swap) && relay(in, out, keep) &&
			relay(out, in, keep)
	}()
	_, _, err = joiner.AskJoin(context.Background(), ln.Addr().String(), helloOf("j1"), testK(),
		nil, nil)
	if !errors.Is(err, ErrRefused) {
		t.Errorf("joiner: %v, want ErrRefused", err)
	}
	<-done
	eventually(t, "refused at the member",
		func() bool { return member.refusedFor("join_proof") == 1 })
	if asked.asked() != 0 {
		t.Error("the handler was asked")
	}
}

// An impostor that takes any proof does not get the request.
func TestJoinerChecksTheMember(t *testing.T) {
	t.Parallel()
	joiner := newPort(t, newMembers(), "j1/00ff").serve()
	impostor, err := LoadNodeKey(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{impostor.cert}, NextProtos: []string{protoJoin},
		ClientAuth: tls.RequireAnyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	got := make(chan []byte, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		hello, _ := packHello(helloOf("m1"), impostor.SPKI(), false)
		_, _ = readFrame(c, maxHello)
		_ = writeFrame(c, hello)
		_, _ = readFrame(c, maxProof)
		_ = writeMessage(c, &peerpb.JoinProof{Mac: make([]byte, 32)})
		b, _ := io.ReadAll(c)
		got <- b
	}()
	_, _, err = joiner.AskJoin(context.Background(), ln.Addr().String(), helloOf("j1"), testK(), nil,
		[]byte("let me in"))
	if !errors.Is(err, ErrMemberProof) {
		t.Errorf("joiner: %v, want ErrMemberProof", err)
	}
	if b := <-got; len(b) > 0 {
		t.Errorf("the impostor got %q", b)
	}
}

// Guessing runs dry, is counted, and does not touch members; right answers
// never run dry.
func TestJoinAttemptsAreLimited(t *testing.T) {
	t.Parallel()
	member, joiner, asked := newJoinPair(t, fixedKey(testK()), nil, func(c *Config) {
		c.JoinTries, c.JoinTryEvery = 3, time.Hour
	})
	for range 6 {
		if _, _, err := joiner.askJoin(member, testK(), nil); err != nil {
			t.Fatalf("proved joiner: %v", err)
		}
	}
	wrong := JoinKey("another secret of length", "kc")
	for range 5 {
		if _, _, err := joiner.askJoin(member, wrong, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("guess: %v, want ErrRefused", err)
		}
	}
	eventually(t, "guesses counted", func() bool {
		return member.refusedFor("join_proof") == 3 && member.refusedFor("join_limit") == 2
	})
	if _, _, err := joiner.askJoin(member, testK(), nil); !errors.Is(err, ErrRefused) {
		t.Errorf("after the limit: %v", err)
	}
	if asked.asked() != 6 {
		t.Errorf("handler asked %d times", asked.asked())
	}
	if n := strings.Count(member.logs.String(), "reason=join_proof"); n != 1 {
		t.Errorf("%d log lines for three refusals within 10 s, want 1", n)
	}
}

// AskJoin ends with its context, and with the port, when the member hangs.
func TestAskJoinEnds(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	joiner := newPort(t, newMembers(), "j1/00ff").serve()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := joiner.AskJoin(ctx, ln.Addr().String(), helloOf("j1"), testK(), nil,
		nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}

	hang := make(hangingHandler)
	member, _, _ := newJoinPair(t, fixedKey(testK()), nil)
	member.ServeJoins(helloOf("m1"), fixedKey(testK()), hang, nil)
	ended := make(chan error, 1)
	go func() {
		_, _, err := joiner.AskJoin(context.Background(), member.Addr().String(), helloOf("j1"),
			testK(), nil, nil)
		ended <- err
	}()
	<-hang
	begin := time.Now()
	member.stop() // cancels the handler
	if err := <-ended; !errors.Is(err, ErrUnanswered) {
		t.Errorf("member ended: %v, want ErrUnanswered", err)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("member took %s to stop", took)
	}
}

type hangingHandler chan struct{}

func (h hangingHandler) HandleJoin(ctx context.Context, _ Hello, _, _ []byte) ([]byte, error) {
	h <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}
