#!/bin/bash
# try.sh - installs, upgrades, removes and purges the packages of dist/ in a Debian root of its own below .build,
# in place of a package that calls itself salt-master. Needs root and debootstrap.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" -eq 0 ] || { echo "try.sh: needs root, for debootstrap and chroot"; exit 2; }
for program in rpm logrotate; do
    command -v $program >/dev/null || apt-get install -y -q --no-install-recommends $program >/dev/null
done
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

# package NAME DEPENDS PATH... - builds and installs a stand-in for Salt's package of this name with these files.
# A path PATH=TARGET is a link.
package() {
    local name=$1 depends=$2 path folder=$root/stand-in
    shift 2
    rm -rf "$folder"
    mkdir -p "$folder/DEBIAN"
    printf 'Package: %s\nVersion: 3008.3\nArchitecture: all\nMaintainer: test <test@test.invalid>\nDescription: stand-in for the package of this name\n' "$name" >"$folder/DEBIAN/control"
    [ -z "$depends" ] || echo "Depends: $depends" >>"$folder/DEBIAN/control"
    for path; do
        mkdir -p "$folder$(dirname "${path%%=*}")"
        case $path in
        *=*) ln -s "${path#*=}" "$folder${path%%=*}" ;;
        */) mkdir -p "$folder$path" ;;
        /etc/logrotate.d/*)
            printf '/var/log/salt/%s {\n\tweekly\n\tmissingok\n\tcreate 0640\n}\n' master minion >"$folder$path"
            echo "$path" >>"$folder/DEBIAN/conffiles"
            ;;
        /etc/salt/master)
            echo "interface: 127.0.0.1" >"$folder$path"
            echo "$path" >>"$folder/DEBIAN/conffiles"
            ;;
        *) printf '#!/bin/sh\n' >"$folder$path" && chmod 755 "$folder$path" ;;
        esac
    done
    inside dpkg-deb -b /stand-in "/$name.deb" >/dev/null
    inside dpkg -i "/$name.deb" >"$root/log" 2>&1 || { cat "$root/log"; fail "dpkg -i $name"; }
}
# rotates - fails unless logrotate takes all files of the root, with one stanza for the master's log.
rotates() {
    echo "include $root/etc/logrotate.d" >"$root/rotation"
    logrotate -d -s /dev/null "$root/rotation" >"$root/log" 2>&1 && ! grep '^error:' "$root/log" || { cat "$root/log"; fail "logrotate, $1"; }
    grep -q "rotating pattern: /var/log/salt/master " "$root/log" || fail "the master's log is not rotated, $1"
}
stanza=/etc/logrotate.d/clustermaster

step "a box without Salt"
inside dpkg -i /new.deb >"$root/log" 2>&1 || { cat "$root/log"; fail "dpkg -i without Salt"; }
for f in $(sed -n 's/^ReadWritePaths=-\?//p' "$root/usr/lib/systemd/system/salt-master.service"); do exists "$f"; done
exists /etc/salt/master.d
exists $stanza
rotates "without Salt"
inside dpkg -P clustermaster >/dev/null 2>&1
gone $stanza; gone /etc/salt

step "Salt's packages and a site's configuration are there"
# Files as in pkg/debian of Salt 3008.3, without /opt/saltstack.
fish=/usr/share/fish/vendor_completions.d
package salt-common "" /etc/logrotate.d/salt-common /usr/bin/salt-pip /usr/bin/salt-call \
    $fish/salt{,-cp,-call,-syndic,_common,-minion,-key,-master,-run}.fish /usr/share/man/man1/salt-call.1.gz \
    /usr/share/bash-completion/completions/salt-{common,call} /var/{cache,log,lib}/salt/ /etc/salt/
package salt-minion salt-common /etc/salt/minion.d/ /lib/systemd/system/salt-{minion,proxy@}.service \
    /usr/bin/salt-{minion,proxy} /usr/share/man/man1/salt-{minion,proxy}.1.gz
package salt-master salt-common /etc/salt/master /etc/salt/master.d/ /etc/salt/pki/master/minions/ \
    /lib/systemd/system/salt-master.service /etc/ufw/applications.d/salt.ufw \
    /usr/bin/{salt-master,salt,salt-cp,salt-key,salt-run,spm}=/opt/saltstack/salt/salt \
    /usr/share/bash-completion/completions/salt{,-cp,-key}=salt-common \
    /usr/share/man/man1/salt{,-cp,-key,-master,-run}.1.gz
mkdir -p "$root/srv/salt"
echo key >"$root/etc/salt/pki/master/master.pem"
echo sls >"$root/srv/salt/top.sls"
before=$(cd "$root" && find etc/salt srv -type f -exec sha256sum {} +)
unchanged() { [ "$before" = "$(cd "$root" && find etc/salt srv -type f -exec sha256sum {} +)" ] || fail "$1 changed /etc/salt or /srv"; }

step "what needs Salt's own salt-master goes"
package salt-api "salt-master (= 3008.3)" /lib/systemd/system/salt-api.service /usr/bin/salt-api=/opt/saltstack/salt/salt-api
inside dpkg -i /new.deb >"$root/log" 2>&1 && fail "dpkg takes the package beside salt-api; docs/install.md says that it refuses"
grep -q "salt-api depends on salt-master (= 3008.3)" "$root/log" || { cat "$root/log"; fail "dpkg does not name salt-api"; }
inside apt-get install -s /new.deb >"$root/log" 2>&1 || { cat "$root/log"; fail "apt-get install -s"; }
grep -q "^Remv salt-api " "$root/log" || { cat "$root/log"; fail "apt keeps salt-api; docs/install.md says that it removes it"; }
grep -q "^Remv salt-common " "$root/log" && fail "apt removes salt-common"
inside apt-mark manual salt-common >/dev/null
inside apt-get remove -y salt-api >/dev/null 2>&1 || fail "apt-get remove"

step "the package takes the place of Salt's"
inside DPKG_MAINTSCRIPT_PACKAGE=salt-master deb-systemd-helper mask salt-master.service # as the removal of an older package does
inside dpkg -i /new.deb >"$root/log" 2>&1 || { cat "$root/log"; fail "dpkg -i"; }
grep -q "installed and not started" "$root/log" || fail "no advice after the installation"
inside dpkg -s salt-master 2>/dev/null | grep -q "^Status: install ok installed" && fail "Salt's package is still installed"
unchanged "the installation"
gone /etc/systemd/system/salt-master.service
for f in /usr/bin/salt-master /usr/bin/salt-run /usr/lib/systemd/system/salt-master.service /usr/share/man/man1/salt-key.1.gz; do exists $f; done
inside dpkg -s salt-minion salt-common 2>/dev/null | grep -c "^Status: install ok installed" | grep -qx 2 || fail "Salt's minion is gone"
[ -z "$(inside dpkg --verify salt-minion salt-common clustermaster)" ] || fail "files are missing or changed: $(inside dpkg --verify salt-minion salt-common clustermaster)"
rotates "beside Salt's minion"
inside salt-master --version | grep -q "clustermaster" || fail "salt-master is not ours"
inside clustermaster config check | grep -q "good" || fail "Salt's configuration is refused"
inside getent passwd salt >/dev/null || fail "no user salt"

step "the unit is one that systemd takes"
# A minimal root has neither systemd's own units nor man.
complaints=$(systemd-analyze verify --root="$root" salt-master.service 2>&1 | grep -v 'sysinit.target not found\|/bin/kill is not executable\|man salt-master' || true)
[ -z "$complaints" ] || fail "systemd-analyze verify: $complaints"
systemd-analyze security --offline=yes --root="$root" --threshold=75 salt-master.service >/dev/null || fail "the unit is less sealed than it was"

step "an upgrade keeps changed configuration"
echo "# mine" >>"$root/etc/sysctl.d/60-clustermaster.conf"
inside dpkg -i /new.deb >"$root/log" 2>&1 || { cat "$root/log"; fail "upgrade"; }
grep -q "# mine" "$root/etc/sysctl.d/60-clustermaster.conf" || fail "a changed file was replaced"
grep -q "not started" "$root/log" && fail "an upgrade talks as an installation"
unchanged "the upgrade"

step "removal leaves configuration, purge leaves the site's data"
inside dpkg -r clustermaster >/dev/null 2>&1
gone /usr/bin/salt-master; gone /usr/lib/systemd/system/salt-master.service; exists /etc/sysctl.d/60-clustermaster.conf
unchanged "the removal"
inside dpkg -P clustermaster >/dev/null 2>&1
gone /etc/sysctl.d/60-clustermaster.conf
unchanged "the purge"

step "Salt's packages without its master can go and come"
inside dpkg -i /new.deb >/dev/null 2>&1
inside dpkg -P salt-minion salt-common >/dev/null 2>&1
rotates "after salt-common went"
echo "# mine" >>"$root$stanza"
inside dpkg -i /salt-common.deb >/dev/null 2>&1
gone $stanza
rotates "after salt-common came"
inside dpkg -P salt-common >/dev/null 2>&1
grep -q "# mine" "$root$stanza" || fail "a changed stanza was replaced"
inside dpkg -i /salt-common.deb >/dev/null 2>&1
inside dpkg -P clustermaster >/dev/null 2>&1
gone $stanza.disabled

step "Salt's package can come back"
inside dpkg -i /salt-master.deb >/dev/null 2>&1 || fail "Salt's package can't be installed again"

step "the rpm holds the same files"
rpm --dbpath "$root.rpm/db" -qpl "$rpm" 2>/dev/null | grep -v '/usr/share/doc\|^/usr/share/man$' | sort >"$root.rpmlist"
dpkg-deb --fsys-tarfile "$deb" | tar t | sed 's,^\.,,; s,/$,,; s,^/lib\(/\|$\),/usr/lib\1,' | grep -v '/usr/share/doc' | while read -r f; do [ -n "$f" ] && echo "$f"; done | sort >"$root.deblist"
missing=$(while read -r f; do grep -qxF "$f" "$root.rpmlist" || echo "$f"; done <"$root.deblist" | grep -vxF "$(sed 's,/[^/]*$,,' "$root.deblist" | sort -u)" || true)
rm -f "$root.rpmlist" "$root.deblist"
[ -z "$missing" ] || fail "the rpm lacks: $missing"
rpm -qp --conflicts --provides "$rpm" 2>/dev/null | grep -c salt-master | grep -qx 2 || fail "the rpm does not replace salt-master"
for when in preinstall posttrans; do
    rpm -qp --scripts "$rpm" 2>/dev/null | grep -q "^$when scriptlet" || fail "the rpm has no script $when: Salt's takes /etc/salt/master away"
done
rpm -qp --scripts "$rpm" 2>/dev/null | grep -q "^postinstall scriptlet" || fail "the rpm has no script postinstall"
echo "packages: installation, upgrade, removal and purge work"
