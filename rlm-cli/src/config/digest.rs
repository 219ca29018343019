//! The digest of the settings that can change an answer: results of one digest can be compared.

use std::path::Path;

use rlm_core::text::hex;
use sha2::{Digest as _, Sha256};

use super::Settings;
use super::setting::Effect;
use super::table::{ALL, MODEL, SUB_MODEL};
use crate::usage::Usage;

/// Bytes of the SHA-256 that are shown.
const DIGEST_BYTES: usize = 8;

/// The digest as hexadecimal digits. It covers the values in force of the settings whose [`Effect`] says so; a sub-model
/// that is not set is the model.
///
/// # Errors
/// A file that a setting names cannot be read.
pub(crate) fn digest(settings: &Settings) -> Result<String, Usage> {
    let mut digest = Sha256::new();
    for &setting in ALL {
        let from = match settings.values.contains_key(setting.name) {
            false if setting.name == SUB_MODEL.name => MODEL.name,
            _ => setting.name,
        };
        let Some((text, _)) = settings.values.get(from) else { continue };
        let value = match setting.effect {
            Effect::Value => setting.spelling(text).into_bytes(),
            Effect::Part(read) => match read(text) {
                Some(part) => part.into_bytes(),
                None => continue,
            },
            Effect::Contents(read) => read(Path::new(text))
                .map_err(|error| Usage::new(format!("{}: {text} cannot be read: {error}", setting.name)))?,
            Effect::Nothing => continue,
        };
        digest.update(setting.name);
        digest.update([0xff]);
        digest.update(value.len().to_le_bytes());
        digest.update(value);
    }
    Ok(hex(&digest.finalize()[..DIGEST_BYTES]))
}

/// Names of the settings that it covers.
pub(super) fn covered() -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(|setting| !matches!(setting.effect, Effect::Nothing)).map(|setting| setting.name)
}
