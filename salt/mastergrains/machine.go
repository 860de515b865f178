package mastergrains

import (
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"clustermaster/value"
)

// machineGrains are the grains about memory, addresses and the user of the master.
func machineGrains() value.Map {
	var grains value.Map
	var mem unix.Sysinfo_t
	if unix.Sysinfo(&mem) == nil {
		grains = append(grains,
			value.Map{{Key: "mem_total",
				Value: int64(uint64(mem.Totalram) * uint64(mem.Unit) >> 20)}, //nolint:unconvert // by CPU
				{Key: "swap_total",
					Value: int64(uint64(mem.Totalswap) * uint64(mem.Unit) >> 20)}}...) //nolint:unconvert // by CPU
	}
	if b, err := os.ReadFile("/etc/machine-id"); err == nil {
		grains = append(grains, value.Pair{Key: "machine_id", Value: strings.TrimSpace(string(b))})
	}
	if b, err := os.ReadFile("/proc/sys/kernel/version"); err == nil {
		grains = append(grains, value.Pair{Key: "kernelversion",
			Value: strings.TrimSpace(string(b))})
	}
	grains = append(grains, value.Map{{Key: "uid", Value: int64(os.Getuid())},
		{Key: "gid", Value: int64(os.Getgid())}}...)
	if u, err := user.Current(); err == nil {
		grains = append(grains, value.Pair{Key: "username", Value: u.Username})
	}
	shell := os.Getenv("SHELL")
	if shell == "" {
		shell = "/bin/sh"
	}
	grains = append(grains, value.Pair{Key: "shell", Value: shell},
		value.Pair{Key: "systempath", Value: anyList(filepath.SplitList(os.Getenv("PATH")))})
	return append(grains, addressGrains()...)
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// addressGrains tell of the network interfaces.
func addressGrains() value.Map {
	var all, v4, v6, hardware value.Map
	var ipv4, ipv6 []string
	ifaces, _ := net.Interfaces()
	for _, i := range ifaces {
		own4, own6 := []any{}, []any{}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			switch {
			case !ok:
			case n.IP.To4() != nil:
				own4, ipv4 = append(own4, n.IP.String()), append(ipv4, n.IP.String())
			default:
				own6, ipv6 = append(own6, n.IP.String()), append(ipv6, n.IP.String())
			}
		}
		mac := i.HardwareAddr.String()
		if i.Flags&net.FlagLoopback != 0 {
			mac = "00:00:00:00:00:00"
		}
		all, v4, v6 = append(all, value.Pair{Key: i.Name,
			Value: append(slices.Clip(own4), own6...)}),
			append(v4, value.Pair{Key: i.Name, Value: own4}), append(v6,
				value.Pair{Key: i.Name, Value: own6})
		if mac != "" {
			hardware = append(hardware, value.Pair{Key: i.Name, Value: mac})
		}
	}
	slices.SortFunc(ipv4, byNumber)
	slices.SortFunc(ipv6, byNumber)
	return value.Map{
		{Key: "ip_interfaces", Value: all}, {Key: "ip4_interfaces", Value: v4},
		{Key: "ip6_interfaces", Value: v6}, {Key: "hwaddr_interfaces", Value: hardware},
		{Key: "ipv4", Value: anyList(slices.Compact(ipv4))},
		{Key: "ipv6", Value: anyList(slices.Compact(ipv6))},
	}
}

// byNumber orders addresses as Python's ipaddress does.
func byNumber(a, b string) int {
	x, _ := netip.ParseAddr(a) // package net made the texts
	y, _ := netip.ParseAddr(b)
	return x.Compare(y)
}
