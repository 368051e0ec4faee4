//! Paths of files.

use std::path::Path;

/// The folder of the file at `path`, which need not exist.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
