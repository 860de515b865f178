package mastergrains

import (
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"clustermaster/value"
)

// systems maps the ID of os-release to Salt's names of the distribution: os and os_family.
var systems = map[string][2]string{
	"debian": {"Debian", "Debian"}, "ubuntu": {"Ubuntu", "Debian"},
	"raspbian": {"Raspbian", "Debian"}, "linuxmint": {"Mint", "Debian"},
	"rhel": {"RedHat", "RedHat"}, "centos": {"CentOS", "RedHat"}, "rocky": {"Rocky", "RedHat"},
	"almalinux": {"AlmaLinux", "RedHat"}, "fedora": {"Fedora", "RedHat"},
	"ol": {"OEL", "RedHat"}, "amzn": {"Amazon", "RedHat"}, "sles": {"SUSE", "Suse"},
	"opensuse-leap": {"SUSE", "Suse"}, "opensuse-tumbleweed": {"SUSE", "Suse"},
	"alpine": {"Alpine", "Alpine"}, "arch": {"Arch", "Arch"}, "gentoo": {"Gentoo", "Gentoo"},
}

// systemGrains are the grains about the distribution.
func systemGrains() value.Map {
	release := releaseFile("/etc/os-release")
	if release == nil {
		release = releaseFile("/usr/lib/os-release")
	}
	id, version, name := release["ID"], release["VERSION_ID"], release["NAME"]
	names, known := systems[id]
	if !known {
		names = [2]string{name, name}
	}
	grains := value.Map{
		{Key: "os", Value: names[0]}, {Key: "os_family", Value: names[1]},
		{Key: "osfullname", Value: name}, {Key: "oscodename", Value: release["VERSION_CODENAME"]},
		{Key: "osrelease", Value: version}, {Key: "lsb_distrib_id", Value: name},
		{Key: "lsb_distrib_release", Value: version},
		{Key: "lsb_distrib_codename", Value: release["VERSION_CODENAME"]},
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
		grains = append(grains, value.Map{{Key: "osrelease_info", Value: info},
			{Key: "osmajorrelease", Value: info[0]},
			{Key: "osfinger", Value: of + "-" + finger}}...)
	}
	if names[1] == "Debian" {
		grains = append(grains, value.Pair{Key: "osarch", Value: runtime.GOARCH})
	}
	return grains
}

var releaseLine = regexp.MustCompile(`^([A-Z_]+)=["']?(.*?)["']?$`)

// releaseFile reads a file in the format of os-release. It returns nil if the file is missing.
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
