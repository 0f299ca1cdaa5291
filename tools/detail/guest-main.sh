#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2034,SC2046,SC2086,SC2231,SC3045
# The second program in the guest of tools/softrdma, on the host's root file system: makes the network and the RDMA
# devices, runs the command, reports its exit code. It is process 1; its shell is the busybox of the initramfs.
#
# It speaks to the host on three virtio ports: control (one word a line: see tell), and the command's two outputs.

dir=/run/softrdma
PATH=$dir/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
"$dir/bin/busybox" --install -s "$dir/bin"
# ip, rdma and bash are the host's, by their full names, since this shell prefers its own applets.
devices='' kernel='' timeout='' terminal='' single='' ip='' rdma='' bash=''
# shellcheck source=/dev/null
. "$dir/config"

exec </dev/null >/dev/console 2>&1

port() {    # the device of the virtio port with this name
    for entry in /sys/class/virtio-ports/*; do
        [ "$(cat "$entry/name" 2>/dev/null)" = "softrdma.$1" ] && echo "/dev/${entry##*/}" && return
    done
    return 1
}

tell() { echo "$*" >&3; }

power_off() {
    sync
    echo 1 >/proc/sys/kernel/sysrq
    echo o >/proc/sysrq-trigger
    sleep 60
}

give_up() {
    echo "softrdma: $*"
    tell "failed $*"
    power_off
}

for attempt in 1 2 3 4 5 6 7 8 9 10; do
    control=$(port control) && break
    sleep 0.2
done
exec 3>"$control" || power_off

mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ln -sf /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
hostname softrdma
ulimit -l unlimited
# The sanitizers of older compilers cannot live with more random bits than this.
[ "$(cat /proc/sys/vm/mmap_rnd_bits)" -gt 28 ] && echo 28 >/proc/sys/vm/mmap_rnd_bits

# So that a plain modprobe works.
if mkdir -p "/lib/modules/$(uname -r)"; then
    mount --bind "$kernel/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
fi

while IFS= read -r shared && IFS= read -r tag; do
    mkdir -p "$shared"
    mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=512000 "$tag" "$shared" ||
        give_up "cannot mount the shared folder $shared"
done <"$dir/shares"

# Two addresses of each family on each device: the two ends of a connection.
network() {    # DEVICE SUBNET MTU
    cat <<END
link add $1 type dummy
link set $1 mtu $3 up
addr add 10.77.$2.1/24 dev $1
addr add 10.77.$2.2/24 dev $1
addr add fd77:$2::1/64 dev $1 nodad
addr add fd77:$2::2/64 dev $1 nodad
addr add fe80::77:$2/64 dev $1 nodad
END
}
multicast_on=
{
    echo link set lo up
    for device in $devices; do
        case $device in
        rxe) network d0 1 4300; : "${multicast_on:=d0}" ;;     # 4300: room for RoCE's largest MTU, 4096
        siw) network d1 2 1500; : "${multicast_on:=d1}" ;;
        esac
    done
    echo "route add 224.0.0.0/4 dev $multicast_on"
} >"$dir/network"
"$ip" -batch "$dir/network" || give_up "cannot make the guest's network"

for device in $devices; do
    case $device in
    rxe) name=rxe0 on=d0 ;;
    siw) name=siw0 on=d1 ;;
    esac
    "$rdma" link add "$name" type "$device" netdev "$on" || give_up "cannot make the RDMA device $name (see the lines before)"
done

# Usable at once: the port is active, and the last address has its GID.
for device in $devices; do
    ports=/sys/class/infiniband/${device}0/ports/1
    for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        read -r state <$ports/state
        case $state in
        *ACTIVE*) [ $device = siw ] || grep -q 'fe80:.*0077:0001' $ports/gids/* 2>/dev/null && break ;;
        esac
        sleep 0.1
    done
done

for name in rdma_cm uverbs0; do
    [ -e /dev/infiniband/$name ] || give_up "/dev/infiniband/$name is missing"
done

set -- $(cat "$dir/size")
if [ "$terminal" = 1 ]; then
    out=/dev/hvc0
    exec 4<>$out    # kept open: its settings last until the last close
    stty -F $out raw -echo rows "${1:-24}" cols "${2:-80}"
    (exec setsid "$bash" "$dir/command" >$out 2>&1 3>&- 4>&-) &
    child=$!
    errors=$out
else
    # A virtio port can be opened once only, so that "> /dev/stderr" would fail on it: the command gets pipes.
    mkfifo "$dir/out.pipe" "$dir/err.pipe"
    cat "$dir/out.pipe" >"$(port out)" 3>&- &
    copiers=$!
    errors=$dir/out.pipe
    if [ "$single" != 1 ]; then
        cat "$dir/err.pipe" >"$(port err)" 3>&- &
        copiers="$copiers $!"
        errors=$dir/err.pipe
    fi
    if [ "$single" = 1 ]; then
        (exec setsid "$bash" "$dir/command" >"$dir/out.pipe" 2>&1 3>&-) &
    else
        (exec setsid "$bash" "$dir/command" >"$dir/out.pipe" 2>"$dir/err.pipe" 3>&-) &
    fi
    child=$!
fi
tell started

others() {    # every process but kernel threads and our own
    for entry in /proc/[0-9]*; do
        pid=${entry#/proc/}
        line=
        IFS= read -r line <"$entry/cmdline"
        [ -n "$line" ] || continue
        case " 1 $copiers " in *" $pid "*) continue ;; esac
        echo "$pid"
    done 2>/dev/null
}

stacks() {
    echo "softrdma: the command ran into its time limit. What its processes wait for in the guest's kernel:"
    for pid in $(others); do
        command=$(tr '\0' ' ' <"/proc/$pid/cmdline")
        case $command in
        "$dir"/* | "sleep $timeout " | '') continue ;;
        esac
        echo "-- process $pid: $command"
        for task in /proc/$pid/task/*; do
            [ -e "$task/stack" ] || continue
            echo "   thread ${task##*/} $(cat "$task/comm"), $(sed -n 's/^State:[[:space:]]*//p' "$task/status")"
            sed 's/^\[<0>\]/       /' "$task/stack" | head -n 12
        done
    done 2>/dev/null | head -n 200
}

watchdog=
if [ "$timeout" != 0 ]; then
    (
        sleep "$timeout"
        stacks >"$errors"
        sleep 0.3
        tell timeout
    ) &
    watchdog=$!
fi

wait $child
code=$?
[ -z "$watchdog" ] || kill -9 $watchdog

# What the command left behind must not keep its output, or a shared folder, open.
for pid in $(others); do kill -9 "$pid" 2>/dev/null; done
if [ -n "$copiers" ]; then
    (sleep 3; kill $copiers 2>/dev/null) &
    wait $copiers
fi
[ "$terminal" != 1 ] || stty -F $out raw -echo    # setting it waits until all is written
cd /
while IFS= read -r shared && IFS= read -r tag; do umount "$shared"; done <"$dir/shares"
sync
tell "exit $code"
power_off
