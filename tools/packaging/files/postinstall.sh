#!/bin/sh
# deb: configure [OLD-VERSION], or triggered by a file in /etc/logrotate.d; rpm: 1 on installation, 2 on upgrade.
set -e
# logrotate fails at a log that two files name. Salt's packages salt-common (deb) and salt (rpm) name the master's.
rotate_once() {
    ours=/etc/logrotate.d/clustermaster
    for file in /etc/logrotate.d/*; do
        case $file in
        $ours | *.disabled | *.dpkg-* | *.rpm* | *~) continue ;;
        esac
        if grep -Eqs '^[^#]*/var/log/salt/(master([[:space:]"{]|$)|\*)' "$file"; then
            [ ! -e $ours ] || mv $ours $ours.disabled
            return 0
        fi
    done
    if [ -e $ours ]; then
        return 0
    elif [ -e $ours.disabled ]; then
        mv $ours.disabled $ours
    else
        mkdir -p /etc/logrotate.d
        install -m 644 /usr/share/clustermaster/logrotate $ours
    fi
}
rotate_once
if [ "$1" = triggered ]; then
    exit 0
fi
# Not in the package: rpm would take it from the user whom Salt's package gave it to.
mkdir -p /etc/salt/master.d
upgrade=no
case "$1" in
configure) [ -z "$2" ] || upgrade=yes ;;
2) upgrade=yes ;;
esac
if ! getent group salt >/dev/null; then
    groupadd --system salt
fi
if ! getent passwd salt >/dev/null; then
    useradd --system --gid salt --home-dir /var/lib/clustermaster --no-create-home --shell /usr/sbin/nologin --comment Salt salt
fi
# Debian's removal of another package with this unit masks it. An administrator's own mask stays.
if [ "$1" = configure ] && command -v deb-systemd-helper >/dev/null; then
    deb-systemd-helper unmask salt-master.service >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemd-tmpfiles --create /usr/lib/tmpfiles.d/clustermaster.conf || true
    if [ "$upgrade" = yes ]; then
        systemctl try-restart salt-master.service || true
    fi
fi
if [ "$upgrade" = no ]; then
    echo "clustermaster is installed and not started."
    echo "  A single master, or one with Salt's configuration: systemctl enable --now salt-master"
    echo "  A cluster: clustermaster init --peers A,B,C on one box writes master and master.d/cluster.conf of all, and says what to do next."
fi
exit 0
