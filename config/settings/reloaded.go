package settings

import (
	"slices"
	"strings"
)

// ReadByACL, ReadByAuth and ReadByDoor pick from changed options, by name, those that ACL, Auth and
// Door read and that may change while a master runs.
func ReadByACL(changed []string) []string {
	return among(changed, "publisher_acl", "publisher_acl_blacklist", "sudo_acl")
}

// ReadByAuth skips what other packages read too, and the Python that calls libpam.
func ReadByAuth(changed []string) []string {
	backEnds := slices.DeleteFunc(slices.Clone(changed), func(name string) bool {
		return !strings.HasPrefix(name, "auth.") || name == "auth.pam.python"
	})
	return append(backEnds, among(changed, "eauth_acl_module", "external_auth",
		"keep_acl_in_token", "permissive_acl", "sharedsecret", "token_expire",
		"token_expire_user_override")...)
}

// ReadWhenNeeded selects the options that are read again for each use.
func ReadWhenNeeded(changed []string) []string { return among(changed, "grains") }

// ReadByDoor selects the options of the metrics' listener.
func ReadByDoor(changed []string) []string {
	return among(changed, "metrics_tls_cert", "metrics_tls_key", "metrics_client_ca",
		"metrics_users")
}

func among(changed []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(changed),
		func(name string) bool { return !slices.Contains(names, name) })
}
