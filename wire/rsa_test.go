package wire

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
)

const (
	docT1 = `1d6edcdc7ee5137477df4f94dfe3ab0d8fd0ed46facca5ea2b64774aac132cf286895951bd8ece801672ae8a83961e73b6b95351233d4106dd285cb02f7172c2623fd1535e51975784d32e1dfefd316780cda43c393c6a4df2d33f6119ec9b0c0466fc28a563234ccb9d4420f03e4b437b110fcab193cfa5d64ace30f784bf875af8ce68cbbbf64f73bad136f3526a787acf67c5b7bb9f335ff67132a57a3635d07ade050773e9a1e382555b5fa1f000327ae0f9f79a2f4647e7126e662e8bbfa485ce359e00486f6b0134b48e5a5b731a666c3ae956b4eecafa2fdd7fa2774d35f0dbd8f88e0189300983fa448211898000e977592bcaebc3b0b3a885c470bb`
	docT2 = `2f5991ddaa8f9188fc9bcd24a091675885a30b081c2aad497c08648832bed41e15d523a14aff88599fdc3ca2bba85aac1d43c3025252b1df16847c500e51c89836a07d6af5f66aa41af8f80c804c4d72008f51f401f1cc5ad82b7e14dbbd4bcd7fce1a8cd287202b245c08b76eaba9b9c30b29a9390744d5dbe6b44b7f0f32bdd8301a4825ed1e07c2ade4453bae0676f7b949d8e1e580bd27fc455469585285e669a65965ada755de0c1e2b2de8e472bebc089ab8ba8f00a4d37ecb50a08510a5254aa5cca9dddad30b738a5a8cc4c54b334529cdda3721f5c481018532f08c39173b240ffcf91f1291edb49a9680ca26189eaf7b50277a12daba4af3e15280`
	docT3 = `08828c0258b8566065ebfe638c90cc27d16e498ae86e09731ab599e26157a67a11321657f929bdc4ebb513db5150f5424407533267d8395a9e33bf71ddda789d6d1825b313556d41fde75e9b2c111f723931359bfc85eda5a61d875b884a5d726704ad6ab4123510bd16dc9a61679f81a7d29e55bc30508380a9384462edaaa7058c2d0bb3991539cd6ebd4cf06b36f2ab703b86a655c0fdaad8c2ce2cb0f338be3d9dfb030a7d19ed90af273138bd532b258f5310dcd3831684aa00619f5ecb106aa9e3cba339ccceb53e4c7b89c8c0c02c0a042233c941238251d9d4a38b35e908f85fe205890ffe47a64b561c2cf56c5e86c0b89bb2e9a183bc9717884651`

	docT4Load   = `82a3726574c3a56e6f6e6365da00203031323334353637383961626364656630313233343536373839616263646566`
	docT4SHA1   = `3ee71e4c2e78c9eddd33c9f8623f70f36543ed023a7e4e1c655556956a704b0c3b317bc2afa2dfc9aefb29e320806fb9f1b5de171102079d2951f9a8ee32674f2c46646e3cb5b4251b4bdaf12ad354691262e426e7c1eca6a7ca4bd27b0d561a94c0cfd894077628ca0dd97bc6c26ea7f1283526ab2d74eb5c05ae0444685b21ee3c457d4062341382f0826b2dbb1bba5410a6a1dbca144a0c821cecb0b6a82a09e9361c97b67ff84a541f87e6e080a9e6671ab8cc8b8f57b38a71f346d4154d1247a99d34926ae891b18ca759353f83df41da907c08b891d12e447a28a9c48042a708fe3a32b8c49200d7c5ac71c8dcb90d3d1d118f799cec09d44127684283`
	docT4SHA224 = `4e67c636de6516e70099d05b43f58dee5fda4b2e9950c05f0f44936a6cde9178e42b24e5821949d5822100aba0eb9169eac13838674dbdf14a4a0aee6267e047f65b18215abdf47986c6a8ebe4730197e23431b1cf5357c2b47c187738a42380448c1fc641a0067821a6332978b68707e9e6abe7f4b62c13534589ba96be5f925021b35087a20fcc19f58189c93df6cc4fda1ec49d5b124248178fea409cd9592b3b28522f07aa8b3b99a5c1e87b527064cc4e22dde4dd6a43bf363bde3b467969ae829a2944d664a2c2fccb64747024284575e4d16d687520ec7dbbfcf7ec2820338e168975025a375feb79c78d2b9eba4a8d857ae5bab8a820aa5e097f4a8e`

	docT5SHA1   = `1a715499cd30fb967b4e78154d2f94d9b22f83d49e6407442e86ff00a3ebbbafcceec41c647de525b510e5bd5e2a1e90b0baa8c4589d22bc79fcb3f241f41e6b9c2fbda1999f80f3903370090018da2c00dcc5869cb901f6b889fef3ac07142f58438cca4b8ee106b2c2b32fc0233b9d606ca11ac51981835017b4d274763a41bd0ed6acb6471ffc7793a2625027dd2a1211462c8d7565fb01bd5f165df3dba6a0debb75a839c786a9f643dea87554031d8fbce2cff895f5f0728ab37633de428b0a1db3374618db6cfe237d87efa4c7be927c8df2535f8a2f34dd05430688c9b031727417726aed185c9cfb05469295b64c54b9698134fa1bb91b0fbce231b6`
	docT5SHA224 = `3aa955cf9283011538c61f0008dcaf23eb665eda7757ef71c51bbb3de0dfc03a8eeec80ffc62961dce02c91ff4d56477fd57b2dfa32c061bed4ab8d17534d4c0175789ca332d7f15c4bc2fcac948a320ae5784aae6d9437b961b4a74bee0a73f38ce2f5190fe0ead578fa8cd86a89df89b00cf6da62b031c88e1e4bed458107c3dd0259b0bdd7fe75c7f3b5a8c54fce10c785f25ba331cbbf7ed54a65433608f02cf83bfc3a01d2398215e5bebbe4ef382955c0f2ae291ea64ecf66f7d69e85f7ecf397a15f6cc643b6d20117a3acaa5ee95ff5e2dc53f3c92a19a97a36df712f583337e36dd64ca3de98900caa97fef67cd06cd89a5bfab132c2aeb62b3a32b`
)

// Conformance 19.
func TestX931EqualsDocument(t *testing.T) {
	k := docRSA()
	pub, err := ParsePublicKey(docPublic)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, message, sig string }{
		{"T1", "salt", docT1},
		{"T2", "salt2", docT2},
		{"T3", "420e2e9f2e3c8c5b67e7040d7e6bad564013137121a8e9db5f608589cd4c2d94", docT3},
	}
	for _, tt := range tests {
		got, err := k.X931([]byte(tt.message))
		if err != nil || !bytes.Equal(got, unhex(t, tt.sig)) {
			t.Errorf("%s: got %x, %v", tt.name, got, err)
		}
		message, err := pub.RecoverX931(unhex(t, tt.sig))
		if err != nil || string(message) != tt.message {
			t.Errorf("%s: recovered %q, %v", tt.name, message, err)
		}
	}
	if sig, err := KeySignature(k, mustKey(t, docKey)); err != nil ||
		!bytes.Equal(sig, unhex(t, docT3)) {
		t.Errorf("key signature: got %x, %v", sig, err)
	}
	if tok, err := TokenSalt(k); err != nil || !bytes.Equal(tok, unhex(t, docT1)) {
		t.Errorf("token: got %x, %v", tok, err)
	}
}

func TestX931EqualsLibrary(t *testing.T) {
	k := goldenKey(t, "master")
	for _, v := range golden().X931 {
		got, err := k.X931(v.Message)
		if err != nil || !bytes.Equal(got, v.Signature) {
			t.Errorf("%q: got %x, %v", v.Message, got, err)
		}
		message, err := k.Public().RecoverX931(v.Signature)
		if err != nil || !bytes.Equal(message, v.Message) {
			t.Errorf("%q: recovered %q, %v", v.Message, message, err)
		}
	}
}

func TestX931Edges(t *testing.T) {
	k := goldenKey(t, "big")
	for _, n := range []int{0, 1, 255, 508, 509, 510} {
		message := bytes.Repeat([]byte{0xbb}, n) // looks like padding
		sig, err := k.X931(message)
		if err != nil {
			t.Errorf("%d bytes: %v", n, err)
			continue
		}
		got, err := k.Public().RecoverX931(sig)
		if err != nil || !bytes.Equal(got, message) {
			t.Errorf("%d bytes: recovered %x, %v", n, got, err)
		}
	}
	if _, err := k.X931(make([]byte, 511)); !errors.Is(err, ErrTooLong) {
		t.Errorf("511 bytes: %v", err)
	}
	for name, em := range map[string]string{
		"no trailer": "6bba0000", "no header": "00bb00cc", "no end of padding": "6bbbbbcc",
		"other after padding": "6bbb01cc", "only header": "6bcc",
	} {
		if m, ok := unpadX931(unhex(t, em)); ok {
			t.Errorf("%s: got %x", name, m)
		}
	}
	two := docRSA()
	two.key.Precomputed.Dp = nil // a key without precomputed values takes the long way
	defer two.key.Precompute()
	if sig, err := two.X931([]byte("salt")); err != nil || !bytes.Equal(sig, unhex(t, docT1)) {
		t.Errorf("without precomputed values: %x, %v", sig, err)
	}
}

// Conformance 21.
func TestVerifyToken(t *testing.T) {
	pub := docRSA().Public()
	good := unhex(t, docT1)
	for name, tok := range map[string][]byte{
		"nil": nil, "255 bytes": good[:255], "257 bytes": append([]byte{0}, good...),
		"zeros":      make([]byte, 256),
		"other text": unhex(t, docT2), "ones": bytes.Repeat([]byte{0xff}, 256),
		"modulus": pub.key.N.Bytes(),
	} {
		for range 2 {
			if err := pub.VerifyToken(tok); !errors.Is(err, ErrSignature) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for range 2 {
		if err := pub.VerifyToken(good); err != nil {
			t.Error(err)
		}
	}
	if err := pub.VerifyToken(good[:255]); !errors.Is(err, ErrSignature) {
		t.Errorf("cut, after the right one: %v", err)
	}
	// The other root is the same statement, and as good.
	n := len(good)
	negative := pub.key.N.Bytes()
	borrow := 0
	for i := n - 1; i >= 0; i-- {
		d := int(negative[i]) - int(good[i]) - borrow
		borrow = 0
		if d < 0 {
			d, borrow = d+256, 1
		}
		negative[i] = byte(d)
	}
	if err := pub.VerifyToken(negative); err != nil {
		t.Errorf("n - s: %v", err)
	}
}

// Conformance 20.
func TestSignAndDecryptEqualDocument(t *testing.T) {
	k := docRSA()
	for _, tt := range []struct{ algo, sig string }{{SigSHA1, docT4SHA1},
		{SigSHA224, docT4SHA224}} {
		got, err := k.Sign(tt.algo, unhex(t, docT4Load))
		if err != nil || !bytes.Equal(got, unhex(t, tt.sig)) {
			t.Errorf("%s: got %x, %v", tt.algo, got, err)
		}
		if err := k.Public().Verify(tt.algo, unhex(t, docT4Load), got); err != nil {
			t.Errorf("%s: %v", tt.algo, err)
		}
	}
	for _, tt := range []struct{ algo, ct string }{{EncSHA1, docT5SHA1}, {EncSHA224, docT5SHA224}} {
		if got, err := k.Decrypt(tt.algo, unhex(t, tt.ct)); err != nil || string(got) != docKey {
			t.Errorf("%s: got %q, %v", tt.algo, got, err)
		}
	}
}

func TestRSAEqualsLibrary(t *testing.T) {
	k := goldenKey(t, "master")
	for _, v := range golden().Signed {
		if got, err := k.Sign(v.Algorithm, v.Message); err != nil ||
			!bytes.Equal(got, v.Signature) {
			t.Errorf("%s: got %x, %v", v.Algorithm, got, err)
		}
		if err := k.Public().Verify(v.Algorithm, append(v.Message, 0), v.Signature); !errors.Is(err,
			ErrSignature) {
			t.Errorf("%s, other message: %v", v.Algorithm, err)
		}
	}
	for _, v := range golden().Encrypted {
		if got, err := k.Decrypt(v.Algorithm, v.Ciphertext); err != nil ||
			!bytes.Equal(got, v.Message) {
			t.Errorf("%s: got %q, %v", v.Algorithm, got, err)
		}
		if _, err := goldenKey(t, "minion").Decrypt(v.Algorithm, v.Ciphertext); !errors.Is(err,
			ErrDecrypt) {
			t.Errorf("%s, other key: %v", v.Algorithm, err)
		}
	}
}

func TestUnknownAlgorithms(t *testing.T) {
	k := docRSA()
	for _, name := range []string{"", "FOO", "OAEP-SHA256", "pkcs1v15-sha1"} {
		_, errSign := k.Sign(name, nil)
		_, errDecrypt := k.Decrypt(name, nil)
		_, errEncrypt := k.Public().Encrypt(name, nil)
		for _, err := range []error{errSign, errDecrypt, errEncrypt,
			k.Public().Verify(name, nil, nil)} {
			if !errors.Is(err, ErrAlgorithm) {
				t.Errorf("%q: %v", name, err)
			}
		}
		if KnownEncryption(name) || KnownSignature(name) {
			t.Errorf("%q is known", name)
		}
	}
}

func TestKeyFiles(t *testing.T) {
	want := goldenKey(t, "minion")
	for _, tt := range []struct{ name, passphrase string }{
		{"minion", ""}, {"minion", "ignored"}, {"minion encrypted", "open sesame"},
		{"minion pkcs8", ""}, {"minion pkcs8 encrypted", "open sesame"},
	} {
		for _, text := range []string{golden().Keys[tt.name],
			strings.TrimSpace(golden().Keys[tt.name])} {
			k, err := ParsePrivateKey([]byte(text), tt.passphrase)
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			if !k.key.Equal(want.key) || string(k.PEM()) != golden().Keys["minion"] {
				t.Errorf("%s: another key", tt.name)
			}
		}
	}
	for _, name := range []string{"minion encrypted", "minion pkcs8 encrypted"} {
		for _, passphrase := range []string{"", "wrong"} {
			if _, err := ParsePrivateKey([]byte(golden().Keys[name]), passphrase); !errors.Is(err,
				ErrPassphrase) && !errors.Is(err, ErrPEM) {
				t.Errorf("%s with %q: %v", name, passphrase, err)
			}
		}
	}
	big := goldenKey(t, "big")
	if big.Public().Bits() != 4096 {
		t.Errorf("got %d bits", big.Public().Bits())
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&ec.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for name, tt := range map[string]struct {
		text string
		want error
	}{
		"empty": {"", ErrPEM}, "text": {"not a key", ErrPEM}, "public": {docPublic, ErrPEM},
		"elliptic":        {block("PRIVATE KEY", private), ErrNotRSA},
		"empty block":     {block("RSA PRIVATE KEY", nil), ErrPEM},
		"empty pkcs8":     {block("PRIVATE KEY", nil), ErrPEM},
		"empty encrypted": {block("ENCRYPTED PRIVATE KEY", nil), ErrPEM},
	} {
		if _, err := ParsePrivateKey([]byte(tt.text), "x"); !errors.Is(err, tt.want) {
			t.Errorf("private, %s: %v", name, err)
		}
	}
	for name, tt := range map[string]struct {
		text string
		want error
	}{
		"empty": {"", ErrPEM}, "text": {"not a key", ErrPEM},
		"private":     {golden().Keys["minion"], ErrPEM},
		"elliptic":    {block("PUBLIC KEY", public), ErrNotRSA},
		"empty block": {block("PUBLIC KEY", nil), ErrPEM},
		"empty pkcs1": {block("RSA PUBLIC KEY", nil), ErrPEM},
	} {
		if _, err := ParsePublicKey(tt.text); !errors.Is(err, tt.want) {
			t.Errorf("public, %s: %v", name, err)
		}
	}
	pkcs1 := block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&want.key.PublicKey))
	if k, err := ParsePublicKey(pkcs1); err != nil || !k.key.Equal(&want.key.PublicKey) ||
		k.Text() != strings.TrimSpace(pkcs1) {
		t.Errorf("pkcs1 public: %v", err)
	}
}

func TestGeneratePrivateKey(t *testing.T) {
	k, err := GeneratePrivateKey(1024)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParsePrivateKey(k.PEM(), "")
	if err != nil || !back.key.Equal(k.key) {
		t.Errorf("read back: %v", err)
	}
	pub, err := ParsePublicKey(k.Public().Text())
	if err != nil || pub.Text() != k.Public().Text() {
		t.Errorf("public read back: %v", err)
	}
	for _, bits := range []int{0, 512, maxModulus + 1} {
		if _, err := GeneratePrivateKey(bits); !errors.Is(err, ErrNotRSA) {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
}

// Conformance 23.
func TestCleanKey(t *testing.T) {
	for _, v := range golden().Clean {
		if got := CleanKey(v[0]); got != v[1] {
			t.Errorf("%q: got %q, want %q", v[0], got, v[1])
		}
	}
	crlf := strings.ReplaceAll(docPublic, "\n", "\r\n") + "\r\n \n"
	a, err := ParsePublicKey(docPublic)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ParsePublicKey(crlf)
	if err != nil || a.Text() != b.Text() || a.Text() != docRSA().Public().Text() {
		t.Errorf("CRLF: %v", err)
	}
}

// Conformance 24.
func TestFingerprint(t *testing.T) {
	const want = "d0:3a:61:06:53:d4:33:13:f8:38:7b:ce:ca:0f:4a:26:e6:e0:46:c5:e9:31:a2:58:86:2d:dd:b9:40:27:3e:4c"
	for _, text := range []string{docPublic, strings.TrimSpace(docPublic),
		strings.ReplaceAll(docPublic, "\n", "\r\n"), "\n" + docPublic + "\n\n"} {
		if got, err := Fingerprint(text, "sha256"); err != nil || got != want {
			t.Errorf("%q: got %s, %v", text, got, err)
		}
	}
	for hash, want := range golden().Fingerprints {
		if got, err := Fingerprint(golden().MasterPub, hash); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", hash, got, err, want)
		}
	}
	if _, err := Fingerprint(docPublic, "crc32"); !errors.Is(err, ErrAlgorithm) {
		t.Errorf("crc32: %v", err)
	}
	if got, err := Fingerprint("", "md5"); err != nil ||
		got != "d4:1d:8c:d9:8f:00:b2:04:e9:80:09:98:ec:f8:42:7e" {
		t.Errorf("empty: got %s, %v", got, err)
	}
}
