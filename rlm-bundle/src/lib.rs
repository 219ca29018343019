//! The bundle: the program that unpacks, then an archive of all programs, then a trailer that says where the archive is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Ends a bundle, after the archive's length and digest.
const MAGIC: &[u8; 16] = b"rlm-bundle v1\n\n\n";

/// Bytes of the trailer: length, digest, magic.
const TRAILER_BYTES: usize = 8 + 32 + MAGIC.len();

/// Bits of the window in which repetitions are found, and so the memory of 32 MiB that unpacking takes.
pub const WINDOW_LOG: u32 = 25;

/// An open bundle.
#[derive(Debug)]
pub struct Bundle {
    file: File,
    /// The start of the archive, and its length in bytes.
    archive: (u64, u64),
    /// The beginning of the archive's SHA-256 in hexadecimal digits: the same for the same content.
    pub digest: String,
}

impl Bundle {
    /// Reads the trailer of a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a whole bundle.
    pub fn open(mut file: File) -> io::Result<Self> {
        let mut trailer = [0; TRAILER_BYTES];
        let is_long_enough = file.seek(SeekFrom::End(-(TRAILER_BYTES as i64))).is_ok();
        if is_long_enough {
            file.read_exact(&mut trailer)?;
        }
        let (length, rest) = trailer.split_at(8);
        let (digest, magic) = rest.split_at(32);
        let archive_bytes = u64::from_le_bytes(length.try_into().expect("these are 8 bytes"));
        let begin = file.metadata()?.len().checked_sub(archive_bytes.saturating_add(TRAILER_BYTES as u64));
        let Some(begin) = begin.filter(|_| magic == MAGIC) else {
            let words = "the end of this file is missing, so it has no programs: copy or download it again";
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        };
        let digest = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { file, archive: (begin, archive_bytes), digest })
    }

    /// Hands over each entry of the archive, from its beginning, and checks that it is undamaged.
    ///
    /// # Errors
    /// It is damaged or cannot be read (`InvalidData`), or `take` fails.
    pub fn entries(
        &mut self,
        mut take: impl FnMut(PathBuf, &mut tar::Entry<'_, Box<dyn Read + '_>>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (begin, bytes) = self.archive;
        self.file.seek(SeekFrom::Start(begin))?;
        let mut decoder = zstd::Decoder::new((&mut self.file).take(bytes))?;
        decoder.window_log_max(WINDOW_LOG)?;
        let mut archive = tar::Archive::new(Box::new(Archive(decoder)) as Box<dyn Read + '_>);
        for entry in archive.entries()? {
            let mut entry = entry.map_err(damaged)?;
            let name = entry.path().map_err(damaged)?.into_owned();
            if !name.components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(damaged(format!("{} leads out of the directory", name.display())));
            }
            take(name, &mut entry)?;
        }
        // The sum of all is behind the last entry.
        io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop)
    }
}

/// The archive of a bundle, whose errors are told apart from those of the files that it is copied to.
struct Archive<R>(R);

impl<R: Read> Read for Archive<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(damaged)
    }
}

fn damaged(cause: impl std::fmt::Display) -> io::Error {
    let words = format!("this file is damaged: copy or download it again ({cause})");
    io::Error::new(io::ErrorKind::InvalidData, words)
}

/// Writes a bundle: the program that unpacks, and all below a directory. The same content gives the same bytes.
///
/// # Errors
/// A file cannot be read or written.
pub fn pack(carrier: &Path, directory: &Path, out: &Path, level: i32) -> io::Result<()> {
    let mut encoder = zstd::Encoder::new(Vec::new(), level)?;
    encoder.include_checksum(true)?;
    encoder.window_log(WINDOW_LOG)?;
    // One worker at least: without workers, the output would differ from that with two.
    encoder.multithread(2)?;
    let mut archive = tar::Builder::new(encoder);
    archive.follow_symlinks(false);
    archive.mode(tar::HeaderMode::Deterministic);
    // The holes in a file depend on the file system that it was built on.
    archive.sparse(false);
    for path in sorted(directory)? {
        let name = path.strip_prefix(directory).expect("it is below the directory");
        archive.append_path_with_name(&path, name)?;
    }
    let archive = archive.into_inner()?.finish()?;
    let mut bundle = std::fs::read(carrier)?;
    bundle.extend_from_slice(&archive);
    bundle.extend_from_slice(&(archive.len() as u64).to_le_bytes());
    bundle.extend_from_slice(&Sha256::digest(&archive));
    bundle.extend_from_slice(MAGIC);
    let mut file = File::create(out)?;
    file.write_all(&bundle)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    file.set_permissions(mode)
}

/// All below a directory, in the order of the names, each directory before what is in it.
fn sorted(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = std::fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut all = Vec::new();
    for entry in entries {
        all.push(entry.path());
        if entry.file_type()?.is_dir() {
            all.extend(sorted(&entry.path())?);
        }
    }
    Ok(all)
}
