//! The container images a testbed runs, made here from Debian packages, Go sources and the
//! operator's own Dockerfile.
//! Never pulls an image from a registry.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use super::binaries;
use super::cache;
use super::cache::Ingredients;
use super::command::command;
use super::command::finish;
use super::command::make_directory;
use super::command::remove;
use super::command::run;
use super::command::say;
use super::command::write;
use super::error::Error;

pub(crate) const PAUSE: &str = "registry.local/pause:1";
pub(crate) const VALKEY: &str = "docker.io/valkey/valkey:9.1.2";
/// The same, in which each process has a wall clock of its own: see `clock.c`.
pub(crate) const VALKEY_WITH_CLOCK: &str = "docker.io/valkey/valkey:9.1.2-clock";
/// By so many seconds that clock is moved.
pub(crate) const CLOCK_FILE: &str = "/var/lib/valkey/clock";
const OPERATOR: &str = "docker.io/library/valkey-operator";

/// The base of the operator's Dockerfile; what is made here under its name is a stand-in.
const DISTROLESS: &str = "gcr.io/distroless/cc-debian12:nonroot";

/// Beside the server and its client a shell and what one looks around with.
const VALKEY_PACKAGES: &str = "valkey-server,valkey-tools,dash,coreutils,grep,sed,procps";

/// What a server does not open at run time; it is two thirds of the packages.
const NOT_NEEDED: &[&str] = &[
    "usr/share",
    "usr/lib/systemd",
    "usr/lib/udev",
    "usr/include",
    "usr/sbin",
    "usr/bin/perl*",
    "usr/lib/*/perl*",
    "usr/lib/*/gconv",
    "usr/lib/*/systemd",
    "var/lib/apt",
    "var/cache",
];

/// The image that holds the namespaces of each pod.
pub(crate) fn pause() -> Result<PathBuf, Error> {
    let program = binaries::program("pause")?;
    let ingredients = Ingredients::default().text(PAUSE).file(&program)?;
    archive("image-pause", ingredients, |place| {
        fs::copy(&program, place.join("pause")).map_err(|source| Error::File {
            doing: "copy",
            path: program.clone(),
            source,
        })?;
        write(
            &place.join("Dockerfile"),
            "FROM scratch\nCOPY pause /pause\nENTRYPOINT [\"/pause\"]\n",
        )?;
        build(place, &place.join("Dockerfile"), place, PAUSE)
    })
}

const VALKEY_DOCKERFILE: &str = "FROM scratch\nCOPY . /\nUSER 999:999\nWORKDIR /var/lib/valkey\n\
    ENV PATH=/usr/bin\nEXPOSE 6379\nCMD [\"valkey-server\"]\n";

/// Valkey 9.1.2 from the packages of Debian's next release.
pub(crate) fn valkey() -> Result<PathBuf, Error> {
    let root = valkey_root()?;
    let ingredients = Ingredients::default()
        .text(VALKEY)
        .text(VALKEY_DOCKERFILE)
        .text(&root.to_string_lossy());
    archive("image-valkey", ingredients, |place| {
        write(&place.join("Dockerfile"), VALKEY_DOCKERFILE)?;
        build(place, &place.join("Dockerfile"), &root.join("root"), VALKEY)
    })
}

/// The same with a clock that a test can move. No namespace has a wall clock of its own, and libfaketime asks for memory
/// where Valkey's allocator asks for the time.
pub(crate) fn valkey_with_clock() -> Result<PathBuf, Error> {
    let root = valkey_root()?;
    let source = include_str!("clock.c");
    let dockerfile = format!("{VALKEY_DOCKERFILE}ENV LD_PRELOAD=/usr/lib/clock.so\n");
    let ingredients = Ingredients::default()
        .text(VALKEY_WITH_CLOCK)
        .text(CLOCK_FILE)
        .text(source)
        .text(&dockerfile)
        .text(&root.to_string_lossy());
    archive("image-valkey-clock", ingredients, |place| {
        let context = place.join("context");
        run([
            "cp".as_ref(),
            "-a".as_ref(),
            root.join("root").as_os_str(),
            context.as_os_str(),
        ])?;
        write(&place.join("clock.c"), source)?;
        let file = format!("-DCLOCK_FILE=\"{CLOCK_FILE}\"");
        run([
            "cc".as_ref(),
            "-O2".as_ref(),
            "-shared".as_ref(),
            "-fPIC".as_ref(),
            file.as_ref(),
            "-o".as_ref(),
            context.join("usr/lib/clock.so").as_os_str(),
            place.join("clock.c").as_os_str(),
        ])?;
        write(&place.join("Dockerfile"), dockerfile)?;
        build(
            place,
            &place.join("Dockerfile"),
            &context,
            VALKEY_WITH_CLOCK,
        )
    })
}

/// A directory with `valkey-server`, `valkey-cli` and `valkey-benchmark` of that image, to be run
/// on the machine itself, without container or namespaces. Each is a wrapper which starts the
/// program by the dynamic linker of the image, since the C library here may be older; the wrapper
/// replaces itself, so signals and the process id are the program's own. Only its process name is
/// that of the linker.
pub(crate) fn valkey_programs() -> Result<PathBuf, Error> {
    Ok(valkey_root()?.join("bin"))
}

/// A cached directory with the Valkey root file system in `root` and wrappers for the machine
/// itself in `bin`.
fn valkey_root() -> Result<PathBuf, Error> {
    let ingredients = Ingredients::default()
        .text("forky 9.1.2")
        .text(VALKEY_PACKAGES)
        .text(&NOT_NEEDED.join(" "))
        .text(std::env::consts::ARCH);
    cache::kept("valkey", ingredients, |place| {
        say("making the Valkey 9.1.2 file system from Debian packages (once, about a minute)");
        let root = place.join("root");
        debian("forky", VALKEY_PACKAGES, &root)?;
        let trim = NOT_NEEDED.join(" ");
        finish(command(["sh", "-c", &format!("rm -rf {trim}")]).current_dir(&root))?;
        let accounts =
            "root:x:0:0:root:/root:/bin/sh\nvalkey:x:999:999:valkey:/var/lib/valkey:/bin/sh\n";
        write(&root.join("etc/passwd"), accounts)?;
        write(&root.join("etc/group"), "root:x:0:\nvalkey:x:999:\n")?;
        for directory in [
            "tmp",
            "var/lib/valkey",
            "etc/valkey",
            "root",
            "proc",
            "sys",
            "dev",
            "run",
        ] {
            make_directory(&root.join(directory))?;
        }
        make_directory(&place.join("bin"))?;
        for program in ["valkey-server", "valkey-cli", "valkey-benchmark"] {
            wrapper(place, program)?;
        }
        let version = run([
            place.join("bin/valkey-server").as_os_str(),
            "--version".as_ref(),
        ])?;
        if version.contains("v=9.1.2") {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "Debian's valkey-server is no longer 9.1.2 but {version:?}"
        )))
    })
}

/// An image and the name it goes by.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) archive: PathBuf,
}

/// The image of the operator, by the project's own Dockerfile on a stand-in of its base. Every
/// binary has a tag of its own, so that applying a newer one is an update.
pub(crate) fn operator(binary: &Path) -> Result<Named, Error> {
    let dockerfile = Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile");
    let ingredients = Ingredients::default().file(&dockerfile)?.file(binary)?;
    let name = format!("{OPERATOR}:dev-{}", ingredients.clone().key());
    let base = distroless()?;
    let archive = archive("image-operator", ingredients, |place| {
        say("making the operator's image");
        let context = place.join("context");
        let architecture = architecture()?;
        make_directory(&context.join(&architecture))?;
        let copy = context.join(&architecture).join("valkey-operator");
        fs::copy(binary, &copy).map_err(|source| Error::File {
            doing: "copy",
            path: copy,
            source,
        })?;
        let base_archive = format!("docker-archive:{}", base.display());
        finish(buildah(place).args(["pull", "--quiet"]).arg(base_archive))?;
        build(place, &dockerfile, &context, &name)
    })?;
    Ok(Named { name, archive })
}

pub(crate) fn distroless() -> Result<PathBuf, Error> {
    let packages = "libc6,libgcc-s1,ca-certificates,tzdata,base-files";
    let dockerfile = "FROM scratch\nCOPY root /\nUSER 65532\n";
    let ingredients = Ingredients::default().text(packages).text(dockerfile);
    archive("image-distroless", ingredients, |place| {
        say("making a stand-in for the distroless base image (once, about 20 seconds)");
        let root = place.join("root");
        debian("bookworm", packages, &root)?;
        let accounts = "root:x:0:0:root:/root:/sbin/nologin\n\
                        nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n";
        write(&root.join("etc/passwd"), accounts)?;
        write(&root.join("etc/group"), "root:x:0:\nnonroot:x:65532:\n")?;
        make_directory(&root.join("tmp"))?;
        write(&place.join("Dockerfile"), dockerfile)?;
        build(place, &place.join("Dockerfile"), place, DISTROLESS)
    })
}

/// The file system of some packages with all that they depend on, unpacked but not configured.
fn debian(suite: &str, packages: &str, root: &Path) -> Result<(), Error> {
    make_directory(root)?;
    // The packages ship into /usr; base-files, which would make these links, is not always among
    // them.
    for name in ["bin", "sbin", "lib", "lib64"] {
        make_directory(&root.join("usr").join(name))?;
        symlink(format!("usr/{name}"), root.join(name)).map_err(|source| Error::File {
            doing: "link",
            path: root.join(name),
            source,
        })?;
    }
    let tar = root.with_extension("tar");
    run([
        "mmdebstrap",
        "--quiet",
        "--variant=extract",
        // A mirror may lag behind for longer than its lists are valid.
        "--aptopt=Acquire::Check-Valid-Until \"false\"",
        &format!("--include={packages}"),
        suite,
        &tar.to_string_lossy(),
    ])?;
    // Entries of older packages go through the links into /usr.
    run([
        "tar",
        "--extract",
        "--keep-directory-symlink",
        "--exclude=./dev/*",
        "--file",
        &tar.to_string_lossy(),
        "--directory",
        &root.to_string_lossy(),
    ])?;
    remove(&tar)
}

fn wrapper(place: &Path, program: &str) -> Result<(), Error> {
    let path = place.join("bin").join(program);
    // The place is renamed when it is complete, so the wrapper finds the root beside itself.
    write(
        &path,
        format!(
            "#!/bin/sh\n\
             root=$(dirname \"$(dirname \"$(readlink -f \"$0\")\")\")/root\n\
             libraries=$(echo \"$root\"/usr/lib/*-linux-gnu)\n\
             linker=$(echo \"$root\"/usr/lib*/ld-linux-*.so.*)\n\
             [ -e \"$linker\" ] || linker=$(echo \"$libraries\"/ld-linux-*.so.*)\n\
             exec \"$linker\" --argv0 {program} --library-path \"$libraries\" \\\n  \
             \"$root/usr/bin/{program}\" \"$@\"\n"
        ),
    )?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(|source| Error::File {
        doing: "make executable",
        path,
        source,
    })
}

/// A cached `image.tar`, for which `make` leaves an image in the given place's own store.
fn archive(
    name: &str,
    ingredients: Ingredients,
    make: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    let place = cache::kept(name, ingredients, |place| {
        make(place)?;
        // The archive is all that is wanted of it.
        for left in ["storage", "run", "root", "context"] {
            remove(&place.join(left))?;
        }
        Ok(())
    })?;
    Ok(place.join("image.tar"))
}

fn build(place: &Path, dockerfile: &Path, context: &Path, name: &str) -> Result<(), Error> {
    let mut build = buildah(place);
    build.args([
        "build",
        "--quiet",
        "--layers=false",
        "--pull-never",
        "--platform",
    ]);
    build.arg(format!("linux/{}", architecture()?));
    build
        .args(["--timestamp", "0", "--tag", name, "--file"])
        .arg(dockerfile)
        .arg(context);
    finish(&mut build)?;
    let archive = format!(
        "docker-archive:{}:{name}",
        place.join("image.tar").display()
    );
    finish(buildah(place).args(["push", "--quiet", name, &archive]))?;
    Ok(())
}

/// With a store of its own that goes when the archive is written.
fn buildah(place: &Path) -> Command {
    let mut buildah = command(["buildah"]);
    buildah
        .env("BUILDAH_ISOLATION", "chroot")
        .env("STORAGE_DRIVER", "vfs");
    buildah.arg("--root").arg(place.join("storage"));
    buildah.arg("--runroot").arg(place.join("run"));
    buildah
}

/// As images and Debian call it: amd64, arm64.
fn architecture() -> Result<String, Error> {
    Ok(run(["dpkg", "--print-architecture"])?.trim().to_owned())
}
