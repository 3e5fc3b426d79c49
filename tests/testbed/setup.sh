#!/bin/sh
# Installs what the testbed stands on, when something of it is missing, and says so. Needs Debian or
# a relative, and root.
set -eu
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

missing=
# need PACKAGE COMMAND-OR-FILE
need() {
  [ -e "$2" ] || command -v "$2" >/dev/null || missing="$missing $1"
}
need gcc cc
need libc6-dev /usr/include/stdio.h
need util-linux unshare
need procps sysctl
need iproute2 ip
need iptables iptables
need conntrack conntrack
need runc runc
need containernetworking-plugins /usr/lib/cni/bridge
need buildah buildah
need mmdebstrap mmdebstrap
need debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg

if [ "$(id -u)" != 0 ]; then
  echo "setup: the testbed makes namespaces, mounts and control groups: run it as root" >&2
  exit 1
fi
[ -n "$missing" ] || exit 0
echo "setup: installing the Debian packages that are missing here:$missing (about half a minute)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq ||
  echo "setup: not every package list could be refreshed; trying with those that are there"
# shellcheck disable=SC2086 # one word a package
apt-get install -qq -y --no-install-recommends $missing >/dev/null
