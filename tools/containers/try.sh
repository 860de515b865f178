#!/bin/bash
# try.sh - what can be tried of the image without a container runtime: carries out the steps of Containerfile in a Debian
# root below .build, starts three masters from it by tini and the entry point as user 450, each on an overlay of its own,
# asks the probes of kubernetes.yaml, stops one and starts it again. Needs root, debootstrap and Linux; make build first.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" -eq 0 ] || { echo "try.sh: needs root, for debootstrap, mounts and chroot"; exit 2; }
command -v debootstrap >/dev/null || apt-get install -y -q --no-install-recommends debootstrap >/dev/null
base=$PWD/.build/debian-root
[ -f "$base.done" ] || { rm -rf "$base"; mkdir -p .build; debootstrap --variant=minbase bookworm "$base" >.build/debootstrap.log; touch "$base.done"; }
work=$(mktemp -d)
pids=()
cleanup() {
    exec 2>/dev/null # the shell tells of each process that it kills
    for pid in "${pids[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || true; done
    for m in $(awk -v w="$work" 'index($2, w) == 1 {print $2}' /proc/mounts | sort -r); do umount -l "$m"; done
    rm -rf "$work"
}
trap cleanup EXIT
step() { echo "== $*"; }
fail() { echo "FAIL: $*"; for n in 1 2 3; do echo "-- master$n"; tail -5 "$work/out$n" 2>/dev/null; done; exit 1; }
overlay() { # NAME LOWER
    mkdir -p "$work/$1" "$work/$1.upper" "$work/$1.work"
    mount -t overlay overlay -o "lowerdir=$2,upperdir=$work/$1.upper,workdir=$work/$1.work" "$work/$1"
}
mount -t tmpfs tmpfs "$work"

step "the steps of Containerfile"
overlay image "$base"
image=$work/image
cp /etc/resolv.conf "$image/etc/resolv.conf"
# The steps in their order: RUN as it is, COPY by install; PROGRAM is the default of ARG.
python3 - "$PWD" "$image" <<'PY'
import re, subprocess, sys
repo, image = sys.argv[1:]
text = open(repo + "/tools/containers/Containerfile").read().replace("\\\n", " ")
args = {}
for line in text.splitlines():
    word, _, rest = line.partition(" ")
    if word == "ARG":
        name, _, value = rest.partition("=")
        args[name] = value
    elif word == "RUN":
        subprocess.run(["chroot", image, "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                        "DEBIAN_FRONTEND=noninteractive", "/bin/sh", "-c", rest], check=True, stdout=subprocess.DEVNULL)
    elif word == "COPY":
        mode, source, to = rest.split()
        source = re.sub(r"\$\{(\w+)\}", lambda m: args[m[1]], source)
        subprocess.run(["install", "-m", mode.split("=")[1], repo + "/" + source, image + to], check=True)
PY
umount "$image"
lower=$work/image.upper:$base

step "three masters"
secret=$(head -c 32 /dev/urandom | base64)
for n in 1 2 3; do
    overlay "m$n" "$lower"
    root=$work/m$n
    mkdir -p "$root/run/secrets"
    echo "$secret" >"$root/run/secrets/cluster_secret"
    chown 450:450 "$root/run/secrets/cluster_secret"; chmod 400 "$root/run/secrets/cluster_secret"
    install -d -o 450 -g 450 "$root/run/salt"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
done
as() { # N COMMAND... in the root of master N, as the image's user
    local n=$1; shift
    chroot --userspec=450:450 --groups=450 "$work/m$n" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/var/cache/salt "$@"
}
peers=127.45.7.1,127.45.7.2,127.45.7.3
run() { # N
    setsid chroot --userspec=450:450 --groups=450 "$work/m$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        MASTER_ID="salt-$(($1 - 1))" LISTEN="127.45.7.$1" CLUSTER_ID=try CLUSTER_ADVERTISE="127.45.7.$1" CLUSTER_PEERS=$peers \
        /usr/bin/tini -s -- /usr/bin/clustermaster-entrypoint >>"$work/out$1" 2>&1 &
    pids[$1]=$!
}
# probe N KIND - runs the command of a probe of kubernetes.yaml
probe() {
    local command
    mapfile -t command < <(python3 - "$2" <<'PY'
import re, sys
line = re.search(sys.argv[1] + r"Probe:\s*\n\s*exec: \{command: \[(.*)\]\}", open("tools/containers/kubernetes.yaml").read())[1]
print(*[a or b for a, b in re.findall(r"'([^']*)'|([^, ]+)", line)], sep="\n")
PY
    )
    as "$1" "${command[@]}" >/dev/null 2>&1
}
until_ok() { # SECONDS WHAT COMMAND...
    local end=$(($(date +%s) + $1)) what=$2
    shift 2
    until "$@"; do
        [ "$(date +%s)" -lt "$end" ] || fail "$what"
        sleep 0.2
    done
}
for n in 1 2 3; do run $n; done
for n in 1 2 3; do
    for kind in startup readiness liveness; do until_ok 90 "master$n: $kind" probe $n $kind; done
done
as 2 salt-run cluster.members --out=json | python3 -c 'import json, sys; v = json.load(sys.stdin)["voters"]; assert v == ["salt-0", "salt-1", "salt-2"], v' || fail "voters"
as 1 clustermaster status >/dev/null || fail "clustermaster status: exit code $?"
[ "$(stat -c %a "$work/m1/etc/salt/master.d/50-container.conf")" = 600 ] || fail "the configuration is not private"
grep -rqF "$secret" "$work"/out* && fail "the secret is in the output"

step "one stops in order and comes back with its data"
began=$(date +%s)
kill -TERM "${pids[3]}"
wait "${pids[3]}" || fail "exit code $? after SIGTERM"
[ $(($(date +%s) - began)) -le 20 ] || fail "it took longer than terminationGracePeriodSeconds"
probe 3 readiness && fail "the probe of a stopped master is good"
until_ok 20 "the others stay ready" probe 1 readiness
run 3
until_ok 60 "it is ready again" probe 3 readiness
as 3 salt-run cluster.members --out=json | grep -q '"salt-2"' || fail "it is no longer a member"

step "a wrong environment is refused in one line"
out=$(chroot --userspec=450:450 "$work/m3" /usr/bin/env -i PATH=/usr/bin:/bin CLUSTER_ID=try /usr/bin/clustermaster-entrypoint 2>&1) && fail "started without CLUSTER_ADVERTISE"
[ "$(wc -l <<<"$out")" -eq 1 ] || fail "$out"
echo "all is well"
