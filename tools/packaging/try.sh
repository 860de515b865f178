#!/bin/bash
# try.sh - installs, upgrades, removes and purges the packages of dist/ in a Debian root of its own below .build,
# in place of a package that calls itself salt-master. Needs root and debootstrap.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" -eq 0 ] || { echo "try.sh: needs root, for debootstrap and chroot"; exit 2; }
command -v rpm >/dev/null || apt-get install -y -q --no-install-recommends rpm >/dev/null
arch=$(dpkg --print-architecture)
deb=$(ls -t dist/*_"$arch".deb | head -1)
rpm=$(ls -t dist/*."$(uname -m)".rpm | head -1)
base=$PWD/.build/debian-root
tools/scripts/debian-root.sh "$base"
root=$PWD/.build/try-root
cleanup() { mountpoint -q "$root/proc" && umount "$root/proc"; rm -rf "$root" "$root.rpm"; }
cleanup; trap cleanup EXIT
cp -a "$base" "$root"
mount -t proc proc "$root/proc"
cp "$deb" "$root/new.deb"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
step() { echo "== $*"; }
fail() { echo "FAIL: $*"; exit 1; }
exists() { [ -e "$root$1" ] || fail "$1 is missing"; }
gone() { [ ! -e "$root$1" ] || fail "$1 is left"; }

step "Salt's package and a site's configuration are there"
old=$root/old
mkdir -p "$old/DEBIAN" "$old/usr/bin" "$old/etc/salt" "$root/srv/salt" "$root/etc/salt/pki/master"
printf 'Package: salt-master\nVersion: 3008.3\nArchitecture: all\nMaintainer: test <test@test.invalid>\nDescription: stand-in for the package of this name\n' >"$old/DEBIAN/control"
echo /etc/salt/master >"$old/DEBIAN/conffiles"
echo "interface: 127.0.0.1" >"$old/etc/salt/master"
printf '#!/bin/sh\n' >"$old/usr/bin/salt-master"
chmod 755 "$old/usr/bin/salt-master"
inside dpkg-deb -b /old /old.deb >/dev/null
inside dpkg -i /old.deb >/dev/null
echo key >"$root/etc/salt/pki/master/master.pem"
echo sls >"$root/srv/salt/top.sls"
before=$(cd "$root" && find etc/salt srv -type f -exec sha256sum {} +)
unchanged() { [ "$before" = "$(cd "$root" && find etc/salt srv -type f -exec sha256sum {} +)" ] || fail "$1 changed /etc/salt or /srv"; }

step "the package takes the place of Salt's"
inside dpkg -i --auto-deconfigure --force-depends /new.deb >"$root/log" 2>&1 || { cat "$root/log"; fail "dpkg -i"; }
grep -q "installed and not started" "$root/log" || fail "no advice after the installation"
inside dpkg -s salt-master 2>/dev/null | grep -q "^Status: install ok installed" && fail "Salt's package is still installed"
unchanged "the installation"
for f in /usr/bin/salt-master /usr/bin/salt-run /usr/lib/systemd/system/salt-master.service /etc/logrotate.d/clustermaster /usr/share/man/man1/salt-key.1.gz; do exists $f; done
inside salt-master --version | grep -q "clustermaster" || fail "salt-master is not ours"
inside clustermaster config check | grep -q "good" || fail "Salt's configuration is refused"
inside getent passwd salt >/dev/null || fail "no user salt"

step "the unit is one that systemd takes"
# A minimal root has neither systemd's own units nor man.
complaints=$(systemd-analyze verify --root="$root" salt-master.service 2>&1 | grep -v 'sysinit.target not found\|/bin/kill is not executable\|man salt-master' || true)
[ -z "$complaints" ] || fail "systemd-analyze verify: $complaints"
systemd-analyze security --offline=yes --root="$root" --threshold=75 salt-master.service >/dev/null || fail "the unit is less sealed than it was"

step "an upgrade keeps changed configuration"
echo "# mine" >>"$root/etc/logrotate.d/clustermaster"
inside dpkg -i /new.deb >"$root/log" 2>&1 || { cat "$root/log"; fail "upgrade"; }
grep -q "# mine" "$root/etc/logrotate.d/clustermaster" || fail "a changed file was replaced"
grep -q "not started" "$root/log" && fail "an upgrade talks as an installation"
unchanged "the upgrade"

step "removal leaves configuration, purge leaves the site's data"
inside dpkg -r clustermaster >/dev/null 2>&1
gone /usr/bin/salt-master; gone /usr/lib/systemd/system/salt-master.service; exists /etc/logrotate.d/clustermaster
unchanged "the removal"
inside dpkg -P clustermaster >/dev/null 2>&1
gone /etc/logrotate.d/clustermaster; gone /etc/sysctl.d/60-clustermaster.conf
unchanged "the purge"

step "Salt's package can come back"
inside dpkg -i /old.deb >/dev/null 2>&1 || fail "Salt's package can't be installed again"

step "the rpm holds the same files"
rpm --dbpath "$root.rpm/db" -qpl "$rpm" 2>/dev/null | grep -v '/usr/share/doc\|^/usr/share/man$' | sort >"$root.rpmlist"
dpkg-deb --fsys-tarfile "$deb" | tar t | sed 's,^\.,,; s,/$,,' | grep -v '/usr/share/doc' | while read -r f; do [ -n "$f" ] && echo "$f"; done | sort >"$root.deblist"
missing=$(while read -r f; do grep -qxF "$f" "$root.rpmlist" || echo "$f"; done <"$root.deblist" | grep -vxF "$(sed 's,/[^/]*$,,' "$root.deblist" | sort -u)" || true)
rm -f "$root.rpmlist" "$root.deblist"
[ -z "$missing" ] || fail "the rpm lacks: $missing"
rpm -qp --conflicts --provides "$rpm" 2>/dev/null | grep -c salt-master | grep -qx 2 || fail "the rpm does not replace salt-master"
echo "packages: installation, upgrade, removal and purge work"
