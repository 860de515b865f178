#!/bin/sh
# deb: configure [OLD-VERSION]; rpm: 1 on installation, 2 on upgrade.
set -e
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
    echo "  A cluster: run clustermaster init on one box and write its options to /etc/salt/master on all, then start them."
fi
exit 0
