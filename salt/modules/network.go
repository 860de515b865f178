package modules

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"clustermaster/salt/target"
	"clustermaster/value"
)

func networkFunctions() []function {
	onAddr := func(name string, run func(netip.Addr) any) function {
		return function{name: name, params: []param{need("ip_addr")},
			run: func(_ context.Context, c *call) (any, error) {
				a, err := netip.ParseAddr(c.text("ip_addr"))
				if err != nil {
					return nil, fmt.Errorf("'%s' does not appear to be an IPv4 or IPv6 address",
						c.text("ip_addr"))
				}
				return run(a), nil
			}}
	}
	addrs := []param{opt("interface", nil), opt("include_loopback", false), opt("cidr", nil),
		opt("type", nil)}
	return []function{
		{name: "network.in_subnet", params: []param{need("cidr")},
			run: func(_ context.Context, c *call) (any,
				error) {
				return inSubnet(c.text("cidr"), own()), nil
			}},
		{name: "network.ip_in_subnet", params: []param{need("ip_addr"), need("cidr")},
			run: func(_ context.Context, c *call) (any, error) {
				if _, err := netip.ParseAddr(c.text("ip_addr")); err != nil {
					return nil, fmt.Errorf("'%s' does not appear to be an IPv4 or IPv6 address",
						c.text("ip_addr"))
				}
				return inSubnet(c.text("cidr"), []string{c.text("ip_addr")}), nil
			}},
		onAddr("network.is_private", func(a netip.Addr) any { return private(a) }),
		onAddr("network.is_loopback", func(a netip.Addr) any { return a.IsLoopback() }),
		onAddr("network.reverse_ip", func(a netip.Addr) any { return reversePointer(a) }),
		{name: "network.calc_net", params: []param{need("ip_addr"), opt("netmask", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				p, err := network(c.text("ip_addr"), c.text("netmask"))
				if err != nil {
					return nil, err
				}
				return p.String(), nil
			}},
		{name: "network.convert_cidr", params: []param{need("cidr")},
			run: func(_ context.Context, c *call) (any, error) {
				p, err := network(c.text("cidr"), "")
				if err != nil {
					return nil, err
				}
				return value.Map{
					{Key: "network", Value: p.Addr().String()},
					{Key: "netmask", Value: mask(p).String()},
					{Key: "broadcast", Value: last(p).String()},
				}, nil
			}},
		{name: "network.ip_addrs", params: addrs,
			run: func(_ context.Context, c *call) (any, error) { return c.addrs(false) }},
		{name: "network.ipaddrs", params: addrs,
			run: func(_ context.Context, c *call) (any, error) { return c.addrs(false) }},
		{name: "network.ip_addrs6", params: addrs,
			run: func(_ context.Context, c *call) (any, error) { return c.addrs(true) }},
		{name: "network.ipaddrs6", params: addrs,
			run: func(_ context.Context, c *call) (any, error) { return c.addrs(true) }},
		{name: "network.interface_ip", params: []param{need("iface")},
			run: func(_ context.Context, c *call) (any, error) {
				if _, err := net.InterfaceByName(c.text("iface")); err != nil {
					return absent(c.text("iface")), nil // as in Salt
				}
				for _, a := range interfaceAddrs(c.text("iface")) {
					if a.Addr().Is4() {
						return a.Addr().String(), nil
					}
				}
				return "", nil
			}},
		{name: "network.interfaces", run: func(context.Context, *call) (any,
			error) {
			return interfaces()
		}},
		{name: "network.hw_addr", params: []param{need("iface")}, run: hardware},
		{name: "network.hwaddr", params: []param{need("iface")}, run: hardware},
		{name: "network.get_hostname", run: func(context.Context, *call) (any,
			error) {
			return os.Hostname()
		}},
		{name: "network.get_fqdn", run: func(ctx context.Context, _ *call) (any, error) {
			name, err := os.Hostname()
			if err != nil {
				return nil, err
			}
			if full, err := net.DefaultResolver.LookupCNAME(ctx, name); err == nil && full != "" {
				return strings.TrimSuffix(full, "."), nil
			}
			return name, nil
		}},
	}
}

func hardware(_ context.Context, c *call) (any, error) {
	i, err := net.InterfaceByName(c.text("iface"))
	if err != nil {
		return absent(c.text("iface")), nil
	}
	return hardwareAddr(*i), nil
}

// hardwareAddr returns a MAC address, which for the loopback interface is all zeros.
func hardwareAddr(i net.Interface) string {
	if len(i.HardwareAddr) == 0 && i.Flags&net.FlagLoopback != 0 {
		return "00:00:00:00:00:00"
	}
	return i.HardwareAddr.String()
}

// absent is Salt's text for an unknown interface.
func absent(name string) string {
	names := named(nil)
	for i, n := range names {
		names[i] = `"` + n + `"`
	}
	return fmt.Sprintf("Interface %q not in available interfaces: %s", name,
		strings.Join(names, ", "))
}

// own lists the master's addresses.
func own() []string {
	var out []string
	for _, i := range named(nil) {
		for _, a := range interfaceAddrs(i) {
			if !a.Addr().IsLoopback() {
				out = append(out, a.Addr().String())
			}
		}
	}
	return out
}

func named(list []any) []string {
	var out []string
	for _, v := range list {
		out = append(out, text(v))
	}
	if out != nil {
		return out
	}
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range all {
		out = append(out, i.Name)
	}
	return out
}

func interfaceAddrs(name string) []netip.Prefix {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	addrs, err := i.Addrs()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// addrs lists addresses of the master, sorted.
func (c *call) addrs(six bool) (any, error) {
	var list []netip.Addr
	for _, i := range namedLike(c.any("interface")) {
		for _, p := range interfaceAddrs(i) {
			if a := p.Addr(); a.Is6() == six && (c.is("include_loopback") || !a.IsLoopback()) {
				list = append(list, a)
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	out := []any{}
	for _, a := range slices.Compact(list) {
		switch kind := c.text("type"); {
		case c.is("cidr") && !inSubnet(c.text("cidr"), []string{a.String()}):
		case !c.is("cidr") && kind == "public" && private(a), !c.is("cidr") && kind == "private" &&
			!private(a):
		default:
			out = append(out, a.String())
		}
	}
	return out, nil
}

func interfaces() (any, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	out := value.Map{}
	for _, i := range all {
		m := value.Map{{Key: "up", Value: i.Flags&net.FlagUp != 0}}
		if mac := hardwareAddr(i); mac != "" {
			m = append(m, value.Pair{Key: "hwaddr", Value: mac})
		}
		var four, six []any
		for _, p := range interfaceAddrs(i.Name) {
			if p.Addr().Is4() {
				var broadcast any
				if i.Flags&net.FlagBroadcast != 0 {
					broadcast = last(p).String()
				}
				four = append(four, value.Map{
					{Key: "address", Value: p.Addr().String()},
					{Key: "netmask", Value: mask(p).String()}, {Key: "broadcast", Value: broadcast},
					{Key: "label", Value: i.Name},
				})
			} else {
				six = append(six, value.Map{{Key: "address", Value: p.Addr().String()},
					{Key: "prefixlen", Value: fmt.Sprint(p.Bits())}})
			}
		}
		if four != nil {
			m = append(m, value.Pair{Key: "inet", Value: four})
		}
		if six != nil {
			m = append(m, value.Pair{Key: "inet6", Value: six})
		}
		out = append(out, value.Pair{Key: i.Name, Value: m})
	}
	return out, nil
}

// inSubnet reports whether any address is in a network, which must have no host bits.
func inSubnet(cidr string, addrs []string) bool {
	p, ok := target.ParseNetwork(cidr)
	if !ok {
		a, err := netip.ParseAddr(cidr)
		if err != nil {
			return false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	return slices.ContainsFunc(addrs, func(s string) bool {
		a, err := netip.ParseAddr(s)
		return err == nil && p.Contains(a.WithZone(""))
	})
}

// network returns the network of an address: "a/len", "a/mask", or "a" with a netmask.
func network(addr, netmask string) (netip.Prefix, error) {
	if netmask != "" {
		addr += "/" + netmask
	}
	host, size, ok := strings.Cut(addr, "/")
	if !ok {
		a, err := netip.ParseAddr(addr)
		return netip.PrefixFrom(a, a.BitLen()), err
	}
	if m, err := netip.ParseAddr(size); err == nil && m.Is4() {
		b := m.As4()
		ones, width := net.IPMask(b[:]).Size()
		if width == 0 {
			return netip.Prefix{}, fmt.Errorf("'%s' is not a netmask", size)
		}
		size = fmt.Sprint(ones)
	}
	p, err := netip.ParsePrefix(host + "/" + size)
	if err != nil {
		return p, fmt.Errorf("'%s' does not appear to be an IPv4 or IPv6 network", addr)
	}
	return p.Masked(), nil
}

func mask(p netip.Prefix) netip.Addr {
	a, _ := netip.AddrFromSlice(net.CIDRMask(p.Bits(), p.Addr().BitLen()))
	return a
}

// last is the highest address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// notGlobal are the networks that Python's ipaddress calls private and netip does not.
var notGlobal = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("192.0.0.0/29"),
	netip.MustParsePrefix("192.0.0.170/31"), netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("::/128"),
	netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("100::/64"),
}

func private(a netip.Addr) bool {
	return a.IsPrivate() || slices.ContainsFunc(notGlobal,
		func(p netip.Prefix) bool { return p.Contains(a) })
}

// reversePointer returns the name of an address for a reverse DNS query.
func reversePointer(a netip.Addr) string {
	if a.Is4() {
		b := a.As4()
		return fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa", b[3], b[2], b[1], b[0])
	}
	var s strings.Builder
	b := a.As16()
	for i := 15; i >= 0; i-- {
		fmt.Fprintf(&s, "%x.%x.", b[i]&15, b[i]>>4)
	}
	return s.String() + "ip6.arpa"
}
