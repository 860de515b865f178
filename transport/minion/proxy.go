package minion

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// ErrProxy: a PROXY protocol header that is not allowed here or is malformed.
var ErrProxy = errors.New("bad PROXY protocol header")

const (
	proxyV2Signature = "\r\n\r\n\x00\r\nQUIT\n"
	proxyV1Max       = 107  // bytes of a v1 line, its CRLF included (section 2.1)
	proxyV2Max       = 4096 // bytes of addresses and TLVs; HAProxy sends far less
)

// readProxy removes a PROXY protocol header from r, if there is one: a ZMTP greeting starts with
// 0xff and no header does, so one byte tells them apart. It returns the address in the header, or
// peer if there is no header or the header has no address (LOCAL, UNKNOWN). For a header from a
// peer outside trusted it returns ErrProxy.
// Source: haproxy.org/download/2.9/doc/proxy-protocol.txt
func readProxy(r *bufio.Reader, peer netip.AddrPort, trusted []netip.Prefix) (netip.AddrPort,
	error) {
	first, err := r.Peek(1)
	if err != nil {
		return peer, err
	}
	if first[0] != 'P' && first[0] != '\r' {
		return peer, nil
	}
	if !contains(trusted, peer.Addr()) {
		return peer, fmt.Errorf("from %s, which is not trusted: %w", peer.Addr(), ErrProxy)
	}
	if first[0] == 'P' {
		return readProxyV1(r, peer)
	}
	return readProxyV2(r, peer)
}

func readProxyV1(r *bufio.Reader, peer netip.AddrPort) (netip.AddrPort, error) {
	line := make([]byte, 0, proxyV1Max)
	for len(line) == 0 || line[len(line)-1] != '\n' {
		b, err := r.ReadByte()
		if err != nil {
			return peer, err
		}
		if line = append(line, b); len(line) > proxyV1Max {
			return peer, fmt.Errorf("line too long: %w", ErrProxy)
		}
	}
	text, ok := strings.CutSuffix(string(line), "\r\n")
	fields := strings.Split(text, " ")
	if !ok || len(fields) < 2 || fields[0] != "PROXY" {
		return peer, fmt.Errorf("line %q: %w", line, ErrProxy)
	}
	if fields[1] == "UNKNOWN" {
		return peer, nil
	}
	if len(fields) != 6 || fields[1] != "TCP4" && fields[1] != "TCP6" {
		return peer, fmt.Errorf("line %q: %w", line, ErrProxy)
	}
	addr, errAddr := netip.ParseAddr(fields[2])
	var port uint16
	_, errPort := fmt.Sscanf(fields[4], "%d", &port)
	if errAddr != nil || errPort != nil || addr.Zone() != "" ||
		addr.Is4() != (fields[1] == "TCP4") {
		return peer, fmt.Errorf("line %q: %w", line, ErrProxy)
	}
	return netip.AddrPortFrom(addr.Unmap(), port), nil
}

func readProxyV2(r *bufio.Reader, peer netip.AddrPort) (netip.AddrPort, error) {
	var head [16]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return peer, err
	}
	size := int(binary.BigEndian.Uint16(head[14:]))
	if string(head[:12]) != proxyV2Signature || head[12]>>4 != 2 || size > proxyV2Max {
		return peer, fmt.Errorf("signature, version or length: %w", ErrProxy)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return peer, err
	}
	switch head[12] & 0x0f {
	case 0: // LOCAL: a connection of the balancer itself, such as a health check
		return peer, nil
	case 1:
	default:
		return peer, fmt.Errorf("command %d: %w", head[12]&0x0f, ErrProxy)
	}
	switch family := head[13]; {
	case family == 0x11 && size >= 12:
		addr := netip.AddrFrom4([4]byte(body[:4]))
		return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(body[8:])), nil
	case family == 0x21 && size >= 36:
		addr := netip.AddrFrom16([16]byte(body[:16]))
		return netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(body[32:])), nil
	case family>>4 == 0 || family>>4 == 3: // UNSPEC, UNIX: no address to use
		return peer, nil
	}
	return peer, fmt.Errorf("family %#02x with %d bytes: %w", head[13], size, ErrProxy)
}
