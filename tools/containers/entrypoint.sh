#!/bin/sh
# Writes /etc/salt/master.d/50-container.conf from the environment and becomes the master. With CLUSTER_ID unset it
# writes nothing about a cluster: then /etc/salt/master says everything.
#
#   MASTER_ID            id; the name of the container's host without it
#   CLUSTER_ID           cluster_id
#   CLUSTER_PEERS        the other masters' addresses or names, with spaces or commas between them; the own one may be there
#   CLUSTER_ADVERTISE    address or name by which the others reach this master
#   CLUSTER_SECRET_FILE  file with cluster_secret; /run/secrets/cluster_secret without it
#   LISTEN               interface; 0.0.0.0 without it
set -eu
etc=${CONFIG_DIR:-/etc/salt}
conf=$etc/master.d/50-container.conf

refuse() {
    echo "clustermaster-entrypoint: $*; the master was not started" >&2
    exit 64
}
# plain NAME VALUE - refuses what would be more than a word in YAML.
plain() {
    case $2 in
    *[!A-Za-z0-9._:-]*) refuse "$1 is \"$2\"; letters, digits, dots, dashes and colons are allowed" ;;
    esac
}

id=${MASTER_ID:-$(hostname)}
plain MASTER_ID "$id"
plain LISTEN "${LISTEN:-0.0.0.0}"
umask 077
mkdir -p "$etc/master.d"
{
    echo "# Written by clustermaster-entrypoint at each start."
    echo "id: '$id'"
    echo "interface: '${LISTEN:-0.0.0.0}'"
    echo "user: $(id -un)"
    echo "log_file: ''"
    echo "pidfile: /run/salt/master.pid"
} >"$conf.new"
if [ -n "${CLUSTER_ID:-}" ]; then
    secret=${CLUSTER_SECRET_FILE:-/run/secrets/cluster_secret}
    plain CLUSTER_ID "$CLUSTER_ID"
    [ -n "${CLUSTER_ADVERTISE:-}" ] || refuse "CLUSTER_ADVERTISE is not set; give the address or name by which the other masters reach this one"
    plain CLUSTER_ADVERTISE "$CLUSTER_ADVERTISE"
    [ -f "$secret" ] && [ -r "$secret" ] || refuse "$secret can't be read; mount the file with the secret of the cluster there, or name it in CLUSTER_SECRET_FILE"
    [ "$(wc -l <"$secret")" -le 1 ] || refuse "$secret has more than one line; one with the secret is needed"
    {
        echo "cluster_id: '$CLUSTER_ID'"
        echo "cluster_advertise: '$CLUSTER_ADVERTISE'"
        echo "cluster_isolated_filesystem: True"
        echo "cluster_secret: '$(sed "s/'/''/g" "$secret")'"
        echo "cluster_peers:"
    } >>"$conf.new"
    for peer in $(echo "${CLUSTER_PEERS:-}" | tr , ' '); do
        plain CLUSTER_PEERS "$peer"
        [ "$peer" = "$CLUSTER_ADVERTISE" ] || echo "  - '$peer'" >>"$conf.new"
    done
fi
mv "$conf.new" "$conf"
exec salt-master -c "$etc" "$@"
