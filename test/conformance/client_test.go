package conformance

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"clustermaster/test/e2e"
	transport "clustermaster/transport/minion"
	"clustermaster/value"
	"clustermaster/wire"
)

// answerLimit is the longest wait for an answer.
const answerLimit = 15 * time.Second

func hostPort(addr string, port int) string { return net.JoinHostPort(addr, strconv.Itoa(port)) }

// exchange sends one request on its own connection.
func exchange(t testing.TB, addr string, payload []byte, limit time.Duration) ([]byte, error) {
	ctx, cancel := e2e.Deadline(t, limit)
	defer cancel()
	c, err := transport.DialRequests(ctx, hostPort(addr, e2e.RequestPort),
		transport.ClientOptions{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(ctx, payload)
}

// send is exchange for a request that must be answered.
func (m *subject) send(t testing.TB, payload []byte) []byte {
	t.Helper()
	reply, err := exchange(t, m.Addr, payload, answerLimit)
	if err != nil {
		t.Fatalf("request of %d bytes: %v", len(payload), err)
	}
	return reply
}

// clear sends a clear load.
func (m *subject) clear(t testing.TB, version, load any) []byte {
	t.Helper()
	return m.send(t, pack(t, envelope("clear", version, load)))
}

// envelope is the outer map of a request. A nil version is left out.
func envelope(enc string, version, load any) value.Map {
	e := value.Map{{Key: "enc", Value: enc}, {Key: "load", Value: load}}
	if version != nil {
		e = append(e, value.Pair{Key: "version", Value: version})
	}
	return e
}

// keyNumber is one of a few RSA keys, made when first needed.
func keyNumber(t testing.TB, n int) *wire.PrivateKey {
	t.Helper()
	k, err := keys[n]()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var keys = func() (list [3]func() (*wire.PrivateKey, error)) {
	for i := range list {
		list[i] = sync.OnceValues(func() (*wire.PrivateKey,
			error) {
			return wire.GeneratePrivateKey(2048)
		})
	}
	return list
}()

func newNonce(t testing.TB) string {
	t.Helper()
	n, err := wire.NewNonce()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// masterKey is the master's public key. A sign-in learns it once.
func (m *subject) masterKey(t testing.TB) *wire.PublicKey {
	t.Helper()
	if m.key == nil {
		m.key = m.signIn(t, "ok-first", 3).got.Master
	}
	return m.key
}

// client is the minion's side of the channel for one id.
type client struct {
	wire.AuthRequest
	got   wire.AuthAnswer
	m     *subject
	reply []byte // the sign-in's
	tok   []byte
}

// newClient makes a minion that has not signed in.
func (m *subject) newClient(t testing.TB, id string, version int) *client {
	t.Helper()
	c := &client{m: m, AuthRequest: wire.AuthRequest{ID: id, Version: version,
		Key: keyNumber(t, 0)}}
	if version > 2 {
		c.EncAlgo, c.SigAlgo = wire.EncSHA1, wire.SigSHA1
	}
	if m.cfg == open.name {
		c.VerifySign = m.signKey(t)
	}
	return c
}

// auth sends the sign-in, changed by edit, and judges the answer as the release with that version
// does.
func (c *client) auth(t testing.TB, edit ...func(load value.Map) value.Map) error {
	t.Helper()
	c.Nonce = newNonce(t)
	packed, err := c.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if len(edit) > 0 {
		outer := unpack(t, packed).(value.Map)
		load, _ := outer.Get("load")
		for _, f := range edit {
			load = f(load.(value.Map))
		}
		packed = pack(t, outer.Set("load", load))
	}
	c.reply = c.m.send(t, packed)
	c.got, err = wire.OpenAuthReply(c.AuthRequest, c.reply)
	return err
}

// signIn is an accepted minion. The master must accept its id automatically.
func (m *subject) signIn(t testing.TB, id string, version int) *client {
	t.Helper()
	c := m.newClient(t, id, version)
	if err := c.auth(t); err != nil || !c.got.Accepted {
		t.Fatalf("%s signs in: %v, %s", id, err, show(t, c.reply))
	}
	var err error
	if c.tok, err = wire.TokenSalt(c.Key); err != nil {
		t.Fatal(err)
	}
	return c
}

// crypt is the key of this client's requests.
func (c *client) crypt() *wire.Crypticle {
	if c.Version > 2 {
		return wire.NewCrypticle(c.got.Session)
	}
	return wire.NewCrypticle(c.got.AES)
}

// load completes a command's load with what the channel adds.
func (c *client) load(t testing.TB, cmd string, more ...value.Pair) value.Map {
	t.Helper()
	m := append(value.Map{{Key: "cmd", Value: cmd}}, more...)
	if c.Version > 1 {
		m = m.Set("nonce", newNonce(t))
	}
	if c.Version > 2 {
		m = m.Set("ts", time.Now().Unix()).Set("tok", c.tok).Set("id", c.ID)
	}
	return m
}

func pair(key string, v any) value.Pair { return value.Pair{Key: key, Value: v} }

// seal packs a complete load, which may be any value, as a request.
func (c *client) seal(t testing.TB, load any, edit ...func(outer value.Map) value.Map) []byte {
	t.Helper()
	return c.sealWith(t, c.crypt(), load, edit...)
}

func (c *client) sealWith(t testing.TB, key *wire.Crypticle, load any,
	edit ...func(outer value.Map) value.Map) []byte {
	t.Helper()
	sealed, err := key.Seal(pack(t, load), "")
	if err != nil {
		t.Fatal(err)
	}
	outer := envelope("aes", c.Version, sealed)
	if c.Version > 2 {
		outer = append(outer, value.Pair{Key: "id", Value: c.ID},
			value.Pair{Key: "enc_algo", Value: c.EncAlgo}, value.Pair{Key: "sig_algo",
				Value: c.SigAlgo})
	}
	for _, f := range edit {
		outer = f(outer)
	}
	return pack(t, outer)
}

// open opens the sealed reply to a load. The load contains the nonce.
func (c *client) open(reply []byte, load value.Map) (any, error) {
	var n string
	if c.Version > 1 {
		n = load.String("nonce")
	}
	raw, err := wire.OpenReply(c.crypt(), reply, n)
	if err != nil {
		return nil, err
	}
	return raw.Unpack()
}

// request makes a request that must succeed, and returns the reply's value.
func (c *client) request(t testing.TB, cmd string, more ...value.Pair) any {
	t.Helper()
	load := c.load(t, cmd, more...)
	reply := c.m.send(t, c.seal(t, load))
	v, err := c.open(reply, load)
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, show(t, reply))
	}
	return v
}

// pillarLoad is what a minion sends for its pillar.
func (c *client) pillarLoad(t testing.TB) value.Map {
	t.Helper()
	return c.load(t, "_pillar", value.Pair{Key: "id", Value: c.ID},
		value.Pair{Key: "grains", Value: value.Map{{Key: "os", Value: "Debian"},
			{Key: "ipv4", Value: []any{c.m.Addr}}}},
		value.Pair{Key: "saltenv", Value: nil}, value.Pair{Key: "pillarenv", Value: nil},
		value.Pair{Key: "pillar_override", Value: value.Map{}},
		value.Pair{Key: "extra_minion_data", Value: value.Map{}}, value.Pair{Key: "ver",
			Value: "2"}, value.Pair{Key: "tok", Value: c.tok})
}

// sender is what wire needs to check private replies.
func (c *client) sender() wire.Sender {
	return wire.Sender{Version: c.Version, ID: c.ID, Tok: c.tok, EncAlgo: c.EncAlgo,
		SigAlgo: c.SigAlgo}
}

// with sets a key in a map that is being edited; without removes keys.
func with(key string, v any) func(value.Map) value.Map {
	return func(m value.Map) value.Map { return slices.Clone(m).Set(key, v) }
}

func without(keys ...string) func(value.Map) value.Map {
	return func(m value.Map) value.Map { return m.Without(keys...) }
}

// subscriber receives a master's publications.
type subscriber struct {
	conn *transport.SubscribeClient
	got  chan [][]byte
}

// subscribe connects to the publish port and waits until the subscription is active.
func subscribe(t testing.TB, addr string, topics ...string) *subscriber {
	t.Helper()
	return subscribeFrom(t, nil, addr, topics...)
}

func subscribeFrom(t testing.TB, from net.IP, addr string, topics ...string) *subscriber {
	t.Helper()
	ctx, cancel := e2e.Deadline(t, 10*time.Second)
	defer cancel()
	conn, err := transport.DialSubscribe(ctx, hostPort(addr, e2e.PublishPort), topics,
		transport.ClientOptions{LocalAddr: &net.TCPAddr{IP: from}})
	if err != nil {
		t.Fatal(err)
	}
	s := &subscriber{conn: conn, got: make(chan [][]byte, 1000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			frames, err := conn.Next()
			if err != nil {
				return
			}
			s.got <- frames
		}
	}()
	t.Cleanup(func() { conn.Close(); <-ended })
	select {
	case <-conn.Confirmed():
	case <-ctx.Done():
		t.Fatal("subscription not confirmed")
	}
	return s
}

// next waits for a publication.
func (s *subscriber) next(t testing.TB, limit time.Duration) [][]byte {
	t.Helper()
	ctx, cancel := e2e.Deadline(t, limit)
	defer cancel()
	select {
	case frames := <-s.got:
		return frames
	case <-ctx.Done():
		t.Fatalf("no publication in %v", limit)
		return nil
	}
}

// framing describes how a message is framed.
func framing(frames [][]byte) string {
	if len(frames) == 2 {
		return fmt.Sprintf("%s + payload", frames[0])
	}
	return fmt.Sprintf("%d frame", len(frames))
}

// readKey reads a public key's file.
func readKey(t testing.TB, path string) *wire.PublicKey {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	k, err := wire.ParsePublicKey(string(b))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return k
}

// signKey is the key by which a master proves its own (master_sign_pubkey).
func (m *subject) signKey(t testing.TB) *wire.PublicKey {
	t.Helper()
	return readKey(t, m.path("pki", "master_sign.pub"))
}
