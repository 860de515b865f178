package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"clustermaster/salt/saltpython"
	"clustermaster/store/seal"
	"clustermaster/value"
)

// leastMine is the least bound of a mine in bytes; a smaller one is meant to be in MiB.
const leastMine = 1024

// check finds problems that no single type or range shows.
func (l *loader) check() {
	l.checkLogging()
	l.checkNetwork()
	l.checkMetrics()
	l.checkTraces()
	l.checkKeys()
	if n := l.o.MinionMineMaxSize; n > 0 && n < leastMine {
		l.refuse("minion_mine_max_size",
			"is %d bytes; write at least %d bytes (%d for %d MiB), or 0 for no bound", n, leastMine, n<<20, n)
	}
	l.checkCluster()
	l.checkBackups()
	l.checkMissing()
}

// checkBackups refuses scheduled backups that can't be made.
func (l *loader) checkBackups() {
	o := l.o
	if o.BackupDir == "" {
		return
	}
	if !filepath.IsAbs(o.BackupDir) {
		l.refuse("backup_dir", "is %q; an absolute path is needed", o.BackupDir)
	}
	if !filepath.IsAbs(o.BackupPassphraseFile) {
		l.refuse("backup_dir",
			"backups are sealed, and backup_passphrase_file is %q; write a passphrase of 12 characters or more to a file and give "+
				"its absolute path", o.BackupPassphraseFile)
	}
}

// authBackEnds are those of package auth, without auto.
var authBackEnds = []string{"file", "ldap", "pam", "rest", "sharedsecret"}

var hashTypes = []string{"md5", "sha1", "sha224", "sha256", "sha384", "sha512"}

func (l *loader) checkNetwork() {
	o := l.o
	if _, err := o.DiskReserveSize(); err != nil {
		l.refuse("disk_reserve", "%v", err)
	}
	if o.Transport != "zeromq" {
		l.refuse("transport", "is %q; minions are served over zeromq only, take the option out",
			o.Transport)
	}
	l.checkListeners()
	if o.ProxyProtocol && len(o.ProxyProtocolFrom) == 0 {
		l.refuse("proxy_protocol",
			"is True, but proxy_protocol_from names no balancer; list the addresses whose headers are to be believed, like [10.0.0.5, 10.0.1.0/24]")
	}
	for _, s := range o.ProxyProtocolFrom {
		if _, err := parsePrefix(s); err != nil {
			l.refuse("proxy_protocol_from", "%q is neither an address nor a network like 10.0.1.0/24", s)
		}
	}
	for _, listen := range [][2]string{{"health_listen", o.HealthListen},
		{"metrics_listen", o.MetricsListen}} {
		if listen[1] == "" {
			continue
		}
		if _, _, err := splitHostPort(listen[1]); err != nil {
			l.refuse(listen[0], "%v; write it as 127.0.0.1:4521", err)
		}
	}
}

// checkMetrics refuses a listener for metrics that strangers can read.
func (l *loader) checkMetrics() {
	o := l.o
	for _, f := range [][2]string{{"metrics_tls_cert", o.MetricsTLSCert},
		{"metrics_tls_key", o.MetricsTLSKey}, {"metrics_client_ca", o.MetricsClientCA},
		{"metrics_users", o.MetricsUsers}} {
		if f[1] != "" && !filepath.IsAbs(f[1]) {
			l.refuse(f[0], "is %q; an absolute path is needed", f[1])
		}
	}
	switch {
	case o.MetricsTLSCert != "" && o.MetricsTLSKey == "":
		l.refuse("metrics_tls_cert", "has no key; name the file of its key in metrics_tls_key")
	case o.MetricsTLSKey != "" && o.MetricsTLSCert == "":
		l.refuse("metrics_tls_key",
			"has no certificate; name the file of its certificate in metrics_tls_cert")
	case o.MetricsClientCA != "" && o.MetricsTLSCert == "":
		l.refuse("metrics_client_ca", "needs TLS; set metrics_tls_cert and metrics_tls_key")
	}
	if o.MetricsListen == "" {
		return
	}
	host, _, err := splitHostPort(o.MetricsListen)
	if err != nil {
		return // checkNetwork has refused this value
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsLoopback() || host == "localhost" {
		return
	}
	if o.MetricsTLSCert == "" || o.MetricsUsers == "" && o.MetricsClientCA == "" {
		l.warn("metrics_listen", "is %q, which others on the network can read; set "+
			"metrics_tls_cert and metrics_tls_key, and metrics_users or metrics_client_ca, "+
			"or listen on a loopback address", o.MetricsListen)
	}
}

// checkTraces refuses an address that no collector has.
func (l *loader) checkTraces() {
	endpoint := l.o.TracesEndpoint
	if endpoint == "" {
		return
	}
	if strings.ContainsAny(endpoint, "@?#") { // not shown: it may hold a password
		l.refuse("traces_endpoint",
			"has a user or a query; write scheme, host, port and path alone, and give "+
				"credentials as OTEL_EXPORTER_OTLP_HEADERS in the master's environment")
		return
	}
	u, err := url.Parse(endpoint)
	if err == nil && u.Port() != "" {
		_, _, err = splitHostPort(u.Host)
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		l.refuse("traces_endpoint", "is %q, no URL of a collector; write it as http://127.0.0.1:4318",
			endpoint)
	}
}

func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

// ProxyFrom lists the networks whose PROXY headers are trusted; it is empty while proxy_protocol is
// off.
func (o *Options) ProxyFrom() []netip.Prefix {
	if !o.ProxyProtocol {
		return nil
	}
	return o.Balancers()
}

// Balancers lists the networks of proxy_protocol_from, also while proxy_protocol is off.
func (o *Options) Balancers() []netip.Prefix {
	var list []netip.Prefix
	for _, s := range o.ProxyProtocolFrom {
		if p, err := parsePrefix(s); err == nil {
			list = append(list, p)
		}
	}
	return list
}

func (l *loader) checkKeys() {
	o := l.o
	if o.SealKey != "" {
		if err := seal.CheckSource(o.SealKey); err != nil {
			l.refuse("seal_key", "%v", err)
		}
	}
	if !slices.Contains(hashTypes, o.HashType) {
		l.refuse("hash_type", "is %q; one of %s is needed", o.HashType,
			strings.Join(hashTypes, ", "))
	}
	// These two texts are Salt's, for tools that search for them.
	if sig := []string{"PKCS1v15-SHA1", "PKCS1v15-SHA224"}; !slices.Contains(sig,
		o.PublishSigningAlgorithm) {
		l.refuse("publish_signing_algorithm", "is %q. Please specify one of %s.",
			o.PublishSigningAlgorithm, strings.Join(sig, ","))
	}
	if enc := []string{"OAEP-SHA1", "OAEP-SHA224"}; !slices.Contains(enc,
		o.ClusterEncryptionAlgorithm) {
		l.refuse("cluster_encryption_algorithm", "is %q. Please specify one of %s.",
			o.ClusterEncryptionAlgorithm, strings.Join(enc, ","))
	}
	if !strings.HasPrefix(o.ID, ".") && !strings.ContainsAny(o.ID, "/\\\x00\n") &&
		len(o.ID) <= 255 {
		return
	}
	l.refuse("id", "%q can't be an id: no /, \\, line break or leading dot, at most 255 characters",
		o.ID)
}

// checkMissing reports options for features that this master doesn't have. It refuses the start
// where the absence would be unsafe or would silently drop what the operator relies on; where
// nothing would happen, it warns.
func (l *loader) checkMissing() {
	o := l.o
	set := func(name string) bool { return !isEmpty(o.Extra[name]) }
	is := func(name string) bool { return o.Extra[name] == true }

	for _, r := range []struct {
		option, text string
		set          bool
	}{
		{"ssl",
			"TLS on the minion ports needs transport tcp, which is not served; remove it, minion traffic is " +
				"encrypted all the same", set("ssl") && o.Extra["ssl"] != false},
		{"fips_mode",
			"FIPS mode is not certified here; remove it only if plain Salt encryption is allowed",
			is("fips_mode")},
		{"discovery",
			"answers to discovery (SSDP) are not built in; remove it and name the masters in the minions' files",
			set("discovery") && o.Extra["discovery"] != false},
	} {
		if r.set {
			l.refuse(r.option, "%s", r.text)
		}
	}
	for _, d := range []struct {
		option  string
		allowed []string
	}{
		{"cache", []string{"localfs", "mmap_cache"}},
		{"keys.cache_driver", []string{"localfs_key", "mmap_key"}},
		{"pillar.cache_driver", []string{"localfs", "mmap_cache"}},
		{"eauth_tokens.cache_driver", []string{"localfs", "mmap_cache"}},
		{"eauth_tokens", []string{"localfs"}},
	} {
		if v, ok := o.Extra[d.option].(string); ok && !slices.Contains(d.allowed, v) {
			l.refuse(d.option,
				"the driver %q is not built in; use %s, the data is kept in the cluster either way",
				v, strings.Join(d.allowed, " or "))
		}
	}
	l.checkGit()
	l.checkSSH()
	for _, d := range []struct{ option, what string }{{"runner_dirs", "runners"}, {"states_dirs", "states"}} {
		if !set(d.option) {
			continue
		}
		if _, err := saltpython.Find(o.PythonHost); err != nil {
			l.refuse(d.option, "%s are modules in Python: %v", d.what, err)
		}
	}
	for _, option := range []string{"event_return", "ext_job_cache", "master_job_cache"} {
		if !set(option) || o.Extra[option] == "local_cache" {
			continue
		}
		if _, err := saltpython.Find(o.PythonHost); err != nil {
			l.refuse(option, "returners are modules in Python: %v", err)
		}
	}
	for _, name := range moduleNames(o.Extra["ext_pillar"]) {
		if slices.Contains([]string{"cmd_json", "cmd_yaml", "extra_minion_data_in_pillar",
			"file_tree", "git", "gpg", "nodegroups"}, name) {
			continue // package pillar has these
		}
		if _, err := saltpython.Find(o.PythonHost); err != nil {
			l.refuse("ext_pillar",
				"the external pillar %q is one of Salt's or your own in Python: %v", name, err)
		}
	}
	for _, e := range o.ExternalAuth {
		switch name := value.Str(e.Key); {
		case name == "auto":
			l.warn("external_auth",
				"the back end auto lets everybody in with any password; it is for tests only")
		case !slices.Contains(authBackEnds, name):
			if _, err := saltpython.Find(o.PythonHost); err != nil {
				l.refuse("external_auth",
					"the back end %q is none of those built in (%s); others, of Salt or your own, are in Python: %v%s",
					name, strings.Join(authBackEnds, ", "), err, meant(name, authBackEnds))
			}
		}
	}
	if tops, ok := o.Extra["master_tops"].(value.Map); ok {
		for _, e := range tops {
			if e.Key == "ext_nodes" { // package mastertops has this
				continue
			}
			if _, err := saltpython.Find(o.PythonHost); err != nil {
				l.refuse("master_tops", "%q is one of Salt's modules or your own in Python: %v",
					value.Str(e.Key), err)
			}
		}
	}
	l.checkEngines()
	l.checkReactor()
	l.checkSchedule()
	l.warnUnused()
	if o.EnableClearCommands {
		l.warn("enable_clear_commands",
			"orders of users on port %d cross the network unsealed, with their keys, passwords and tokens; the commands don't need it", o.RetPort)
	}
	if o.OrderMasters && len(o.Syndics) == 0 {
		l.warn("order_masters",
			"the returns of syndics are refused: name the ids of the syndics in the option syndics, like [syndic-*]")
	}
	if o.OpenMode {
		l.warn("open_mode",
			"every minion that asks is let in, with any key; turn it off as soon as you can")
	}
	slices.SortFunc(l.warnings, func(a, b Warning) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return strings.Compare(a.Option, b.Option)
	})
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case value.Map:
		return len(v) == 0
	}
	return false
}

// moduleNames reads the names in a list such as ext_pillar: mappings with one key each.
func moduleNames(v any) []string {
	list, _ := v.([]any)
	var names []string
	for _, x := range list {
		switch x := x.(type) {
		case value.Map:
			for _, e := range x {
				names = append(names, fmt.Sprint(e.Key))
			}
		default:
			names = append(names, value.Str(x))
		}
	}
	return names
}
