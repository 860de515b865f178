package mastergrains

import (
	"cmp"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"clustermaster/value"
)

// shortened are Salt's names for the grain os, by the first ten characters of NAME in os-release
// (without spaces and "Linux", in lower case) where Salt does not take NAME itself.
var shortened = map[string]string{
	"alibabaclo": "Alinux", "almalinuxk": "AlmaLinux", "amazonami": "Amazon", "archarm": "Arch ARM",
	"alt": "ALT", "cloudserve": "CloudLinux", "enterprise": "OEL", "fedoraremi": "Fedora",
	"gentoobase": "Gentoo", "linuxmint": "Mint", "manjarolin": "Manjaro", "neon": "KDE neon",
	"nilrt": "NILinuxRT", "oracleserv": "OEL", "photon": "VMware Photon OS", "pidora": "Fedora",
	"pop": "Pop", "redhatente": "RedHat", "scientific": "ScientificLinux", "sles": "SUSE",
	"slesexpand": "RES",
	// names that Salt writes in its own case
	"almalinux": "AlmaLinux", "antergos": "Antergos", "arch": "Arch", "chapeau": "Chapeau",
	"cloudlinux": "CloudLinux", "debian": "Debian", "korora": "Korora", "manjaro": "Manjaro",
	"mendel": "Mendel", "poky": "Poky", "raspbian": "Raspbian", "rocky": "Rocky",
	"synology": "Synology", "univention": "Univention", "virtuozzo": "Virtuozzo", "void": "Void",
}

// families are the values of os_family, with those of os that have them. Any other os is its own
// family.
var families = map[string][]string{
	"Arch": {"Antergos", "Arch ARM", "EndeavourOS", "Manjaro", "Manjaro ARM"},
	"Debian": {"AstraLinuxCE", "AstraLinuxSE", "Cumulus", "Deepin", "Devuan", "GCEL", "IDMS",
		"KDE neon", "Kali", "Linaro", "Mendel", "Mint", "OSMC", "Parrot OS", "Pop", "Raspbian",
		"Trisquel", "TurnKey", "Ubuntu", "Univention", "antiX", "elementary", "elementary OS", "neon"},
	"Gentoo":   {"Funtoo"},
	"Mandriva": {"Mandrake"},
	"RedHat": {"ALT", "Alinux", "AlmaLinux", "AlmaLinux Kitten", "AlterOS", "Amazon", "CentOS",
		"CentOS Stream", "Chapeau", "CloudLinux", "FedBerry", "Fedora", "GoOSe", "Korora", "OEL", "OVS",
		"RED OS", "RES", "Rocky", "Sangoma", "Scientific", "ScientificLinux", "VMware Photon OS",
		"Virtuozzo", "XCP", "XCP-ng", "XenServer", "openEuler"},
	"Slackware": {"Slamd64"}, "Bluewhite": {"Bluewhite64"}, "VMware": {"VMwareESX"},
	"Suse": {"SLED", "SLES", "SLES_SAP", "SUSE", "SUSE  Enterprise Server",
		"SUSE Enterprise Server", "alfaLinux", "alfaLinux Rise", "openSUSE", "openSUSE Leap",
		"openSUSE Tumbleweed"},
}

var linuxWord = regexp.MustCompile(`(?i)[^\pL\pN_](?:gnu/)?linux`)

// systemName derives the grain os.
func systemName(id, name string) string {
	switch {
	case id == "astra" && name == "Astra Linux (Orel)":
		return "AstraLinuxCE"
	case id == "astra" && name == "Astra Linux (Smolensk)":
		return "AstraLinuxSE"
	case id == "pop" && name == "Pop!_OS":
		return "Pop"
	}
	name = strings.TrimSpace(linuxWord.ReplaceAllString(name, ""))
	short := []rune(strings.ToLower(strings.ReplaceAll(name, " ", "")))
	return cmp.Or(shortened[string(short[:min(len(short), 10)])], name)
}

func familyOf(system string) string {
	for family, members := range families {
		if slices.Contains(members, system) {
			return family
		}
	}
	return system
}

// madeBy returns vendor and version of a CPE_NAME.
func madeBy(cpe string) (vendor, version string) {
	parts := strings.Split(cpe, ":")
	switch {
	case len(parts) > 4 && strings.HasPrefix(parts[1], "/"):
		return parts[2], parts[4]
	case len(parts) > 5 && parts[1] == "2.3":
		return parts[3], strings.TrimPrefix(parts[5], "*")
	}
	return "", ""
}

// inBrackets returns the text between the first brackets.
func inBrackets(s string) (string, bool) {
	_, rest, ok := strings.Cut(s, "(")
	text, _, _ := strings.Cut(rest, ")")
	return text, ok
}

// systemGrains are the grains about the distribution.
func systemGrains() value.Map {
	release := releaseFile("/etc/os-release")
	if release == nil {
		release = releaseFile("/usr/lib/os-release")
	}
	name, version := strings.TrimSpace(release["NAME"]), release["VERSION_ID"]
	system, full := systemName(release["ID"], release["NAME"]), name
	if vendor, made := madeBy(release["CPE_NAME"]); vendor == "suse" || vendor == "opensuse" {
		system = "SUSE"
		if name == "openSUSE Leap" {
			full = "Leap"
		} else if release["VERSION"] == "Tumbleweed" {
			full = "Tumbleweed"
		}
		if vendor == "opensuse" {
			version = cmp.Or(made, version)
		}
	}
	codename, ok := release["VERSION_CODENAME"]
	if !ok {
		codename = release["PRETTY_NAME"]
	}
	if text, ok := inBrackets(codename); ok && (strings.Contains(system, "Rocky") ||
		strings.Contains(system, "AlmaLinux")) {
		codename = text
	}
	shown := strings.TrimSpace(codename)
	if strings.Contains(shown, "Red Hat") {
		shown, _ = inBrackets(release["VERSION"])
	}
	family := familyOf(system)
	grains := value.Map{
		{Key: "os", Value: system}, {Key: "os_family", Value: family},
		{Key: "osfullname", Value: full}, {Key: "oscodename", Value: shown},
		{Key: "osrelease", Value: version}, {Key: "lsb_distrib_id", Value: name},
		{Key: "lsb_distrib_codename", Value: codename},
	}
	if version != "" {
		grains = append(grains, value.Pair{Key: "lsb_distrib_release", Value: version})
		var info []any
		for part := range strings.SplitSeq(version, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil {
				info = append(info, n)
			} else {
				info = append(info, part)
			}
		}
		if _, ok := info[0].(int64); ok {
			grains = append(grains, value.Pair{Key: "osmajorrelease", Value: info[0]})
		}
		of, finger := full, value.Str(info[0])
		if slices.Contains([]string{"Debian", "Raspbian", "AlmaLinux"}, system) {
			of = system
		}
		if slices.Contains([]string{"Ubuntu", "Pop", "NixOS"}, system) {
			finger = version
		}
		grains = append(grains, value.Pair{Key: "osrelease_info", Value: info},
			value.Pair{Key: "osfinger", Value: of + "-" + finger})
	}
	if family == "Debian" {
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
