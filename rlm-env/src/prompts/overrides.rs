//! Templates of a directory, in the place of built-in ones.

use std::path::{Path, PathBuf};

use super::samples;
use super::templates::{PromptError, Prompts, listed};

/// A file that may lie in a directory of templates without being one.
const README: &str = "README.md";

impl Prompts {
    /// The built-in templates, and in their place those of a directory that have the same name: `bash/system.md`, …
    ///
    /// Each of them is rendered once in every form that it has, so that a mistake is told now and not in a rollout.
    ///
    /// # Errors
    /// [`PromptError`] names the file, and the line where there is one.
    pub fn with_overrides(dir: &Path) -> Result<Self, PromptError> {
        let mut prompts = Self::new();
        for path in files(dir)? {
            let name = path.strip_prefix(dir).expect("it was found there").to_string_lossy().into_owned();
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

/// The files in a directory and the directories in it, in order; hidden ones are left out.
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
