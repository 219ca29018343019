//! Images in messages: beside a trajectory they are files, since their data would be most of its text.

use std::borrow::Cow;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::fcntl::OFlag;
use rlm_core::text::{hex, size};
use rlm_rootd::{image_urls, is_data_url};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::entry::{Entry, Event};

/// The largest image in bytes. Anthropic takes 5 MiB of base64, which is a third longer than the image.
const MAX_IMAGE_BYTES: u64 = (5 << 20) / 4 * 3;

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

/// An image of a message in a trajectory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImagePlace {
    /// A file in the directory of [`images_dir`], and its media type.
    File(PathBuf, &'static str),
    /// A `data:` URL.
    Url(String),
}

/// The images of a message in a trajectory whose images are in this directory. A file counts by its name, so that both may be
/// renamed; names that no writer makes do not count.
pub fn image_places<'a>(message: &'a Json, dir: &'a Path) -> impl Iterator<Item = ImagePlace> + use<'a> {
    image_urls(message).filter_map(move |url| {
        if decoded(url).is_some() {
            return Some(ImagePlace::Url(url.to_owned()));
        }
        let (_, name) = url.rsplit_once(".images/")?;
        let (stem, end) = name.split_once('.')?;
        let is_ours = stem.len() == 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (media_type, _) = TYPES.iter().find(|(_, known)| is_ours && *known == end)?;
        Some(ImagePlace::File(dir.join(name), media_type))
    })
}

/// Reads an image's file. No link is followed, since anyone may have made them.
///
/// # Errors
/// The file is missing, is not a regular one, or is larger than an image may be.
pub fn read_image(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(path, OFlag::O_NOFOLLOW)
}

/// Reads a regular file of the size of an image, with these flags.
pub(crate) fn read_bounded(path: &Path, flags: OFlag) -> io::Result<Vec<u8>> {
    // Opening a FIFO would wait for its writer.
    let flags = flags | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut data = Vec::new();
    file.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut data)?;
    if data.len() as u64 > MAX_IMAGE_BYTES {
        let (found, most) = (size(metadata.len()), size(MAX_IMAGE_BYTES));
        return Err(io::Error::other(format!(
            "it has {found}, and an image at most {most}: make it smaller"
        )));
    }
    Ok(data)
}

/// The message with a word in place of the data of each image.
pub(crate) fn without_image_data(message: &Json) -> Cow<'_, Json> {
    if !image_urls(message).any(is_data_url) {
        return Cow::Borrowed(message);
    }
    let mut message = message.clone();
    urls_mut(&mut message).filter(|url| is_data_url(url)).for_each(|url| *url = "left out".to_owned());
    Cow::Owned(message)
}

/// An entry whose images are files in this directory, which is made for the first one.
///
/// # Errors
/// A file cannot be written.
pub(super) fn with_files<'a>(entry: &'a Entry, dir: &Path) -> io::Result<Cow<'a, Entry>> {
    let mut entry = Cow::Borrowed(entry);
    let has_data = match &entry.event {
        Event::Message(message) => image_urls(&message.message).any(is_data_url),
        Event::SubCall(call) => call.messages.iter().flat_map(image_urls).any(is_data_url),
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

/// Writes a file whole, for its owner alone. The name tells the content, so a file that exists already is the same.
fn write(dir: &Path, name: &str, data: &[u8]) -> io::Result<()> {
    let path = dir.join(name);
    if path.symlink_metadata().is_ok_and(|there| there.is_file() && there.len() == data.len() as u64) {
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
            let found: Vec<_> = image_places(message(&written), &images).collect();
            let [ImagePlace::File(file, "image/png")] = &found[..] else { panic!("{found:?}") };
            assert_eq!(read_image(file).unwrap(), b"ico");
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
            assert_eq!(image_places(message(&given), &images).count(), 0, "{url}");
        }
        assert!(!images.exists());
        let file = images.join(format!("{name}.png"));
        for before in ["t.jsonl", "renamed.jsonl"] {
            let ours = entry(&format!("{before}.images/{name}.png"));
            let found: Vec<_> = image_places(message(&ours), &images).collect();
            assert_eq!(found, [ImagePlace::File(file.clone(), "image/png")]);
        }
        std::fs::create_dir(&images).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert!(read_image(&file).is_err(), "a link");
        std::fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read_image(&file).is_err(), "a FIFO");
    }
}
