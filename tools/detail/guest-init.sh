#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# shellcheck shell=dash
# The first program in the guest of tools/softrdma, in its initramfs: loads the modules, mounts the host's root file
# system read-only under a writable overlay, and goes on in there with guest-main.sh.

/bin/busybox mkdir -p /proc /sys /dev /host /overlay /root
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

give_up() {
    echo "softrdma: $*" >/dev/console
    sync
    echo 1 >/proc/sys/kernel/sysrq
    echo o >/proc/sysrq-trigger
    sleep 30
}

for module in /softrdma/modules/*.ko; do
    insmod "$module" || echo "softrdma: cannot load ${module##*/}" >/dev/console
done

mount -t tmpfs -o mode=755 tmpfs /overlay || give_up "no tmpfs"
mkdir /overlay/upper /overlay/work
chmod 755 /overlay/upper
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=mmap,msize=512000 host /host || give_up "cannot mount the host's files"
mount -t overlay -o lowerdir=/host,upperdir=/overlay/upper,workdir=/overlay/work overlay /root ||
    give_up "cannot lay an overlay on the host's files"

# The host's own /run holds the sockets of programs that do not run here.
mkdir -p /root/run /root/proc /root/sys /root/dev
mount -t tmpfs -o mode=755 tmpfs /root/run
mkdir /root/run/lock
cp -a /softrdma /root/run/softrdma
rm -rf /root/run/softrdma/modules
mkdir /root/run/softrdma/bin
cp /bin/busybox /root/run/softrdma/bin/busybox
for name in /proc /sys /dev; do mount --move "$name" "/root$name"; done

exec switch_root /root /run/softrdma/bin/busybox sh /run/softrdma/main
