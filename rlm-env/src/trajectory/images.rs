//! Images in messages: beside a trajectory they are files, since their data would be most of its text.

use std::borrow::Cow;
use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rlm_core::text::hex;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::entry::{Entry, Event};

/// Media types of images, and the ends of the names of their files.
const TYPES: [(&str, &str); 4] =
    [("image/png", "png"), ("image/jpeg", "jpg"), ("image/gif", "gif"), ("image/webp", "webp")];

/// The directory with the images of a trajectory: `NAME.images`, beside it.
#[must_use]
pub fn images_dir(trajectory: &Path) -> PathBuf {
    let mut name = trajectory.file_name().unwrap_or_default().to_owned();
    name.push(".images");
    trajectory.with_file_name(name)
}

/// The images of a message that are files beside its trajectory: for each its path, below the directory of
/// [`images_dir`], and its media type. Names that no writer makes are not among them.
pub fn image_files<'a>(
    message: &'a Json,
    dir: &'a Path,
) -> impl Iterator<Item = (PathBuf, &'static str)> + use<'a> {
    urls(message).filter_map(move |url| {
        let (parent, name) = url.rsplit_once('/')?;
        let (stem, end) = name.split_once('.')?;
        let is_ours = dir.file_name().is_some_and(|own| own == parent)
            && stem.len() == 32
            && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (media_type, _) = TYPES.iter().find(|(_, known)| is_ours && *known == end)?;
        Some((dir.join(name), *media_type))
    })
}

/// A message in which a word stands for the data of each image.
pub(crate) fn without_image_data(message: &Json) -> Cow<'_, Json> {
    if !urls(message).any(is_data) {
        return Cow::Borrowed(message);
    }
    let mut message = message.clone();
    urls_mut(&mut message).filter(|url| is_data(url)).for_each(|url| *url = "left out".to_owned());
    Cow::Owned(message)
}

/// An entry whose images are files in this directory, which is made for the first one.
///
/// # Errors
/// A file cannot be written.
pub(super) fn with_files<'a>(entry: &'a Entry, dir: &Path) -> io::Result<Cow<'a, Entry>> {
    let mut entry = Cow::Borrowed(entry);
    let has_data = match &entry.event {
        Event::Message(message) => urls(&message.message).any(is_data),
        Event::SubCall(call) => call.messages.iter().flat_map(urls).any(is_data),
        _ => false,
    };
    if has_data {
        let messages = match &mut entry.to_mut().event {
            Event::Message(message) => std::slice::from_mut(&mut message.message),
            Event::SubCall(call) => &mut call.messages[..],
            _ => &mut [],
        };
        for url in messages.iter_mut().flat_map(urls_mut) {
            if let Some((data, end)) = decoded(url) {
                let name = format!("{}.{end}", hex(&Sha256::digest(&data)[..16]));
                write(dir, &name, &data)?;
                *url = format!("{}/{name}", dir.file_name().unwrap_or_default().display());
            }
        }
    }
    Ok(entry)
}

/// Writes a file whole, for its owner alone. The name tells the content, so one that is there already is the same.
fn write(dir: &Path, name: &str, data: &[u8]) -> io::Result<()> {
    let path = dir.join(name);
    if path.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(data)?;
    file.persist(path)?;
    Ok(())
}

/// The data of an image in a `data:` URL, and the end of its file's name.
fn decoded(url: &str) -> Option<(Vec<u8>, &'static str)> {
    let (media_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    let (_, end) = TYPES.iter().find(|(known, _)| *known == media_type)?;
    Some((STANDARD.decode(data).ok()?, *end))
}

fn is_data(url: &str) -> bool {
    url.starts_with("data:")
}

fn urls(message: &Json) -> impl Iterator<Item = &str> {
    let parts = message.get("content").and_then(Json::as_array).into_iter().flatten();
    parts.filter_map(|part| part.get("image_url")?.get("url")?.as_str())
}

fn urls_mut(message: &mut Json) -> impl Iterator<Item = &mut String> {
    let parts = message.get_mut("content").and_then(Json::as_array_mut).into_iter().flatten();
    parts.filter_map(|part| match part.get_mut("image_url")?.get_mut("url")? {
        Json::String(url) => Some(url),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;
    use crate::trajectory::{Message, MessageKind};

    fn entry(url: &str) -> Entry {
        let message = json!({"role": "user", "content": [
            {"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": url}},
        ]});
        let message = Message { turn: 1, kind: MessageKind::Notice, message, left_out: Vec::new() };
        Entry { rollout: "r".to_owned(), time: 1.5, event: Event::Message(message), depth: 0 }
    }

    fn message(entry: &Entry) -> &Json {
        let Event::Message(message) = &entry.event else { panic!("{entry:?}") };
        &message.message
    }

    #[test]
    fn an_image_is_a_file_beside_the_trajectory() {
        let dir = tempfile::tempdir().unwrap();
        let images = images_dir(&dir.path().join("t.jsonl"));
        let given = entry("data:image/png;base64,aWNv");
        for _ in 0..2 {
            let written = with_files(&given, &images).unwrap();
            let files: Vec<_> = image_files(message(&written), &images).collect();
            let [(file, "image/png")] = &files[..] else { panic!("{files:?}") };
            assert_eq!(std::fs::read(file).unwrap(), b"ico");
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(message(&written)["content"][0]["text"], "Look");
        }
        assert_eq!(images.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(&images).unwrap().count(), 1);
        let left_out = without_image_data(message(&given)).into_owned();
        assert_eq!(left_out["content"][1]["image_url"]["url"], "left out");
    }

    #[test]
    fn what_is_no_data_stays_and_no_other_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let images = images_dir(&dir.path().join("t.jsonl"));
        let name = "0".repeat(32);
        for url in [
            "https://example.org/a.png",
            "data:image/svg+xml;base64,aWNv",
            "data:image/png;base64,!",
            "t.jsonl.images/../secret.png",
            "/etc/passwd",
            &format!("other/{name}.png"),
            &format!("t.jsonl.images/{name}.html"),
        ] {
            let given = entry(url);
            assert_eq!(*with_files(&given, &images).unwrap(), given, "{url}");
            assert_eq!(image_files(message(&given), &images).count(), 0, "{url}");
        }
        assert!(!images.exists());
        let ours = entry(&format!("t.jsonl.images/{name}.png"));
        assert_eq!(image_files(message(&ours), &images).count(), 1);
    }
}
