package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"clustermaster/value"
)

// docSealed are V1 to V4 of the protocol document, 4.3.
var docSealed = []struct{ name, iv, packed, nonce, sealed string }{
	{
		"V1", "000102030405060708090a0b0c0d0e0f", "c0", "",
		"000102030405060708090a0b0c0d0e0fa95af3e1f35d585035ad8056c46493532f032873bfe87adf0be0b7a9510c3d6bb9c6c1cad4857cc735879953ee0ee3b8",
	},
	{
		"V2", "000102030405060708090a0b0c0d0e0f", "c3", docNonce,
		"000102030405060708090a0b0c0d0e0fc03c9c8acff922fc7d2548736c10a15697a829f1160278ef5e6fddb89116c7fb9d9e78e0aa98938104638799ab08986aaa07d221ca7bc6fc8c6334804031485093960fb301cde0a21ec3e69641577522",
	},
	{
		"V3", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
		"87a3636d64a75f72657475726ea26964a26d31a36a6964b43230323630313031303030303030303030303030a672657475726ec3a7726574636f646500a773756363657373c3a366756ea9746573742e70696e67", "",
		"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff4ea74cd6f93fa48b9b6ce7386a3a1a29c050c8e19579f1e08e6af4b47e2e71a9eb32a7b784ae11b6d08b49cce59912b141d7d0165f37badee8ffd50f542b40d96ba2549f0164e936da8805a428bdba026fd62f7ec32d9e4bcb20dcf66bcbd7df75c5505567be77d6e19d1f6b64f545b74b7e395dc0c27b2a10960b7ffb89e9f1",
	},
	{
		"V4", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
		"88a366756ea9746573742e70696e67a361726790a3746774a12aa36a6964b43230323630313031303030303030303030303030a3726574a0a87467745f74797065a4676c6f62a475736572a4726f6f74a673657269616c01", "",
		"f0f1f2f3f4f5f6f7f8f9fafbfcfdfefffe663116c41cfa2f053ee432d8e38949794019f34eedc0042f0d25cada9c30b73562994468e9c4986f683fd18cf6331c39ebb65e125a3c34926be4913287d86e355b062657fe4274adcbf33e6e805b93545551952b371edd15c323ab264631f0ddd3a6bac4729661fff97722c1517c157f001caf2ce63260dda1934e3c37d812a9d60fc2e90da7ab69cca666641bd5fe",
	},
}

// sealWith is Seal with a given IV.
func sealWith(c *Crypticle, iv, packed []byte, nonce string) []byte {
	b := append(append([]byte(nil), iv...), mark...)
	return c.finish(append(append(b, nonce...), packed...), 0)
}

// Conformance 15.
func TestSealEqualsDocument(t *testing.T) {
	c := NewCrypticle(mustKey(t, docKey))
	for _, v := range docSealed {
		packed, want := unhex(t, v.packed), unhex(t, v.sealed)
		if got := sealWith(c, unhex(t, v.iv), packed, v.nonce); !bytes.Equal(got, want) {
			t.Errorf("%s: sealed %x, want %x", v.name, got, want)
		}
		got, err := c.OpenNonce(want, v.nonce)
		if err != nil || !bytes.Equal(got, packed) {
			t.Errorf("%s: opened %x, %v, want %x", v.name, got, err, packed)
		}
		own := append([]byte(nil), want...)
		got, err = c.OpenInPlace(own)
		if err != nil || !bytes.Equal(got, append([]byte(v.nonce), packed...)) {
			t.Errorf("%s: opened in place %x, %v", v.name, got, err)
		}
		again, err := c.Seal(packed, v.nonce)
		if err != nil || len(again) != len(want) || cap(again) != len(again) ||
			bytes.Equal(again, want) {
			t.Errorf("%s: sealed again %x (room for %d), %v", v.name, again, cap(again), err)
		}
	}
}

func TestOpenEqualsLibrary(t *testing.T) {
	c := NewCrypticle(mustKey(t, golden().AES))
	for _, v := range golden().Sealed {
		got, err := c.OpenNonce(v.Sealed, v.Nonce)
		if err != nil || !bytes.Equal(got, v.Packed) {
			t.Errorf("opened %x, %v, want %x", got, err, v.Packed)
		}
	}
}

// Conformance 16: whatever bit is flipped, and also a cut or longer message.
func TestOpenRefusesChanges(t *testing.T) {
	c := NewCrypticle(mustKey(t, docKey))
	sealed := unhex(t, docSealed[1].sealed)
	for i := range sealed {
		for bit := range 8 {
			b := append([]byte(nil), sealed...)
			b[i] ^= 1 << bit
			changed := append([]byte(nil), b...)
			if p, err := c.OpenInPlace(b); !errors.Is(err, ErrAuthentication) || p != nil {
				t.Fatalf("bit %d of byte %d: got %x, %v", bit, i, p, err)
			}
			if !bytes.Equal(b, changed) {
				t.Fatal("a message that did not open was changed")
			}
		}
		if _, err := c.Open(sealed[:i]); !errors.Is(err, ErrAuthentication) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := c.Open(append(sealed, 0)); !errors.Is(err, ErrAuthentication) {
		t.Errorf("one byte more: %v", err)
	}
	if _, err := c.Open([]byte("bad load")); !errors.Is(err, ErrAuthentication) {
		t.Errorf("bad load: %v", err)
	}
	var other Key
	if _, err := NewCrypticle(other).Open(unhex(t, docSealed[1].sealed)); !errors.Is(err,
		ErrAuthentication) {
		t.Errorf("another key: %v", err)
	}
}

// A sender that has the key can still make a wrong padding or leave out the mark.
func TestOpenOddPlaintext(t *testing.T) {
	c := NewCrypticle(mustKey(t, docKey))
	seal := func(plain []byte) []byte {
		b := append(make([]byte, ivSize), plain...)
		e := c.engine()
		e.encrypt(b[:ivSize], b[ivSize:])
		return append(b, e.tag(b)...)
	}
	for name, tt := range map[string]struct {
		plain string
		err   error
	}{
		"padding 0":       {"pickle::\xc0------\x00", ErrAuthentication},
		"padding 17":      {"pickle::\xc0------\x11", ErrAuthentication},
		"padding unequal": {"pickle::\xc0-----\x01\x02", ErrAuthentication},
		"no mark":         {"nothing-------\x02\x02", nil},
		"nothing":         {strings.Repeat("\x10", 16), nil},
		"mark cut":        {"pickle:" + strings.Repeat("\x09", 9), nil},
	} {
		got, err := c.Open(seal([]byte(tt.plain)))
		if !errors.Is(err, tt.err) || (err == nil && !bytes.Equal(got, []byte{0x80})) {
			t.Errorf("%s: got %x, %v, want %v", name, got, err, tt.err)
		}
		got, err = c.OpenNonce(seal([]byte(tt.plain)), docNonce)
		if !errors.Is(err, tt.err) || (err == nil && !bytes.Equal(got, []byte{0x80})) {
			t.Errorf("%s with nonce: got %x, %v, want %v", name, got, err, tt.err)
		}
	}
}

// Conformance 17.
func TestNonce(t *testing.T) {
	c := NewCrypticle(mustKey(t, docKey))
	if _, err := c.OpenNonce(unhex(t, docSealed[1].sealed),
		strings.Repeat("0", 32)); !errors.Is(err, ErrNonce) {
		t.Errorf("another nonce: %v", err)
	}
	if _, err := c.OpenNonce(unhex(t, docSealed[0].sealed), docNonce); !errors.Is(err, ErrNonce) {
		t.Errorf("no nonce: %v", err)
	}
	empty, err := c.Seal([]byte{0x80}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.OpenNonce(empty, docNonce); !errors.Is(err, ErrNonce) {
		t.Errorf("empty map without nonce: %v", err)
	}
	for _, n := range []string{"x", docNonce[1:], docNonce + "0"} {
		if _, err := c.Seal([]byte{0xc0}, n); !errors.Is(err, ErrNonce) {
			t.Errorf("seal with %d bytes: %v", len(n), err)
		}
		if _, err := SealedReply(c, nil, n); !errors.Is(err, ErrNonce) {
			t.Errorf("reply with %d bytes: %v", len(n), err)
		}
	}
}

// Conformance 22.
func TestParseKey(t *testing.T) {
	k := mustKey(t, docKey)
	if k.String() != docKey || k[0] != 0 || k[55] != 55 {
		t.Errorf("got %s, %x", k.String(), k[:])
	}
	bad := map[string]string{
		"empty": "", "cut": docKey[:75], "newline": docKey + "\n",
		"other character": "-" + docKey[1:], "no padding": docKey[:75] + "A",
		"55 bytes": docKey[:74] + "==", "57 bytes": docKey[:75] + "0",
	}
	for name, s := range bad {
		if _, err := ParseKey(s); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewKey()
	if err != nil || a == b {
		t.Errorf("two new keys: equal %v, %v", a == b, err)
	}
}

func TestSecretsStayOutOfLogs(t *testing.T) {
	k := mustKey(t, docKey)
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	log.Info("key", "key", k, "private", docRSA())
	fmt.Fprintf(&text, "%v %s %x %+v %#v %v %v", k, k, k, struct{ K Key }{k}, k, docRSA(), &k)
	for _, secret := range []string{docKey, hex.EncodeToString(k[:8]), "0x0, 0x1", "[0 1 2",
		docRSA().key.D.String()[:20]} {
		if strings.Contains(text.String(), secret) {
			t.Errorf("%q is in %s", secret, text.String())
		}
	}
}

func TestCrypticleConcurrently(t *testing.T) {
	c := NewCrypticle(mustKey(t, docKey))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				packed, err := value.Pack(value.Map{{Key: "g", Value: g}, {Key: "i", Value: i},
					{Key: "pad", Value: strings.Repeat("x", i)}})
				if err != nil {
					t.Error(err)
					return
				}
				sealed, err := c.Seal(packed, docNonce)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := c.OpenNonce(sealed, docNonce); err != nil ||
					!bytes.Equal(got, packed) {
					t.Errorf("got %x, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
