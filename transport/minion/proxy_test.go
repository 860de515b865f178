package minion

import (
	"bufio"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
)

func v2(command, family string, body string) string {
	return proxyV2Signature + command + family +
		string([]byte{byte(len(body) >> 8), byte(len(body))}) + body
}

func TestReadProxy(t *testing.T) {
	t.Parallel()
	peer := netip.MustParseAddrPort("10.0.0.9:5000")
	v4 := "\xc0\x00\x02\x01\x0a\x00\x00\x01\x12\x67\x11\x9a"
	v6 := strings.Repeat("\x20\x01\x0d\xb8"+strings.Repeat("\x00", 11)+"\x01", 2) +
		"\x12\x67\x11\x9a"
	for _, tt := range []struct {
		name, in, want string
		err            error
	}{
		{"none", "\xff", "10.0.0.9:5000", nil},
		{"v1 tcp4", "PROXY TCP4 192.0.2.1 10.0.0.1 4711 4506\r\n", "192.0.2.1:4711", nil},
		{"v1 tcp6", "PROXY TCP6 2001:db8::1 2001:db8::2 4711 4506\r\n", "[2001:db8::1]:4711", nil},
		{"v1 unknown", "PROXY UNKNOWN\r\n", "10.0.0.9:5000", nil},
		{"v1 unknown with rest", "PROXY UNKNOWN ffff:f...f:ffff 1 2 3\r\n", "10.0.0.9:5000", nil},
		{"v1 wrong family", "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n", "", ErrProxy},
		{"v1 port", "PROXY TCP4 192.0.2.1 10.0.0.1 65536 1\r\n", "", ErrProxy},
		{"v1 no CR", "PROXY TCP4 192.0.2.1 10.0.0.1 1 1\n", "", ErrProxy},
		{"v1 too long", "PROXY " + strings.Repeat("x", 200), "", ErrProxy},
		{"v1 cut", "PROXY TCP4 192", "", io.EOF},
		{"v1 not PROXY", "POST / HTTP/1.1\r\n", "", ErrProxy},
		{"v2 tcp4", v2("\x21", "\x11", v4), "192.0.2.1:4711", nil},
		{"v2 tcp4 with TLV", v2("\x21", "\x11", v4+"\x04\x00\x01x"), "192.0.2.1:4711", nil},
		{"v2 tcp6", v2("\x21", "\x21", v6), "[2001:db8::1]:4711", nil},
		{"v2 local", v2("\x20", "\x00", ""), "10.0.0.9:5000", nil},
		{"v2 unspec", v2("\x21", "\x00", ""), "10.0.0.9:5000", nil},
		{"v2 short", v2("\x21", "\x11", v4[:11]), "", ErrProxy},
		{"v2 udp", v2("\x21", "\x12", v4), "", ErrProxy},
		{"v2 command", v2("\x22", "\x11", v4), "", ErrProxy},
		{"v2 version 3", v2("\x31", "\x11", v4), "", ErrProxy},
		{"v2 huge", proxyV2Signature + "\x21\x11\xff\xff", "", ErrProxy},
		{"v2 cut", v2("\x21", "\x11", v4)[:20], "", io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rest := "\xffrest"
			in := tt.in
			if tt.err == nil && tt.name != "none" {
				in += rest
			}
			r := bufio.NewReaderSize(strings.NewReader(in), 16)
			got, err := readProxy(r, peer, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")})
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			if got.String() != tt.want {
				t.Errorf("address %s, want %s", got, tt.want)
			}
			if b, _ := r.ReadByte(); b != 0xff {
				t.Errorf("next byte %#x: the header was not taken exactly", b)
			}
		})
	}
	_, err := readProxy(bufio.NewReader(strings.NewReader("PROXY UNKNOWN\r\n")),
		netip.MustParseAddrPort("192.0.2.9:1"),
		[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")})
	if !errors.Is(err, ErrProxy) {
		t.Errorf("from a stranger: %v", err)
	}
}

func FuzzReadProxy(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.1 10.0.0.1 4711 4506\r\n\xff"))
	f.Add([]byte(v2("\x21", "\x11", "\xc0\x00\x02\x01\x0a\x00\x00\x01\x12\x67\x11\x9a")))
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	f.Fuzz(func(t *testing.T, b []byte) {
		peer := netip.MustParseAddrPort("10.0.0.9:5000")
		got, err := readProxy(bufio.NewReader(strings.NewReader(string(b))), peer, all)
		if !got.IsValid() {
			t.Errorf("invalid address, error %v", err)
		}
	})
}
