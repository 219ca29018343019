//! The URIs of resources: `file:///…` for files, `rlm://script/LANGUAGE/SESSION` for a session as a script.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rlm_core::percent;
use rlm_env::ReplLanguage;

const FILE: &str = "file://";
const SCRIPT: &str = "rlm://script/";

/// A resource named by a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    File(PathBuf),
    Script { language: ReplLanguage, session: String },
}

/// The resource of a URI; None if it is not one of ours.
pub(super) fn parse(uri: &str) -> Option<Resource> {
    if let Some(script) = uri.strip_prefix(SCRIPT) {
        let (language, session) = script.split_once('/')?;
        return Some(Resource::Script { language: language.parse().ok()?, session: session.to_owned() });
    }
    let path = uri.strip_prefix(FILE)?;
    let path = path.strip_prefix("localhost").unwrap_or(path);
    let bytes = percent::decoded(path)?;
    (bytes.starts_with(b"/") && !bytes.contains(&0))
        .then(|| Resource::File(std::ffi::OsString::from_vec(bytes).into()))
}

pub(super) fn of_file(path: &Path) -> String {
    format!("{FILE}{}", percent::encoded(path.as_os_str().as_bytes(), b"/"))
}

pub(super) fn of_script(language: ReplLanguage, session: &str) -> String {
    format!("{SCRIPT}{language}/{session}")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn paths_survive_being_a_uri() {
        for path in [&b"/a/b.txt"[..], b"/a b/100%/\xff?#", "/é".as_bytes()] {
            let path = PathBuf::from(OsStr::from_bytes(path));
            assert_eq!(parse(&of_file(&path)), Some(Resource::File(path)));
        }
        assert_eq!(of_file(Path::new("/a b/é")), "file:///a%20b/%C3%A9");
        assert_eq!(parse("file://localhost/a"), Some(Resource::File("/a".into())));
    }

    #[test]
    fn other_uris_name_no_resource() {
        for uri in [
            "",
            "http://a/b",
            "file://host/a",
            "file:///a%2",
            "file:///a%zz",
            "file:///%00",
            "rlm://script/perl/x",
        ] {
            assert_eq!(parse(uri), None, "{uri}");
        }
        let script = Resource::Script { language: ReplLanguage::Python, session: "a".to_owned() };
        assert_eq!(parse(&of_script(ReplLanguage::Python, "a")), Some(script));
    }
}
