#!/bin/sh
# deb: remove or upgrade; rpm: 0 on removal, 1 on upgrade.
set -e
case "$1" in
remove | deconfigure | 0)
    if [ -d /run/systemd/system ]; then
        systemctl disable --now salt-master.service || true
    fi
    ;;
esac
exit 0
