package peer

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"
	"google.golang.org/protobuf/proto"

	"clustermaster/cluster/level"
	"clustermaster/transport/peer/peerpb"
)

// MinSecret is the least length of cluster_secret, in bytes.
const MinSecret = 16

// joinKeySize is the length of K in bytes.
const joinKeySize = 32

// joinProtocol is the form of the exchange; any change of a frame, label or order increments it.
const joinProtocol = 1

// Bounds of the join frames, in bytes.
const (
	maxHello     = 4 << 10
	maxSignature = 32 << 10
	maxProof     = 256
	maxRequest   = 1 << 20
)

// maxLevel bounds levels: a level is one byte in the log.
const maxLevel = 255

// Labels of the exchange. They differ, so no message can be sent back as its own answer. The
// cluster key signs nothing here that Salt would read: Salt's messages begin with a msgpack map,
// never with this text.
const (
	exporterLabel  = "EXPORTER-clustermaster-join-v1"
	signatureLabel = "clustermaster join v1, cluster key\x00"
	joinerLabel    = "joiner"
	memberLabel    = "member"
)

// Hello is what each side of a join says about itself. The port fills in SPKI and Nonce: the key is
// the one of the TLS session, the nonce is random.
type Hello struct {
	ID          string // the id option
	Addr        string // host:port of its peer port
	Incarnation string // lower-case hex, made with the data directory
	ClusterID   string
	Version     string
	Level       int // the highest that it supports, see package level
	SPKI        [32]byte
	Nonce       [32]byte
	// Rival is not sent: the port of the member that is asked notes here at which address another
	// process with the joiner's node key runs; "" if none does.
	Rival string
}

// Node is the member's name in Raft and on the ring.
func (h Hello) Node() string { return h.ID + "/" + h.Incarnation }

// CheckSecret refuses a cluster_secret that is too short to be safe.
func CheckSecret(secret string) error {
	switch n := len(secret); {
	case n == 0:
		return errors.New("cluster_secret is empty: make one with clustermaster init")
	case n < MinSecret:
		return fmt.Errorf("cluster_secret has %d characters, at least %d are needed: make one with clustermaster init",
			n, MinSecret)
	}
	return nil
}

// JoinKey is K, the proof key of the join channel: Argon2id over the secret,
// salted by the cluster's name (RFC 9106, second recommended option: 3 passes,
// 64 MiB, 4 lanes). It takes about a tenth of a second: compute it once per
// secret. It is nil for a secret that CheckSecret refuses, and no proof with nil is accepted.
func JoinKey(secret, clusterID string) []byte {
	if CheckSecret(secret) != nil {
		return nil
	}
	salt := sha256.Sum256([]byte("clustermaster join key v1\x00" + clusterID))
	defer debug.FreeOSMemory() // return the derivation's 64 MiB
	return argon2.IDKey([]byte(secret), salt[:], 3, 64<<10, 4, joinKeySize)
}

// transcript is the input of both proofs besides their label.
type transcript struct {
	exporter [32]byte // of this TLS session
	hellos   [32]byte // SHA-256 of both, each after its length, joiner's first
}

func newTranscript(t *tls.Conn, joiner, member []byte) (transcript, error) {
	s := t.ConnectionState()
	out, err := s.ExportKeyingMaterial(exporterLabel, nil, 32)
	if err != nil {
		return transcript{}, fmt.Errorf("export TLS keying material: %w", err)
	}
	return transcript{exporter: [32]byte(out), hellos: hashHellos(joiner, member)}, nil
}

func hashHellos(joiner, member []byte) (sum [32]byte) {
	h := sha256.New()
	for _, hello := range [][]byte{joiner, member} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(hello))))
		h.Write(hello)
	}
	h.Sum(sum[:0])
	return sum
}

// proof is HMAC-SHA256(K, label | exporter | hash of both hellos).
func (tr transcript) proof(k []byte, label string) []byte {
	mac := hmac.New(sha256.New, k)
	io.WriteString(mac, label)
	mac.Write(tr.exporter[:])
	mac.Write(tr.hellos[:])
	return mac.Sum(nil)
}

// signed is the text that the cluster key signs for a joiner that requests it.
func (tr transcript) signed() []byte {
	msg := append([]byte(signatureLabel), tr.exporter[:]...)
	return append(msg, tr.hellos[:]...)
}

// packHello completes h with a fresh nonce and returns its bytes.
func packHello(h Hello, spki [32]byte, wantSignature bool) ([]byte, error) {
	if _, err := rand.Read(h.Nonce[:]); err != nil {
		return nil, err
	}
	b, err := proto.Marshal(&peerpb.JoinHello{
		Protocol: joinProtocol, Id: h.ID, Addr: h.Addr, Incarnation: h.Incarnation,
		ClusterId: h.ClusterID,
		Version:   h.Version, Spki: spki[:], Nonce: h.Nonce[:], WantSignature: wantSignature,
		Level: uint32(h.Level),
	})
	if err != nil {
		return nil, err
	}
	if _, _, err := parseHello(b); err != nil {
		return nil, fmt.Errorf("own hello: %w", err)
	}
	return b, nil
}

// parseHello checks the form of every field.
func parseHello(b []byte) (h Hello, wantSignature bool, err error) {
	var m peerpb.JoinHello
	if err := unmarshalKnown(b, &m); err != nil {
		return Hello{}, false, fmt.Errorf("%w: %w", errJoinHello, err)
	}
	if m.GetProtocol() != joinProtocol {
		return Hello{}, false, fmt.Errorf("join protocol %d, this is %d: %w", m.GetProtocol(),
			joinProtocol, errJoinHello)
	}
	wrong := ""
	switch {
	case !validID(m.GetId()):
		wrong = "id"
	case !validAddr(m.GetAddr()):
		wrong = "addr"
	case !validIncarnation(m.GetIncarnation()):
		wrong = "incarnation"
	case m.GetClusterId() == "" || len(m.GetClusterId()) > 255:
		wrong = "cluster_id"
	case len(m.GetVersion()) > 64:
		wrong = "version"
	case len(m.GetSpki()) != 32:
		wrong = "spki"
	case len(m.GetNonce()) != 32:
		wrong = "nonce"
	case m.GetLevel() > maxLevel:
		wrong = "level"
	}
	if wrong != "" {
		return Hello{}, false, fmt.Errorf("bad %s: %w", wrong, errJoinHello)
	}
	return Hello{
		ID: m.GetId(), Addr: m.GetAddr(), Incarnation: m.GetIncarnation(),
		ClusterID: m.GetClusterId(),
		Version:   m.GetVersion(), SPKI: [32]byte(m.GetSpki()), Nonce: [32]byte(m.GetNonce()),
		Level: max(int(m.GetLevel()), level.Base),
	}, m.GetWantSignature(), nil
}

func validID(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) <= 255 &&
		!strings.ContainsAny(id, "/\\\x00\r\n")
}

func validAddr(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || len(addr) > 280 || strings.ContainsAny(host, "/\\\x00\r\n ") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func validIncarnation(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// writeFrame sends one message after its length, 4 bytes, big-endian.
func writeFrame(w io.Writer, b []byte) error {
	f := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b)))
	_, err := w.Write(append(f, b...))
	return err
}

func writeMessage(w io.Writer, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return writeFrame(w, b)
}

// errTooLong: a frame claims to be longer than its kind allows.
var errTooLong = errors.New("frame too long")

// readFrame reads one message of at most limit bytes.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(n[:])
	if uint64(size) > uint64(limit) {
		return nil, fmt.Errorf("%d bytes, at most %d: %w", size, limit, errTooLong)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}

func readMessage(r io.Reader, limit int, m proto.Message) error {
	b, err := readFrame(r, limit)
	if err != nil {
		return err
	}
	return unmarshalKnown(b, m)
}
