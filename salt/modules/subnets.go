package modules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// maxNames bounds the time in which network.fqdns looks up names.
const maxNames = 5 * time.Second

// subnetFunctions are the functions of network that list the master's networks and
// the names of its addresses.
func subnetFunctions() []function {
	networks := []param{opt("interface", nil), opt("include_loopback", false),
		opt("verbose", false)}
	return []function{
		{name: "network.subnets", params: []param{opt("interfaces", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				return networkTexts(networksOf(named(c.list("interfaces")), false, false)), nil
			}},
		{name: "network.subnets6", run: func(context.Context, *call) (any, error) {
			return networkTexts(networksOf(named(nil), true, false)), nil
		}},
		{name: "network.ip_networks", params: networks,
			run: func(_ context.Context, c *call) (any, error) { return c.networks(false) }},
		{name: "network.ip_networks6", params: networks,
			run: func(_ context.Context, c *call) (any, error) { return c.networks(true) }},
		{name: "network.ifacestartswith", params: []param{need("cidr")},
			run: func(_ context.Context, c *call) (any, error) {
				out := []any{}
				for _, i := range named(nil) {
					for _, a := range interfaceAddrs(i) {
						if a.Addr().Is4() &&
							strings.HasPrefix(a.Addr().String(), value.Str(c.any("cidr"))) {
							out = append(out, i)
						}
					}
				}
				return out, nil
			}},
		{name: "network.interface", params: []param{need("iface")},
			run: func(_ context.Context, c *call) (any, error) {
				switch v := c.any("iface").(type) {
				case []any, value.Map:
					return nil, fmt.Errorf("iface must be text, not %s", value.Repr(v))
				}
				all, err := interfaces()
				if err != nil {
					return nil, err
				}
				m, _ := all.(value.Map)
				one, ok := m.Get(value.Str(c.any("iface")))
				if !ok {
					return absent(value.Str(c.any("iface"))), nil
				}
				i, _ := one.(value.Map)
				if list, ok := i.Get("inet"); ok {
					return list, nil
				}
				return "", nil
			}},
		{name: "network.iphexval", params: []param{need("ip")},
			run: func(_ context.Context, c *call) (any, error) {
				ip, ok := c.any("ip").(string)
				if !ok {
					return nil, fmt.Errorf("ip must be text, not %s", value.Repr(c.any("ip")))
				}
				var b strings.Builder
				for _, part := range strings.Split(ip, ".") {
					n, ok := value.ParseInt(part)
					if !ok {
						return nil, fmt.Errorf("invalid literal for int() with base 10: %s",
							value.Repr(part))
					}
					fmt.Fprintf(&b, "%02X", n)
				}
				return b.String(), nil
			}},
		{name: "network.fqdns", run: fqdns},
	}
}

// networksOf lists the networks of interfaces, sorted, each once.
func networksOf(names []string, six, loopback bool) []netip.Prefix {
	var out []netip.Prefix
	for _, i := range names {
		for _, a := range interfaceAddrs(i) {
			if a.Addr().Is6() == six && (loopback || !a.Addr().IsLoopback()) {
				out = append(out, a.Masked())
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	return slices.Compact(out)
}

func networkTexts(list []netip.Prefix) []any {
	out := make([]any, len(list))
	for i, p := range list {
		out[i] = p.String()
	}
	return out
}

// networks returns the result of network.ip_networks. verbose adds details of each.
func (c *call) networks(six bool) (any, error) {
	list := networksOf(namedLike(c.any("interface")), six, c.is("include_loopback"))
	if !c.is("verbose") {
		return networkTexts(list), nil
	}
	out := value.Map{}
	for _, p := range list {
		free := p.Addr().BitLen() - p.Bits()
		if free > 63 {
			return nil,
				errors.New("verbose is not built in for networks of more than 2^63 addresses")
		}
		out = append(out, value.Pair{Key: p.String(), Value: value.Map{
			{Key: "address", Value: p.Addr().String()}, {Key: "netmask", Value: mask(p).String()},
			{Key: "num_addresses", Value: uint64(1) << free},
			{Key: "prefixlen", Value: int64(p.Bits())},
		}})
	}
	return out, nil
}

// namedLike lists the interfaces that match globs: a list of them, or a text with commas. nil means
// all.
func namedLike(v any) []string {
	all := named(nil)
	if v == nil {
		return all
	}
	var globs []string
	if list, ok := v.([]any); ok {
		for _, g := range list {
			globs = append(globs, text(g))
		}
	} else {
		for _, g := range strings.Split(text(v), ",") {
			globs = append(globs, strings.TrimSpace(g))
		}
	}
	return slices.DeleteFunc(all, func(name string) bool {
		return !slices.ContainsFunc(globs, func(g string) bool { return fnmatch.Match(g, name) })
	})
}

// fqdns lists the names of the master's addresses: only those with a domain, if there are any.
func fqdns(ctx context.Context, _ *call) (any, error) {
	outer := ctx
	ctx, stop := context.WithTimeout(ctx, maxNames)
	defer stop()
	addrs := own()
	found := make([]string, len(addrs))
	var lookups errgroup.Group
	lookups.SetLimit(8)
	for i, a := range addrs {
		lookups.Go(func() error {
			if names, err := net.DefaultResolver.LookupAddr(ctx, a); err == nil && len(names) > 0 {
				found[i] = qualified(ctx, strings.TrimSuffix(names[0], "."))
			}
			return nil
		})
	}
	_ = lookups.Wait() // no lookup fails, because an address may have no name
	if outer.Err() != nil {
		return nil, outer.Err()
	}
	set := make(map[string]bool)
	for _, name := range found {
		if name != "" {
			set[name] = true
		}
	}
	return value.Map{{Key: "fqdns", Value: value.Texts(slices.Sorted(maps.Keys(set)))}}, nil
}

// qualified is Python's socket.getfqdn: the first of the host's names that has a dot.
func qualified(ctx context.Context, name string) string {
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil || len(ips) == 0 {
		return name
	}
	names, err := net.DefaultResolver.LookupAddr(ctx, ips[0].Unmap().String())
	if err != nil || len(names) == 0 {
		return name
	}
	for i, n := range names {
		if names[i] = strings.TrimSuffix(n, "."); strings.Contains(names[i], ".") {
			return names[i]
		}
	}
	return names[0]
}
