package main

import (
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"clustermaster/wire"
)

// systems are Salt's names of distributions by the ID of os-release: os and os_family.
var systems = map[string][2]string{
	"debian": {"Debian", "Debian"}, "ubuntu": {"Ubuntu", "Debian"}, "raspbian": {"Raspbian", "Debian"}, "linuxmint": {"Mint", "Debian"},
	"rhel": {"RedHat", "RedHat"}, "centos": {"CentOS", "RedHat"}, "rocky": {"Rocky", "RedHat"}, "almalinux": {"AlmaLinux", "RedHat"}, "fedora": {"Fedora", "RedHat"},
	"ol": {"OEL", "RedHat"}, "amzn": {"Amazon", "RedHat"}, "sles": {"SUSE", "Suse"}, "opensuse-leap": {"SUSE", "Suse"}, "opensuse-tumbleweed": {"SUSE", "Suse"},
	"alpine": {"Alpine", "Alpine"}, "arch": {"Arch", "Arch"}, "gentoo": {"Gentoo", "Gentoo"},
}

// systemGrains tell of the distribution.
func systemGrains() wire.Map {
	release := releaseFile("/etc/os-release")
	if release == nil {
		release = releaseFile("/usr/lib/os-release")
	}
	id, version, name := release["ID"], release["VERSION_ID"], release["NAME"]
	names, known := systems[id]
	if !known {
		names = [2]string{name, name}
	}
	grains := wire.Map{
		{Key: "os", Value: names[0]}, {Key: "os_family", Value: names[1]}, {Key: "osfullname", Value: name}, {Key: "oscodename", Value: release["VERSION_CODENAME"]},
		{Key: "osrelease", Value: version}, {Key: "lsb_distrib_id", Value: name}, {Key: "lsb_distrib_release", Value: version}, {Key: "lsb_distrib_codename", Value: release["VERSION_CODENAME"]},
	}
	var info []any
	for part := range strings.SplitSeq(version, ".") {
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			info = append(info, n)
		} else if part != "" {
			info = append(info, part)
		}
	}
	if len(info) > 0 {
		finger := version
		if names[0] != "Ubuntu" {
			finger, _, _ = strings.Cut(version, ".")
		}
		of := names[0]
		if known && (names[0] == "Ubuntu" || names[1] != "Debian") {
			of = name
		}
		grains = append(grains, wire.Map{{Key: "osrelease_info", Value: info}, {Key: "osmajorrelease", Value: info[0]}, {Key: "osfinger", Value: of + "-" + finger}}...)
	}
	if names[1] == "Debian" {
		grains = append(grains, wire.Pair{Key: "osarch", Value: runtime.GOARCH})
	}
	return grains
}

var releaseLine = regexp.MustCompile(`^([A-Z_]+)=["']?(.*?)["']?$`)

// releaseFile reads a file of the form of os-release, nil if it is not there.
func releaseFile(path string) map[string]string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if m := releaseLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			out[m[1]] = m[2]
		}
	}
	return out
}

// machineGrains tell of memory, addresses and who runs the master.
func machineGrains() wire.Map {
	var grains wire.Map
	var mem unix.Sysinfo_t
	if unix.Sysinfo(&mem) == nil {
		grains = append(grains, wire.Map{{Key: "mem_total", Value: int64(uint64(mem.Totalram) * uint64(mem.Unit) >> 20)}, {Key: "swap_total", Value: int64(uint64(mem.Totalswap) * uint64(mem.Unit) >> 20)}}...)
	}
	if b, err := os.ReadFile("/etc/machine-id"); err == nil {
		grains = append(grains, wire.Pair{Key: "machine_id", Value: strings.TrimSpace(string(b))})
	}
	if b, err := os.ReadFile("/proc/sys/kernel/version"); err == nil {
		grains = append(grains, wire.Pair{Key: "kernelversion", Value: strings.TrimSpace(string(b))})
	}
	grains = append(grains, wire.Map{{Key: "uid", Value: int64(os.Getuid())}, {Key: "gid", Value: int64(os.Getgid())}}...)
	if u, err := user.Current(); err == nil {
		grains = append(grains, wire.Pair{Key: "username", Value: u.Username})
	}
	shell := os.Getenv("SHELL")
	if shell == "" {
		shell = "/bin/sh"
	}
	grains = append(grains, wire.Pair{Key: "shell", Value: shell}, wire.Pair{Key: "systempath", Value: anyList(filepath.SplitList(os.Getenv("PATH")))})
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
func addressGrains() wire.Map {
	var all, v4, v6, hardware wire.Map
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
		all, v4, v6 = append(all, wire.Pair{Key: i.Name, Value: append(slices.Clip(own4), own6...)}), append(v4, wire.Pair{Key: i.Name, Value: own4}), append(v6, wire.Pair{Key: i.Name, Value: own6})
		if mac != "" {
			hardware = append(hardware, wire.Pair{Key: i.Name, Value: mac})
		}
	}
	slices.Sort(ipv4)
	slices.Sort(ipv6)
	return wire.Map{
		{Key: "ip_interfaces", Value: all}, {Key: "ip4_interfaces", Value: v4}, {Key: "ip6_interfaces", Value: v6}, {Key: "hwaddr_interfaces", Value: hardware},
		{Key: "ipv4", Value: anyList(slices.Compact(ipv4))}, {Key: "ipv6", Value: anyList(slices.Compact(ipv6))},
	}
}
