#!/bin/sh
# Makes all of a release in dist/: manifests, roles, alerts, chart, programs and image for this architecture, a bill of
# materials, and the checksums of these. Two runs on one commit make the same files, but for the image.
set -eu
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
architecture=$(uname -m)
rm -rf dist
mkdir dist

# Names, times and owners of this machine are nobody's business.
pack() {
	archive=$1
	shift
	tar --create --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner "$@" |
		gzip --no-name > "dist/$archive"
}

cp crds/crds.json deploy/operator.yaml config/rbac/roles.yaml dist/
cp deploy/monitoring/alerts.yaml deploy/monitoring/dashboard.json dist/
pack "valkey-operator-chart-$version.tgz" --dereference --directory deploy --transform 's,^chart,valkey-operator,' chart

cargo build --profile dist --bins
pack "valkey-operator-$version-linux-$architecture.tar.gz" --directory target/dist valkey-operator
pack "kubectl-valkey-$version-linux-$architecture.tar.gz" --directory target/dist kubectl-valkey \
	--directory ../../deploy kubectl_complete-valkey
# `make image` names it by its content; a release has the name that is in its manifest.
made=$(cargo run --quiet --example testbed -- operator-image target/dist/valkey-operator)
store=$(mktemp -d)
export STORAGE_DRIVER=vfs
in_store() { buildah --root "$store/root" --runroot "$store/run" "$@"; }
image=$(in_store pull --quiet "docker-archive:${made#* }")
in_store push --quiet "$image" \
	"docker-archive:dist/valkey-operator-image-$version-linux-$architecture.tar:valkey-operator:$version"
rm -rf "$store"

cargo cyclonedx --version > /dev/null 2>&1 || cargo install --locked cargo-cyclonedx
cargo cyclonedx --format json --override-filename "valkey-operator-$version.cdx"
mv "valkey-operator-$version.cdx.json" dist/

cd dist
sha256sum ./* > SHA256SUMS
cat SHA256SUMS
