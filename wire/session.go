package wire

import (
	"crypto/hkdf"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Topics of publications that go to everybody, and to syndics.
const (
	BroadcastTopic = "broadcast"
	SyndicTopic    = "syndic"
)

// Topic returns the topic that the minion of this id subscribes to with zmq_filtering: 40
// hexadecimal characters.
func Topic(id string) string {
	sum := sha1.Sum([]byte(id))
	return hex.EncodeToString(sum[:])
}

// sessionLabel is the HKDF label of session keys. Changing it changes every minion's session key.
const sessionLabel = "clustermaster minion session v1"

// DeriveSession makes the session key of a minion from the cluster's session secret, so that every
// master has it: HKDF with SHA-256 over the minion's id, the SHA-256 of its accepted public key,
// and the Raft index of the acceptance. The secret should have 32 random bytes.
func DeriveSession(secret []byte, id string, pubSum [32]byte, acceptIndex uint64) Key {
	info := make([]byte, 0, len(sessionLabel)+len(pubSum)+8+len(id))
	info = append(info, sessionLabel...)
	info = append(info, pubSum[:]...)
	info = binary.BigEndian.AppendUint64(info, acceptIndex)
	info = append(info, id...) // last, because it alone has no fixed length
	var k Key
	b, err := hkdf.Key(sha256.New, secret, nil, string(info), len(k))
	if err != nil {
		panic("wire: HKDF refuses 56 bytes: " + err.Error()) // impossible
	}
	copy(k[:], b)
	return k
}
