#!/bin/bash
# try.sh - builds the image by podman, runs the compose file and the pods of the StatefulSet, and tries what their first
# lines promise. Needs root, Debian and make build. What it starts is in namespaces of its own, what it writes in
# .build/containers; both are gone at the end. KEEP=1 keeps the images for the next run.
#
# It asks no registry of images: debian, haproxy and python, which the files name, are made of Debian's packages.
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
here=tools/containers
work=$PWD/.build/containers
step() { echo "== $*"; }
note() { echo "   $*"; }
fail() { trap - ERR; echo "FAIL: $*"; tail -40 "$work/log" 2>/dev/null; exit 1; }

# First: what Debian has, then this script again, twice, each time in more namespaces.
prepare() {
    [ "$(id -u)" -eq 0 ] || { echo "try.sh: needs root, for podman, mounts and network namespaces"; exit 2; }
    command -v apt-get >/dev/null || { echo "try.sh: needs Debian's apt-get"; exit 2; }
    mkdir -p "$work"
    trap cleanup EXIT
    : >"$work/log"
    local need=()
    for pair in podman:podman buildah:buildah crun:crun netavark:/usr/lib/podman/netavark aardvark-dns:/usr/lib/podman/aardvark-dns \
        catatonit:catatonit iptables:iptables debootstrap:debootstrap python3-venv:/usr/share/doc/python3-venv; do
        command -v "${pair#*:}" >/dev/null || [ -e "${pair#*:}" ] || need+=("${pair%%:*}")
    done
    if [ ${#need[@]} -gt 0 ]; then
        step "installing ${need[*]}"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${need[@]}" >>"$work/log" 2>&1 || fail "apt-get install ${need[*]}"
    fi
    tools/scripts/debian-root.sh .build/debian-root
    mkdir -p "$work/etc" "$work/tmp" "$work/networks"
    printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/storage"\nrunroot = "%s/run"\n' "$work" "$work" >"$work/etc/storage.conf"
    printf '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "crun"\n[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "%s/networks"\n' \
        "$work" >"$work/etc/containers.conf"
    export CONTAINERS_CONF=$work/etc/containers.conf CONTAINERS_STORAGE_CONF=$work/etc/storage.conf TMPDIR=$work/tmp
    TRY_PART=build unshare --mount "$PWD/$here/try.sh"
    TRY_PART=run unshare --mount --net --ipc --pid --fork --mount-proc --kill-child "$PWD/$here/try.sh"
}

cleanup() {
    find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} \; 2>/dev/null || true
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}

# private - hides what podman shares with others on this machine.
private() {
    local conf text
    conf=$(readlink -f /etc/resolv.conf)
    text=$(cat "$conf")
    mount -t tmpfs tmpfs /run
    mount -t tmpfs tmpfs /dev/shm
    [ -e "$conf" ] || { mkdir -p "$(dirname "$conf")" && echo "$text" >"$conf"; }
    # crun runs with version 1 or 2 of cgroups, not with both.
    if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
}

until_ok() { # SECONDS WHAT COMMAND...
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >>"$work/log" 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "$what"
        sleep 0.3
    done
}
quiet() { "$@" >>"$work/log" 2>&1; }
compose() { (cd "$work/site" && "$work/venv/bin/podman-compose" --podman-build-args=--network=host "$@" >>"$work/log" 2>&1 </dev/null); }

# sweep - removes all containers, volumes and networks, also those that an earlier run left.
sweep() {
    quiet podman rm -f -t 0 -a || true
    quiet podman pod rm -f -a || true
    quiet podman volume rm -f -a || true
    quiet podman network prune -f || true
}

build() {
    step "the images debian, haproxy and python, of Debian's packages"
    podman image exists debian:bookworm-slim ||
        tar -C .build/debian-root -c . | podman import -q --change 'CMD ["bash"]' - debian:bookworm-slim >>"$work/log" 2>&1
    mkdir -p "$work/context"
    cp /etc/ssl/certs/ca-certificates.crt "$work/context/" # pip trusts whom this machine trusts
    # made NAME - the image that the Containerfile at stdin makes
    made() { podman image exists "$1" || podman build -q --network=host -t "$1" -f - "$work/context" >>"$work/log" 2>&1 || fail "the image $1"; }
    made haproxy:2.8 <<'EOF'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends haproxy && rm -rf /var/lib/apt/lists/*
USER haproxy
CMD ["haproxy", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]
EOF
    # That of python has headers, no compiler, and a pip that installs where it is.
    made python:3.11-slim-bookworm <<'EOF'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libpython3.11-dev python3 python3-pip \
 && rm -rf /var/lib/apt/lists/* /usr/lib/python3*/EXTERNALLY-MANAGED
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
EOF

    step "the image of Containerfile"
    quiet podman build --format docker --network=host -f $here/Containerfile -t clustermaster . || fail "podman build"
    podman image inspect clustermaster | grep -q '"Healthcheck"' || fail "the image has no health check"

    step "podman-compose, the minion's image, and kubernetes.yaml against the schema of Kubernetes"
    if [ ! -x "$work/venv/bin/podman-compose" ]; then
        python3 -m venv "$work/venv"
        quiet "$work/venv/bin/pip" install -q podman-compose==1.6.0 kubernetes-validate==1.37.0 || fail "pip install"
    fi
    rm -rf "$work/site" && mkdir "$work/site"
    cp $here/{compose.yaml,haproxy.cfg,minion.Containerfile} "$work/site/"
    head -c 32 /dev/urandom | base64 >"$work/site/cluster_secret"
    if ! (ulimit -Hn 65536) 2>/dev/null; then
        note "compose.yaml without ulimits: this machine allows $(ulimit -Hn) open files and no more"
        sed -i '/ulimits:/d' "$work/site/compose.yaml"
    fi
    compose build minion || fail "podman-compose build"
    for version in 1.37 1.30; do
        quiet "$work/venv/bin/kubernetes-validate" --strict -k "$version" $here/kubernetes.yaml || fail "kubernetes.yaml is not what Kubernetes $version takes"
    done
}

# The cluster of the compose file.
master() { local n=$1; shift; timeout 60 podman exec "clustermaster_master${n}_1" "$@"; }
healthy() { quiet podman healthcheck run "clustermaster_master$1_1"; }
has_keys() { [ "$(master "$1" salt-key -l "$2" --out=json | python3 -c 'import json, sys; print(sum(map(len, json.load(sys.stdin).values())))')" -eq "$3" ]; }
good_pings() { python3 -c 'import json, sys; v = json.load(sys.stdin); sys.exit(not (len(v) == int(sys.argv[1]) and all(x is True for x in v.values())))' "$1"; }
answer() { master "$1" salt '*' test.ping -t 10 --static --out=json 2>>"$work/log" | good_pings 3; }
# Kills the program inside: podman kill would count as an order to stay down.
dies() { podman exec "$1" sh -c 'kill -KILL $(cat /run/salt/master.pid)'; }

try_compose() {
    step "compose: three masters, HAProxy and a minion"
    compose up -d || fail "podman-compose up"
    for n in 1 2 3; do until_ok 120 "master$n is not healthy" healthy $n; done
    until_ok 120 "no key of the minion" has_keys 1 un 1
    quiet master 1 salt-key -y -A
    compose up -d --scale minion=3 || fail "podman-compose up --scale minion=3"
    until_ok 120 "no keys of two more minions" has_keys 2 un 2
    quiet master 3 salt-key -y -A
    for n in 1 2 3; do until_ok 90 "three minions don't answer master$n" answer $n; done
    quiet master 1 clustermaster status || fail "clustermaster status: exit code $?"
    [ "$(master 1 stat -c %a-%U /etc/salt/master.d/50-container.conf)" = 600-salt ] || fail "the configuration is not private"

    step "compose: a master is killed, the minions answer the others"
    quiet podman kill clustermaster_master1_1
    healthy 1 && fail "the health check of a killed master is good"
    for n in 2 3; do until_ok 60 "three minions don't answer master$n" answer $n; done
    quiet podman start clustermaster_master1_1
    until_ok 120 "master1 is not healthy again" healthy 1
    until_ok 60 "three minions don't answer master1" answer 1

    step "compose: podman stop ends a master in order"
    local began=$SECONDS
    quiet podman stop -t 20 clustermaster_master2_1
    [ $((SECONDS - began)) -lt 20 ] || fail "it took longer than stop_grace_period"
    [ "$(podman inspect -f '{{.State.ExitCode}}' clustermaster_master2_1)" = 0 ] || fail "exit code $(podman inspect -f '{{.State.ExitCode}}' clustermaster_master2_1)"
    until_ok 60 "three minions don't answer master3" answer 3
    quiet podman start clustermaster_master2_1
    until_ok 120 "master2 is not healthy again" healthy 2

    step "compose: a program that dies is started again"
    dies clustermaster_master3_1
    until_ok 30 "it was not started again" bash -c '[ "$(podman inspect -f "{{.RestartCount}}" clustermaster_master3_1)" -ge 1 ]'
    until_ok 120 "master3 is not healthy again" healthy 3

    step "compose: all masters stop, are removed and made again; keys are still accepted"
    compose stop -t 20 master1 master2 master3 || fail "podman-compose stop"
    quiet podman rm clustermaster_master{1,2,3}_1
    compose up -d --scale minion=3 || fail "podman-compose up"
    for n in 1 2 3; do until_ok 120 "master$n is not healthy again" healthy $n; done
    has_keys 1 acc 3 || fail "accepted keys are gone"
    for n in 1 2 3; do until_ok 120 "three minions don't answer master$n" answer $n; done
    for n in 1 2 3; do podman logs "clustermaster_master${n}_1" >"$work/out$n" 2>&1; done
    grep -qF "$(cat "$work/site/cluster_secret")" "$work"/out? && fail "the secret is in the output"

    step "a wrong environment is refused in one line"
    local out
    out=$(podman run --rm --network=none -e CLUSTER_ID=try clustermaster 2>&1) && fail "started without CLUSTER_ADVERTISE"
    grep -c 'the master was not started' <<<"$out" | grep -qx 1 || fail "$out"
}

# The pods of the StatefulSet.
in_pod() { local n=$1; shift; timeout 60 podman exec "salt-$n-master" "$@"; }
start_pod() { # N ADDRESS
    python3 $here/pods.py pod "$1" "$work/volumes" "$work/secret" >"$work/salt-$1.yaml"
    quiet podman kube play --network "kube:alias=salt-$1.salt-peers.salt.svc" --ip "$2" "$work/salt-$1.yaml" || fail "podman kube play: pod salt-$1"
}
probe() { # N KIND
    local words
    mapfile -t words < <(python3 $here/pods.py probe "$2")
    quiet in_pod "$1" "${words[@]}"
}
not() { ! "$@"; }
pods_answer() { in_pod "$1" salt '*' test.ping -t 10 --static --out=json 2>>"$work/log" | good_pings 1; }

try_pods() {
    step "StatefulSet: three pods under podman kube play, with its probes"
    quiet podman network create --subnet 172.28.45.0/24 kube
    head -c 32 /dev/urandom | base64 | tr -d '\n' >"$work/secret" # as kubectl create secret keeps it
    for n in 0 1 2; do start_pod $n "172.28.45.$((11 + n))"; done
    for n in 0 1 2; do
        for kind in startup readiness liveness; do until_ok 120 "salt-$n: $kind" probe $n $kind; done
    done
    in_pod 1 salt-run cluster.members --out=json | python3 -c 'import json, sys; v = json.load(sys.stdin)["voters"]; assert v == ["salt-0", "salt-1", "salt-2"], v' || fail "voters"
    quiet in_pod 0 touch /etc/salt/x && fail "the root of the container can be written to"

    step "StatefulSet: HAProxy stands in for the service salt; a minion answers"
    quiet podman run -d --name haproxy --network kube --ip 172.28.45.10 -v "$PWD/$here/haproxy.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro" haproxy:2.8
    quiet podman run -d --name minion --network kube clustermaster_minion
    minion_key() { in_pod 0 salt-key -l un --out=json | grep -q '[0-9a-f]\{12\}'; }
    until_ok 120 "no key of the minion" minion_key
    quiet in_pod 2 salt-key -y -A
    for n in 0 1 2; do until_ok 90 "the minion doesn't answer salt-$n" pods_answer $n; done

    step "StatefulSet: a pod is deleted and comes back with its volumes and another address"
    local began=$SECONDS
    quiet podman pod stop -t 20 salt-1
    [ $((SECONDS - began)) -lt 20 ] || fail "it took longer than terminationGracePeriodSeconds"
    quiet podman pod rm -f salt-1
    until_ok 60 "the minion doesn't answer salt-0" pods_answer 0
    until_ok 30 "salt-0 is not ready" probe 0 readiness
    start_pod 1 172.28.45.22
    until_ok 120 "salt-1 is not ready again" probe 1 readiness
    in_pod 1 salt-run cluster.members --out=json | grep -q '"salt-1"' || fail "it is no longer a member"
    until_ok 60 "the minion doesn't answer salt-1" pods_answer 1

    step "StatefulSet: a program that dies is started again; one that hangs fails the liveness probe"
    dies salt-0-master
    until_ok 120 "salt-0 is not ready again" probe 0 readiness
    until_ok 120 "salt-0 does not live" probe 0 liveness
    in_pod 2 sh -c 'kill -STOP $(cat /run/salt/master.pid)'
    until_ok 60 "the liveness probe of a stopped process is good" not probe 2 liveness
    until_ok 60 "the minion doesn't answer salt-0" pods_answer 0
    in_pod 2 sh -c 'kill -CONT $(cat /run/salt/master.pid)'
    until_ok 60 "salt-2 does not live again" probe 2 liveness
    until_ok 60 "salt-2 is not ready again" probe 2 readiness
}

case ${TRY_PART:-} in
build)
    trap 'fail "line $LINENO: $BASH_COMMAND"' ERR
    private
    build
    ;;
run)
    trap 'fail "line $LINENO: $BASH_COMMAND"' ERR
    private
    ip link set lo up
    sweep
    rm -rf "$work"/networks/* "$work/volumes"
    try_compose
    sweep
    try_pods
    echo "containers: the image, the compose file and the pods of the StatefulSet work"
    ;;
*) prepare ;;
esac
