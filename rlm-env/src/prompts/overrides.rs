//! Custom templates that replace built-in ones.

use std::path::{Path, PathBuf};

use super::samples;
use super::templates::{PromptError, Prompts, listed};

/// A file that a directory of templates may also contain.
const README: &str = "README.md";

impl Prompts {
    /// The built-in templates, with those replaced that have a file of the same name in the directory:
    /// `bash/system.md`, …
    ///
    /// Renders each template once in all its forms, so that a mistake shows now and not in a rollout.
    ///
    /// # Errors
    /// [`PromptError`] names the file and, where possible, the line.
    pub fn with_overrides(dir: &Path) -> Result<Self, PromptError> {
        let mut prompts = Self::new();
        for path in files(dir)? {
            let name = path
                .strip_prefix(dir)
                .expect("the path is below the directory")
                .to_string_lossy()
                .into_owned();
            if name == README {
                continue;
            }
            if !prompts.names().any(|known| known == name) {
                return Err(PromptError::UnknownFile { path, known: listed(prompts.names()) });
            }
            let source = std::fs::read_to_string(&path)
                .map_err(|source| PromptError::Read { path: path.clone(), source })?;
            prompts.replace(&name, source, path)?;
        }
        samples::render_all(&prompts)?;
        Ok(prompts)
    }
}

/// The files below a directory, sorted, without hidden ones.
fn files(dir: &Path) -> Result<Vec<PathBuf>, PromptError> {
    let cannot_read = |source| PromptError::Read { path: dir.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(cannot_read)? {
        let entry = entry.map_err(cannot_read)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            found.append(&mut files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
