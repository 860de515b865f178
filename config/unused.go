package config

import (
	_ "embed"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// unusedTSV lists options of Salt's that this master accepts and ignores.
//
//go:embed unused.tsv
var unusedTSV string

// unusedTexts say, for each class of unused.tsv, why an option has no effect and what to use
// instead.
var unusedTexts = map[string]string{
	"api":           "is not used: it is for salt-api, a program of its own that reads this file too",
	"autosign":      "is not used: events of pending keys carry no auto-sign grains",
	"backend":       "is not used: its back end of the file server is not built in; sync the files into file_roots",
	"cloud":         "is not used: it is for salt-cloud",
	"django":        "is not used: the back end django of external_auth is not built in",
	"features":      "is not used: this master has none of the switches that Salt keeps there",
	"gitfs":         "is not used: whole histories are fetched, the cluster has one lock per remote, and remotes are checked at the start",
	"gpgcache":      "is not used: decrypted texts are never kept",
	"grains":        "is not used: a master's own grains are few and quickly found",
	"handler":       "is not used: log lines go to files, syslog (log_file: udp://host:514) or the journal; log_fmt_logfile: json suits log collectors",
	"http":          "is not used: runners and external pillars have time limits of their own, and proxies come from the environment",
	"interface":     "is not needed: interface decides; :: takes IPv6 and IPv4",
	"keepalive":     "is not used: masters send a ZeroMQ PING every 10 s and notice a silent minion by that",
	"logjid":        "is not used: log lines name jid and minion as fields behind the message",
	"mask":          "is not used: pillar values are shown as they are",
	"matching":      "is not used: listeners and reactors match as Salt's default does",
	"minion":        "is not used: it is an option of minions",
	"modes":         "is not used: which versions of requests are taken is decided by minimum_auth_version",
	"openfiles":     "is not used: the master takes as many open files as its hard limit allows (LimitNOFILE in its unit)",
	"otel":          "is not used: metrics are served for Prometheus (metrics_listen)",
	"oteltraces":    "is not used: jobs are traced with traces_endpoint",
	"pass":          "is not used: the renderer pass is not built in",
	"pillarcache":   "is not used: pillars are kept in the cluster's store",
	"pillarenv":     "is not used: write pillarenv",
	"pillarversion": "is not used: minions are told the version of the pillar as Salt's default does",
	"python":        "is not used: modules of that kind written in Python are not loaded; docs/python.md says which are",
	"queue":         "is not used: the queue runners are not built in",
	"raas":          "is not used: the connector to RaaS runs inside Salt's own master only",
	"raftlog":       "is not used: snapshots cut the Raft log",
	"range":         "is not used: range targets need a range server; list the minions instead",
	"redis":         "is not used: tokens are kept in the cluster",
	"removed":       "is not used: current releases of Salt don't read it either",
	"resources":     "is not used: resources of minions are not kept",
	"roster":        "is not used: it is for remote minions without salt-minion",
	"session":       "is not used: session keys live as long as publish_session says, on all masters",
	"showtimeout":   "is not used: minions that did not return are always shown",
	"syndic":        "is not used: it is for salt-syndic, a program of its own that reads this file too",
	"tcp":           "is not used: it is for the transport tcp, and minions are served over zeromq",
	"thorium":       "is not used: thorium is not built in; write reactors",
	"tokendir":      "is not used: tokens are kept in the cluster",
	"tuning":        "is not used: it tunes processes and caches that this master does not have",
	"unlimited":     "is not used: nodegroups are not limited in number",
	"verifyenv":     "is not used: the master always makes its folders, gives them to its user and keeps pki_dir from others",
	"watched":       "is not used: files are looked at when they are asked for",
	"winrepo":       "is not used: the winrepo runners are not built in",
	// Options with their own text.
	"auth.enable_expanded_auth_matching": "is not used: with it Salt grants nothing by entries that name minions; " +
		"here they grant what they say, and computers of ldap(...) are one entry",
	"ipc_mode":        "is not used: Salt's own clients find the event bus in sock_dir only",
	"key_logfile":     "is not used: salt-key writes no log",
	"ping_on_rotate":  "is not used: a job that minions miss because keys were rotated is sent to them again",
	"presence_events": "is not used: no presence events are fired",
}

// unusedText says why an option has no effect; "" for one that has an effect.
func unusedText(name string) string {
	if text, ok := unusedTexts[name]; ok && strings.ContainsAny(name, "._") {
		return text
	}
	for _, l := range unusedLines() {
		if name == l.pattern || strings.HasSuffix(l.pattern, "*") &&
			strings.HasPrefix(name, l.pattern[:len(l.pattern)-1]) {
			if table()[name].own || l.pattern != name && isServed(name) {
				return ""
			}
			return unusedTexts[l.class]
		}
	}
	return ""
}

type unusedLine struct{ pattern, class string }

var unusedLines = sync.OnceValue(func() []unusedLine {
	var lines []unusedLine
	for line := range strings.Lines(unusedTSV) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		pattern, class, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		lines = append(lines, unusedLine{pattern, class})
	}
	return lines
})

// isServed reports whether an option is used although its name begins like unused ones.
func isServed(name string) bool { return table()[name].field >= 0 || servedElsewhere[name] }

// servedElsewhere are the options that have no field in Options but are used: other packages read
// them from Extra, or the loader itself does.
var servedElsewhere = func() map[string]bool {
	all := make(map[string]bool)
	for _, name := range []string{
		"append_domain", "auth_events_autosign_grains", "cluster_port", "color_theme", "conf_file",
		"default_include", "environment", "fileserver_events", "force_color", "grains", "include",
		"keep_jobs", "log_dir", "master_id", "master_tops", "mine_get", "no_color",
		"output_indent",
		"renderer_blacklist", "renderer_whitelist",
		"salt_cp_chunk_size", "state_compress_ids", "state_output_diff", "state_output_exclude",
		"state_output_pct", "state_output_terse",
		"state_output_profile", "state_tabular",
		"gpg_decrypt_must_succeed", "no_parse", "password", "return", "username",
		// Salt's loader reads these itself.
		"cython_enable", "enable_zip_modules", "engines_dirs", "extension_modules",
		"extmod_blacklist",
		"extmod_whitelist", "module_dirs", "optimization_order", "render_dirs", "runner_dirs",
		"utils_dirs", "wheel_dirs", "sdb_dirs", "pillar_dirs", "auth_dirs", "top_dirs",
		"outputter_dirs", "states_dirs",
		// checkMissing refuses these where their absence would matter.
		"cache", "discovery", "eauth_tokens", "eauth_tokens.cache_driver", "enable_ssh_minions",
		"engines", "ext_job_cache",
		"event_return", "event_return_blacklist", "event_return_queue",
		"event_return_queue_max_seconds", "event_return_whitelist", "returner_dirs",
		"fips_mode", "master_job_cache", "pillar.cache_driver", "ssl",
	} {
		all[name] = true
	}
	for _, name := range slices.Concat(gitOptions, sshOptions) {
		all[name] = true
	}
	for name := range undeclared {
		all[name] = true
	}
	return all
}()

// warnUnused warns of options that are set and have no effect, except those that are set to Salt's
// default.
func (l *loader) warnUnused() {
	for name, v := range l.o.Extra {
		fallback := table()[name].fallback
		if reflect.DeepEqual(v, fallback) || (v == false || isEmpty(v)) &&
			(fallback == nil || fallback == false || isEmpty(fallback)) {
			continue
		}
		if text := unusedText(name); text != "" {
			l.warn(name, "%s", text)
		}
	}
}
