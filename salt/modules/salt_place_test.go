package modules

import (
	"os"
	"path/filepath"
)

// folders are file_roots on disk: an environment to its root.
type folders map[string]string

func (f folders) List(string) []string { return nil }
func (f folders) Dirs(string) []string { return nil }
func (f folders) Envs() []string       { return nil }

func (f folders) Open(env, path string) (string, []byte, bool, error) {
	root, ok := f[env]
	if !ok {
		return "", nil, false, nil
	}
	abs := filepath.Join(root, path)
	if info, err := os.Stat(abs); err != nil || !info.Mode().IsRegular() {
		return "", nil, false, nil
	}
	b, err := os.ReadFile(abs)
	return abs, b, err == nil, err
}

// placeSteps depend on the master's place: its networks, its time zone, its files.
func placeSteps() []step {
	list := []step{
		do("network.subnets"), do("network.subnets", "lo"),
		do("network.subnets", []any{"lo", "eth0"}), do("network.subnets6"),
		do("network.subnets6", "x"),
		do("network.default_route"), do("network.default_route", "inet"),
		do("network.default_route", "inet6"), do("network.default_route", "ipx").refused(),
		do("network.default_route").with("family", ""),
		do("timezone.get_zone"), do("timezone.get_offset"), do("timezone.get_zonecode"),
		do("timezone.get_zone", "x"),
		do("network.ip_networks6").with("verbose", true, "interface", "lo", "include_loopback",
			true), do("network.ip_networks", "lo", true, true),
		do("network.ip_networks", nil, true, true),
		do("network.ip_addrs", "l*", true), do("network.ip_addrs", "eth0, lo", true),
		do("network.ip_addrs6", []any{"l?"}, true), do("network.ip_addrs", "", true),
		do("network.ip_addrs", "nosuch"), do("network.ip_addrs", "e*"),
	}
	for _, v := range []any{nil, "lo", "e*", "eth0,lo", []any{"l*", "eth0"}, "nosuch", "",
		[]any{}} {
		list = append(list, do("network.ip_networks", v), do("network.ip_networks6", v),
			do("network.ip_networks", v, true), do("network.ip_networks6", v,
				true), do("network.interface", v))
	}
	for _, v := range []any{"127", "127.0.0.1", "192.0.2", "", "nosuch", nil, int64(127), "1"} {
		list = append(list, do("network.ifacestartswith", v))
	}
	for _, v := range []any{"127.0.0.1", "10.1.2.255", "1", "300.-1. 5.0", "a.b", "::1", "", nil,
		int64(5), "1_0.2"} {
		list = append(list, do("network.iphexval", v))
	}
	for _, p := range []string{"salt://a", "salt://b.conf", "salt://nosuch", "salt://sub",
		"salt://sub/c.conf", "DIR/tree/b.conf", "DIR/tree/to-b", "DIR/nosuch", "DIR/tree",
		"relative", "salt://c.sls?saltenv=dev", "salt://to-b", ""} {
		list = append(list, do("cp.stat_file", p), do("cp.stat_file", p, nil, false),
			do("cp.stat_file", p, "base"))
	}
	return append(list, do("cp.stat_file", "salt://c.sls", "dev"),
		do("cp.stat_file", "salt://c.sls", "nosuch"), do("cp.stat_file",
			"salt://b.conf").with("octal", int64(1)), do("cp.stat_file", int64(5)),
		do("cp.stat_file"))
}
