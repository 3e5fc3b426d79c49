#!/bin/bash
# Starts a program of the testbed in the background, below a control group of its own.
#
#   launch.sh CGROUP PID-FILE LOG COMMAND...
set -eu
cgroup=$1 pid_file=$2 log=$3
shift 3

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  hierarchies=/sys/fs/cgroup
else
  hierarchies=$(ls -d /sys/fs/cgroup/*)
fi
for hierarchy in $hierarchies; do
  path=$hierarchy
  for part in ${cgroup//\// }; do
    parent=$path
    path=$path/$part
    [ ! -d "$path" ] || continue
    mkdir "$path"
    # A version 1 cpuset accepts no process before it has processors and memory.
    for inherited in cpuset.cpus cpuset.mems; do
      [ -e "$hierarchy/cgroup.controllers" ] || [ ! -e "$path/$inherited" ] ||
        cat "$parent/$inherited" >"$path/$inherited"
    done
  done
  echo $$ >"$path/cgroup.procs"
done

setsid "$@" >>"$log" 2>&1 </dev/null &
echo $! >"$pid_file"
