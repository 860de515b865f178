#!/bin/sh
# 1 on installation, 2 on upgrade. When this package replaces Salt's, rpm deletes Salt's /etc/salt/master, or renames it
# if it was changed, and Salt's package disables the unit: posttrans-rpm.sh undoes both.
set -e
kept=/var/lib/rpm-state/clustermaster
rm -rf $kept
if [ "$1" = 1 ]; then
    mkdir -p -m 700 $kept
    if [ -e /etc/salt/master ]; then
        cp -a /etc/salt/master $kept/master
    fi
    if [ -d /run/systemd/system ] && systemctl is-enabled --quiet salt-master.service; then
        touch $kept/enabled
    fi
fi
exit 0
