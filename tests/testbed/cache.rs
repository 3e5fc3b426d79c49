//! Keeps what takes long to make, by what it is made from, so that a second start makes nothing.
//! Never lives below `target/`, never keeps what was made half.

use std::env;
use std::fs;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::path::PathBuf;

use sha2::Digest as _;
use sha2::Sha256;

use super::command::make_directory;
use super::command::remove;
use super::command::rename;
use super::error::Error;

/// `${XDG_CACHE_HOME:-$HOME/.cache}/valkey-operator-testbed`.
pub(crate) fn root() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    let caches = env::var_os("XDG_CACHE_HOME")
        .filter(|path| !path.is_empty())
        .map_or_else(|| home().join(".cache"), PathBuf::from);
    caches.join("valkey-operator-testbed")
}

/// What something is made from; the same ingredients give the same key.
#[derive(Clone, Default)]
pub(crate) struct Ingredients(Sha256);

impl Ingredients {
    #[must_use]
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    pub(crate) fn file(mut self, path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::File {
            doing: "read",
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        self.0.update(size.to_le_bytes());
        let mut chunk = vec![0; 1 << 20];
        loop {
            let length = file.read(&mut chunk).map_err(failed)?;
            match chunk.get(..length) {
                Some(read) if !read.is_empty() => self.0.update(read),
                Some(_) | None => return Ok(self),
            }
        }
    }

    /// Every file of the directory, in the order of their names.
    pub(crate) fn directory(mut self, path: &Path) -> Result<Self, Error> {
        for file in files_in(path)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            self = self.text(&name).file(&file)?;
        }
        Ok(self)
    }

    pub(crate) fn key(self) -> String {
        let digest = self.0.finalize();
        let number = digest
            .iter()
            .take(6)
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        format!("{number:012x}")
    }
}

/// The directory `name-key` of the cache, filled by `make` if it is not there yet. Who comes second
/// waits for the first.
pub(crate) fn kept(
    name: &str,
    ingredients: Ingredients,
    make: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    let place = root().join(format!("{name}-{}", ingredients.key()));
    if place.exists() {
        return Ok(place);
    }
    make_directory(&root())?;
    let lock = root().join(format!("{name}.lock"));
    let locked = File::create(&lock).and_then(|file| file.lock().map(|()| file));
    let _held = locked.map_err(|source| Error::File {
        doing: "lock",
        path: lock,
        source,
    })?;
    if place.exists() {
        return Ok(place);
    }
    // Of a maker that was killed a compiler may still run, which must not write into this one's.
    let half_made = root().join(format!("{name}.half-made.{}", std::process::id()));
    for path in files_in(&root())? {
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        if file_name.starts_with(&format!("{name}.half-made.")) {
            remove(&path)?;
        }
    }
    make_directory(&half_made)?;
    make(&half_made)?;
    rename(&half_made, &place)?;
    forget_older(name, &place)?;
    Ok(place)
}

/// Only the newest few of a name are kept: every build of the operator makes an image.
fn forget_older(name: &str, newest: &Path) -> Result<(), Error> {
    const KEPT_MAX: usize = 4;
    let mut entries: Vec<_> = files_in(&root())?
        .into_iter()
        .filter(|path| path != newest && path.is_dir())
        .filter(|path| {
            let file_name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            file_name
                .rsplit_once('-')
                .is_some_and(|(prefix, _)| prefix == name)
        })
        .map(|path| {
            (
                fs::metadata(&path).and_then(|data| data.modified()).ok(),
                path,
            )
        })
        .collect();
    entries.sort();
    let surplus = (entries.len() + 1).saturating_sub(KEPT_MAX);
    entries
        .iter()
        .take(surplus)
        .try_for_each(|(_, path)| remove(path))
}

fn files_in(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::File {
        doing: "list",
        path: path.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        files.push(entry.map_err(failed)?.path());
    }
    files.sort();
    Ok(files)
}
