#!/bin/bash
# Holds one testbed and, when it ends for whatever reason, removes what its end left behind.
#
#   hold.sh DIRECTORY CGROUP
#
# Standard input is the lifeline: the first process of the testbed ends when it is closed, and with
# that process everything in its namespaces. A word on it ("stay") cuts the lifeline loose, so that
# the testbed outlives the program.
set -u
directory=$1 cgroup=$2
# The owner may be interrupted from the terminal; tidying up must not be.
trap '' INT TERM HUP

hierarchies() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    echo /sys/fs/cgroup
  else
    ls -d /sys/fs/cgroup/*/
  fi
}

# Everything is accounted below one cgroup in each hierarchy, so that what is left is known by its
# place.
for hierarchy in $(hierarchies); do
  mkdir -p "$hierarchy/$cgroup/init"
  # A version 1 cpuset accepts no process before it has processors and memory.
  for inherited in cpuset.cpus cpuset.mems; do
    for child in "$cgroup" "$cgroup/init"; do
      [ -e "$hierarchy/cgroup.controllers" ] || [ ! -e "$hierarchy/$inherited" ] ||
        cat "$hierarchy/$inherited" >"$hierarchy/$child/$inherited"
    done
  done
done

(
  for hierarchy in $(hierarchies); do echo "$BASHPID" >"$hierarchy/$cgroup/cgroup.procs"; done
  exec unshare --net --mount --pid --cgroup --fork --kill-child \
    bash "$directory/inside.sh" "$directory"
)

for hierarchy in $(hierarchies); do
  [ ! -d "$hierarchy/$cgroup" ] || find "$hierarchy/$cgroup" -depth -type d -exec rmdir {} +
done
rm -rf "$directory"
rmdir --ignore-fail-on-non-empty "$(dirname "$directory")"
