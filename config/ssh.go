package config

import (
	"slices"

	"clustermaster/salt/saltpython"
)

// sshOptions are the options of salt-ssh. Salt's own code reads them from the configuration, in
// salt-ssh as well as in the Python host.
var sshOptions = []string{
	"min_extra_mods", "regen_thin", "roster", "roster_defaults", "roster_file", "rosters",
	"ssh_config_file", "ssh_identities_only", "ssh_keepalive", "ssh_keepalive_count_max", "ssh_keepalive_interval",
	"ssh_list_nodegroups", "ssh_log_file", "ssh_merge_pillar", "ssh_minion_opts", "ssh_passwd",
	"ssh_port", "ssh_priv_passwd", "ssh_run_pre_flight", "ssh_scan_ports",
	"ssh_scan_timeout", "ssh_sudo", "ssh_sudo_user", "ssh_timeout", "ssh_use_home_key", "ssh_user",
	"ssh_wipe", "thin_exclude_saltexts", "thin_extra_mods", "thin_saltext_allowlist",
	"thin_saltext_blocklist",
}

// undeclaredSSH are options that salt-ssh reads without declaring them.
var undeclaredSSH = []string{
	"extra_filerefs", "ignore_host_keys", "known_hosts_file", "no_host_keys", "rand_thin_dir",
	"relenv", "roster_order", "ssh_ext_alternatives", "ssh_grains", "ssh_key_deploy",
	"ssh_max_procs", "ssh_options", "ssh_priv", "ssh_remote_port_forwards", "ssh_update_roster",
}

// checkSSH reports options of salt-ssh that nothing reads because there is no Python with Salt.
func (l *loader) checkSSH() {
	for _, name := range slices.Concat([]string{"enable_ssh_minions"}, sshOptions, undeclaredSSH) {
		if isEmpty(l.o.Extra[name]) || l.o.Extra[name] == false {
			continue
		}
		if _, err := saltpython.Find(l.o.PythonHost); err != nil {
			report := l.warn
			if name == "enable_ssh_minions" {
				report = l.refuse
			}
			report(name, "is for salt-ssh, which is part of Salt: %v", err)
		}
	}
}
