//! Reads the payload from front to back. A declared length is never trusted before its bytes are found.

use super::error::Fault;

pub(super) struct Reader<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Self {
        Self { payload, at: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    pub(super) fn left(&self) -> usize {
        self.payload.len() - self.at
    }

    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], Fault> {
        let rest = &self.payload[self.at..];
        match usize::try_from(length) {
            Ok(length) if length <= rest.len() => {
                self.at += length;
                Ok(&rest[..length])
            }
            _ => Err(Fault::Truncated { needed: length, left: rest.len() }),
        }
    }

    /// The rest of the line, without its line break.
    pub(super) fn line(&mut self) -> Result<&'a [u8], Fault> {
        let rest = &self.payload[self.at..];
        let end = memchr::memchr(b'\n', rest).ok_or(Fault::NoLineEnd(rest.len()))?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Fault> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    /// Only floats are big-endian.
    pub(super) fn f64(&mut self) -> Result<f64, Fault> {
        self.array().map(f64::from_be_bytes)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Fault> {
        let bytes = self.take(LENGTH as u64)?;
        Ok(bytes.try_into().expect("as many bytes were taken"))
    }
}
