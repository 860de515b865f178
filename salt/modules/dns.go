package modules

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"

	"clustermaster/value"
)

const needsDig = "This function requires dig, which is not currently available"

// dnsFunctions are the functions of dnsutil that use hosts files and the machine's resolver,
// as Salt's do without dig.
func dnsFunctions() []function {
	lookup := func(name, network string) function {
		return function{name: "dnsutil." + name,
			params: []param{need("host"), opt("nameserver", nil)}, run: func(ctx context.Context,
				c *call) (any, error) {
				if c.any("nameserver") != nil {
					return needsDig, nil
				}
				found, err := net.DefaultResolver.LookupNetIP(ctx, network, c.text("host"))
				if err != nil {
					return "Unable to resolve " + c.text("host"),
						nil // Salt's answer
				}
				out := make([]any, len(found))
				for i, a := range found {
					out[i] = a.Unmap().String()
				}
				return out, nil
			}}
	}
	return []function{
		lookup("A", "ip4"), lookup("AAAA", "ip6"),
		{name: "dnsutil.check_ip", params: []param{need("ip_addr")},
			run: func(_ context.Context, c *call) (any, error) {
				_, err := netip.ParseAddr(c.text("ip_addr"))
				return err == nil, nil
			}},
		{name: "dnsutil.parse_hosts", params: []param{opt("hostsfile", "/etc/hosts"),
			opt("hosts", nil)}, run: func(_ context.Context, c *call) (any, error) {
			hosts := c.text("hosts")
			if hosts == "" {
				b, err := os.ReadFile(c.text("hostsfile"))
				if err != nil {
					return "Error: hosts data was not found", nil // Salt's answer
				}
				hosts = string(b)
			}
			out := value.Map{}
			for line := range strings.Lines(hosts) {
				if strings.HasPrefix(line, "#") {
					continue
				}
				names := strings.Fields(line)
				if len(names) == 0 {
					continue
				}
				v, _ := out.Get(names[0])
				have, _ := v.([]any)
				out = out.Set(names[0], append(append([]any{}, have...), value.Texts(names[1:])...))
			}
			return out, nil
		}},
	}
}
