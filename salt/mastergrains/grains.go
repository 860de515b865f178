package mastergrains

import (
	"os"
	"runtime"
	"strings"

	"clustermaster/value"
)

// Of returns the grains of the master of this id, which speaks as this release of Salt.
func Of(id, release string) value.Map {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	host, domain, _ := strings.Cut(name, ".")
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	grains := value.Map{
		{Key: "id", Value: id}, {Key: "master", Value: id}, {Key: "host", Value: host},
		{Key: "nodename", Value: name}, {Key: "localhost", Value: name},
		{Key: "fqdn", Value: name}, {Key: "domain", Value: domain}, {Key: "kernel", Value: "Linux"},
		{Key: "cpuarch", Value: arch},
		{Key: "num_cpus", Value: int64(runtime.NumCPU())}, {Key: "path", Value: os.Getenv("PATH")},
		{Key: "pid", Value: int64(os.Getpid())},
		{Key: "saltversion", Value: release},
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		grains = grains.Set("kernelrelease", strings.TrimSpace(string(b)))
	}
	return append(append(grains, systemGrains()...), machineGrains()...)
}
