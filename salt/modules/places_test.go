package modules

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestRoutesOfIP: without netstat, ip reports the default routes.
func TestRoutesOfIP(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for script, want := range map[string]string{
		`case $1 in -4) echo "default via 192.0.2.1 dev eth0 proto dhcp"; echo "192.0.2.0/24 dev eth0";; *) echo "unreachable default dev lo metric 1"; echo "default via fd00::1 dev eth1 metric 1024 pref medium"; esac`: "[{inet 0.0.0.0 192.0.2.1 0.0.0.0 UG eth0} {inet6 ::/0 fd00::1  UG eth1}] <nil>",
		`case $1 in -4) echo "default via 192.0.2.1 proto static";; esac`: "[{inet 0.0.0.0 192.0.2.1 0.0.0.0 UG }] <nil>",
		`echo default dev tun0`: "[] ip printed a route of 3 words",
		`:`:                     "[] <nil>",
	} {
		if err := os.WriteFile(filepath.Join(dir, "ip"), []byte("#!/bin/sh\n"+script+"\n"),
			0o755); err != nil { // executable
			t.Fatal(err)
		}
		c := &call{Modules: New(Deps{})}
		got, err := c.ipRoutes(t.Context())
		if fmt.Sprintf("%v %v", got, err) != want {
			t.Errorf("%s: %v %v, want %s", script, got, err, want)
		}
	}
}

// TestZoneOfFile: without timedatectl, a file holds the time zone.
func TestZoneOfFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, content := range map[string]string{"etc/timezone": "Europe/Berlin\n",
		"etc/sysconfig/clock": "# ZONE=a\nUTC=true\nZONE=\"Asia/Tokyo\"\n"} {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for family, want := range map[string]any{"Debian": "Europe/Berlin", "Gentoo": "Europe/Berlin",
		"RedHat": "Asia/Tokyo", "Suse": "Asia/Tokyo", "": nil, "Windows": nil} {
		if v, err := zoneOfFile(root, family); v != want || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v", family, v, err)
		}
		if v, err := zoneOfFile(t.TempDir(), family); err == nil {
			t.Errorf("%s without a file: %v", family, v)
		}
	}
}
