package mastergrains

import (
	"cmp"
	"context"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"clustermaster/value"
)

// Of returns the grains of the master with this id. release is the release of Salt that it reports.
func Of(id, release string) value.Map {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	full := fullName(name)
	host, domain, _ := strings.Cut(full, ".")
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	grains := value.Map{
		{Key: "id", Value: id}, {Key: "master", Value: id}, {Key: "host", Value: host},
		{Key: "nodename", Value: name}, {Key: "localhost", Value: name},
		{Key: "fqdn", Value: full}, {Key: "domain", Value: domain}, {Key: "kernel", Value: "Linux"},
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

// forName limits the look-up of this machine's full name at the name servers.
const forName = 2 * time.Second

var fullNames sync.Map // host name to full name; each is looked up once, as in Salt

// fullName is the canonical name of a host by /etc/hosts or its name server, or else the name
// itself (Salt: salt.utils.network.get_fqhostname).
func fullName(host string) string {
	once, _ := fullNames.LoadOrStore(host, sync.OnceValue(func() string {
		ctx, cancel := context.WithTimeout(context.Background(), forName)
		defer cancel()
		name, _ := net.DefaultResolver.LookupCNAME(ctx, host) // "" if unknown
		return cmp.Or(strings.TrimSuffix(name, "."), host)
	}))
	return once.(func() string)()
}
