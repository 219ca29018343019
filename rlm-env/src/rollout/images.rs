//! Images for the root model: those of the question, and those that code shows with the tool `show`.
//!
//! A server takes a message with images only from the user, so what a call has shown follows the outputs of its reply.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::fcntl::OFlag;
use rlm_core::pickle::Value;
use rlm_core::root_tool::{Call, Reply, SHOW, ToolResult};
use rlm_core::text::{hex, size};
use rlm_rootd::{RootTool, Tool, ToolFuture};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use crate::trajectory::read_bounded;
use crate::workspace::PathWithin;

/// The most bytes of all images of a rollout. Anthropic takes requests of 32 MB.
const MAX_ALL_BYTES: usize = 20 << 20;

/// The most images of a rollout. Anthropic refuses images of more than 2000 pixels a side where there are more than 20.
const MAX_IMAGES: usize = 20;

/// An image for the root model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    name: String,
    media_type: &'static str,
    data: Arc<[u8]>,
}

impl Image {
    /// Reads an image from a file: PNG, JPEG, GIF or WebP, of at most 3.75 MiB.
    ///
    /// # Errors
    /// A sentence with the name, and what is wrong.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::open(&path.to_string_lossy(), path).map_err(|error| told(path, &error))
    }

    fn open(name: &str, path: &Path) -> io::Result<Self> {
        let data = read_bounded(path, OFlag::empty())?;
        let media_type = media_type(&data)
            .ok_or_else(|| io::Error::other("it is not an image: expected PNG, JPEG, GIF or WebP"))?;
        Ok(Self { name: name.to_owned(), media_type, data: data.into() })
    }

    /// Checks that a question may have these images.
    ///
    /// # Errors
    /// A sentence: they are too many, or too large together.
    pub fn check_all(images: &[Self]) -> Result<(), String> {
        Shown::new(images).map(drop)
    }

    /// A digest of the data of images; their names do not count.
    #[must_use]
    pub fn digest(images: &[Self]) -> String {
        let mut digest = Sha256::new();
        images.iter().for_each(|image| digest.update(Sha256::digest(&image.data)));
        hex(&digest.finalize()[..8])
    }

    /// The image as a part of a message.
    fn part(&self) -> Json {
        let url = format!("data:{};base64,{}", self.media_type, STANDARD.encode(&self.data));
        json!({"type": "image_url", "image_url": {"url": url}})
    }
}

/// The content of a message with images behind its text.
pub(super) fn content(text: &str, images: &[Image]) -> Json {
    if images.is_empty() {
        return text.into();
    }
    let text = json!({"type": "text", "text": text});
    std::iter::once(text).chain(images.iter().map(Image::part)).collect()
}

/// The names of images, with commas, in one line.
pub(super) fn names(images: &[Image]) -> String {
    let name = |image: &Image| match image.name.chars().any(char::is_control) {
        true => image.name.escape_debug().to_string(),
        false => image.name.clone(),
    };
    images.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn told(path: &Path, error: &io::Error) -> String {
    format!("cannot show {}: {error}", path.display())
}

/// The type of an image, by its first bytes.
fn media_type(data: &[u8]) -> Option<&'static str> {
    match data {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Images that code has shown, and that the model has not got yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Image>,
    /// The number of all images of the rollout, and their bytes.
    count: usize,
    bytes: usize,
}

impl Shown {
    /// No images yet, besides those of the question.
    ///
    /// # Errors
    /// The question has too many images.
    pub(super) fn new(of_question: &[Image]) -> Result<Self, String> {
        let mut state = State::default();
        of_question.iter().try_for_each(|image| state.count(image))?;
        Ok(Self(Arc::new(Mutex::new(state))))
    }

    /// Takes the images that wait.
    pub(super) fn take(&self) -> Vec<Image> {
        std::mem::take(&mut self.state().waiting)
    }

    fn add(&self, image: Image) -> Result<(), String> {
        let mut state = self.state();
        state.count(&image)?;
        state.waiting.push(image);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, Image { name, data, .. }: &Image) -> Result<(), String> {
        if self.count >= MAX_IMAGES {
            return Err(format!(
                "cannot show {name}: the conversation has had {MAX_IMAGES} images, which is the most"
            ));
        }
        if self.bytes + data.len() > MAX_ALL_BYTES {
            let most = size(MAX_ALL_BYTES as u64);
            return Err(format!(
                "cannot show {name}: all images of a conversation may have {most}: make it smaller"
            ));
        }
        (self.count, self.bytes) = (self.count + 1, self.bytes + data.len());
        Ok(())
    }
}

static PARAMETERS: LazyLock<Json> = LazyLock::new(|| {
    json!({
        "type": "object",
        "properties": {"path": {
            "type": "string", "minLength": 1,
            "description": "the image: PNG, JPEG, GIF or WebP; a path that begins in the session's directory, wherever the code is",
        }},
        "required": ["path"],
        "additionalProperties": false,
    })
});

/// `show(path)`: the model sees the image with the output of the call.
#[derive(Debug)]
struct ShowTool {
    directories: Vec<PathBuf>,
    shown: Shown,
}

/// The tool `show`, for files in these directories; a relative path begins in the first one.
pub(crate) fn show_tool(directories: Vec<PathBuf>, shown: Shown) -> Tool {
    Tool::new(ShowTool { directories, shown }).expect("it is well formed")
}

impl ShowTool {
    fn show(directories: &[PathBuf], path: &Path) -> Result<Image, String> {
        let found = PathWithin::find(directories, path)
            .map_err(|error| format!("{}; paths begin in the session's directory", told(path, &error)))?;
        let Some(found) = found else {
            return Err(told(path, &io::Error::other("it is not in the session's directory")));
        };
        let read = found.with_place(|place| Image::open(&path.to_string_lossy(), place));
        read.map_err(|error| told(path, &error))
    }
}

impl RootTool for ShowTool {
    fn name(&self) -> &str {
        SHOW
    }

    fn description(&self) -> &str {
        "Shows you an image, such as a plot, with the output of this call."
    }

    fn parameters(&self) -> &Json {
        &PARAMETERS
    }

    fn call(&self, call: Call, _deadline: Instant) -> ToolFuture<'_> {
        let given = call.args.first().or_else(|| call.kwargs.get("path"));
        let path = match given {
            Some(Value::Str(path)) => PathBuf::from(&**path),
            _ => PathBuf::new(),
        };
        let directories = self.directories.clone();
        Box::pin(async move {
            let read = spawn_blocking(move || Self::show(&directories, &path)).await;
            let image = read.map_err(|error| error.to_string())??;
            let said = format!("{}: you see it with the output of this call", image.name);
            self.shown.add(image)?;
            Ok(Reply { result: ToolResult::Value(said.into()), print_lines: Vec::new() })
        })
    }
}
