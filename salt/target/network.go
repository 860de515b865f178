package target

import (
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"clustermaster/value"
)

// ParseNetwork reads a network without host bits as Python's ipaddress does: an address and a
// length, or for IPv4 a netmask such as 255.255.0.0 or its inverse. A zone does not matter.
func ParseNetwork(text string) (netip.Prefix, bool) {
	host, size, found := strings.Cut(text, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil || !found {
		return netip.Prefix{}, false
	}
	addr = addr.WithZone("")
	n, ok := networkSize(addr, size)
	if !ok {
		return netip.Prefix{}, false
	}
	net := netip.PrefixFrom(addr, n)
	return net, net.IsValid() && net == net.Masked()
}

// networkSize reads the text after the slash.
func networkSize(addr netip.Addr, size string) (int, bool) {
	if size != "" && strings.Trim(size, "0123456789") == "" {
		n, err := strconv.Atoi(size)
		return n, err == nil
	}
	mask, err := netip.ParseAddr(size)
	if err != nil || !mask.Is4() || !addr.Is4() {
		return 0, false
	}
	b := mask.As4()
	m := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	switch {
	case bits.LeadingZeros32(^m)+bits.TrailingZeros32(m) == 32 || m == 0:
		return bits.LeadingZeros32(^m), true
	case bits.LeadingZeros32(m)+bits.TrailingZeros32(^m) == 32: // 0.0.0.255
		return bits.LeadingZeros32(m), true
	}
	return 0, false
}

// inNetwork makes the test of an ipcidr target, which is an address or a network without host bits,
// and names the grain that it reads.
func inNetwork(text string) (test func(value.Map) bool, grain string, ok bool) {
	addr, err := netip.ParseAddr(text)
	single := err == nil && !strings.Contains(text, "/") // not a zone with a slash in its name
	net, isNet := ParseNetwork(text)
	switch {
	case single:
		net = netip.PrefixFrom(addr, addr.BitLen())
	case !isNet:
		return nil, "", false
	}
	grain = "ipv4"
	if net.Addr().Is6() {
		grain = "ipv6"
	}
	return func(grains value.Map) bool {
		v, _ := grains.Get(grain)
		list, _ := asList(v)
		for _, s := range list {
			a, err := netip.ParseAddr(s)
			if err == nil && (single && a == addr || !single && net.Contains(a.WithZone(""))) {
				return true
			}
		}
		return false
	}, grain, true
}
