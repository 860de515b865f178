#!/bin/sh
# deb: purge takes away what the package made, never keys, configuration or the cluster's data.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
case "$1" in
purge)
    rm -f /etc/logrotate.d/clustermaster /etc/logrotate.d/clustermaster.disabled /etc/sysctl.d/60-clustermaster.conf
    rmdir /etc/salt/master.d /etc/salt 2>/dev/null || true # those with files stay
    if [ -d /etc/salt ] || [ -d /var/cache/salt/master/clustermaster ]; then
        echo "left in place: /etc/salt, /srv, /var/cache/salt/master and /var/log/salt"
    fi
    ;;
esac
exit 0
