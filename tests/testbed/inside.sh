#!/bin/bash
# The first process of a testbed: makes the namespaces a small machine of their own, then waits for
# the lifeline.
#
#   inside.sh DIRECTORY
set -eu
directory=$1
# /proc is still the one of the machine outside, so this is the number by which the outside knows
# this process.
read -r outside_pid _ </proc/self/stat
mount -t proc proc /proc

# A control group tree whose root is this testbed's own. The machine's must go first: the kernel
# refuses to mount a hierarchy over itself, and the programs inside would find both.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  umount --recursive /sys/fs/cgroup
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  echo 1 >/sys/fs/cgroup/init/cgroup.procs
  for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
  done
else
  hierarchies=$(ls /sys/fs/cgroup)
  umount --recursive /sys/fs/cgroup
  mount -t tmpfs tmpfs /sys/fs/cgroup
  for hierarchy in $hierarchies; do
    point=/sys/fs/cgroup/$hierarchy
    mkdir "$point"
    case $hierarchy in
      unified) mount -t cgroup2 cgroup2 "$point" ;;
      systemd) mount -t cgroup -o none,name=systemd cgroup "$point" ;;
      *) mount -t cgroup -o "$hierarchy" cgroup "$point" ;;
    esac
    echo 1 >"$point/init/cgroup.procs"
  done
fi

# Names are answered by the testbed's own DNS, also where /etc/resolv.conf is a link into /run.
resolver=$(readlink -m /etc/resolv.conf)
mkdir -p "$directory/var-lib" "$directory/var-log"
mount --bind /var/lib "$directory/var-lib"

# The programs insist on some places under /run, /var/lib and /var/log; the machine's own must not
# see them.
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock /run/var-lib/kubelet "$(dirname "$resolver")"
for entry in "$directory"/var-lib/*; do
  [ -e "/run/var-lib/$(basename "$entry")" ] || ln -s "$entry" "/run/var-lib/$(basename "$entry")"
done
mount --bind /run/var-lib /var/lib
mount --bind "$directory/var-log" /var/log
touch "$resolver" "$directory/resolv.conf"
mount --bind "$directory/resolv.conf" "$resolver"

ip link set lo up
sysctl -qw net.ipv4.ip_forward=1

echo "$outside_pid" >"$directory/pid.new"
mv "$directory/pid.new" "$directory/pid"

# bash reaps whatever is orphaned here, also while it waits for a line or for the sleep.
if read -r word && [ "$word" = stay ]; then
  exec </dev/null
  while :; do
    sleep infinity &
    wait $! || true
  done
fi
