//! Names in the working directory.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use crate::workspace::context::{Context, ContextError};
use crate::workspace::transcript::MESSAGES_IN_CONTEXT;

/// The names of contexts that come without one.
pub(super) const TEXT: &str = "context.txt";
pub(super) const JSON: &str = "context.json";

/// The names that paths have in the working directory.
pub(super) fn names_of(paths: &[PathBuf]) -> Result<Vec<OsString>, ContextError> {
    let mut names: Vec<OsString> = Vec::with_capacity(paths.len());
    let mut first_of = HashMap::new();
    for path in paths {
        let name = match path.file_name() {
            Some(name) => name.to_owned(),
            None => fs::canonicalize(path)
                .map_err(|source| ContextError::Read { path: path.clone(), source })?
                .file_name()
                .ok_or_else(|| ContextError::NoName(path.clone()))?
                .to_owned(),
        };
        if name == MESSAGES_IN_CONTEXT {
            return Err(ContextError::Reserved(path.clone()));
        }
        if let Some(first) = first_of.insert(name.clone(), path) {
            let (first, second) = (first.clone(), path.clone());
            return Err(ContextError::SameName { first, second, name: name.into() });
        }
        names.push(name);
    }
    Ok(names)
}

/// The names at the top of a working directory with this context, as paths.
pub(super) fn labels(context: &Context) -> Vec<PathBuf> {
    match context {
        Context::Nothing => Vec::new(),
        Context::Paths(paths) => paths.clone(),
        Context::Within(paths) => paths.iter().map(|one| one.path().to_owned()).collect(),
        Context::Text(_) => vec![TEXT.into()],
        Context::Json(_) => vec![JSON.into()],
        Context::Files(files) => files.iter().map(|(name, _)| name.into()).collect(),
        Context::Together(parts) => parts.iter().flat_map(labels).collect(),
    }
}
