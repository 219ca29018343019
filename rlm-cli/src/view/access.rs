//! Access to a served page: with the token, and from this page or from no page.
//!
//! All paths begin with a part that nobody can guess. A browser sends a cookie to every port of a host, but only with requests for
//! the cookie's path: so servers on other ports never get it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};

use anyhow::Context as _;
use axum::http::header::{COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use rlm_core::text::hex;
use rlm_rootd::Secret;
use sha2::{Digest as _, Sha256};

use crate::environment::Environment;
use crate::tell;
use crate::usage::refuse;

/// Headers of each answer.
pub(super) const HEADERS: [(HeaderName, &str); 5] = [
    (HeaderName::from_static("cache-control"), "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
    (HeaderName::from_static("x-frame-options"), "DENY"),
];

/// The token, and what follows from it.
#[derive(Debug)]
pub(super) struct Access {
    secret: Secret,
    /// The beginning of all paths. Each port has its own.
    pub(super) base: String,
    /// The name and the value of the cookie. Each port has its own.
    cookie: (String, Secret),
}

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl Access {
    pub(super) fn new(port: u16, environment: &Environment) -> anyhow::Result<Self> {
        let secret = secret(environment)?;
        let of_port = Sha256::digest(format!("{}:{port}", secret.reveal()));
        let base = format!("/{}", hex(&of_port[..8]));
        Ok(Self { secret, base, cookie: (format!("rlm_{port}"), Secret::new(&hex(&of_port[8..]))) })
    }

    pub(super) fn token(&self) -> &str {
        self.secret.reveal()
    }

    pub(super) fn is_token(&self, token: &str) -> bool {
        self.secret.is(token.as_bytes())
    }

    /// The cookie that stands for the token.
    pub(super) fn cookie(&self) -> String {
        let (name, pass) = &self.cookie;
        format!("{name}={}; HttpOnly; SameSite=Lax; Path={}", pass.reveal(), self.base)
    }

    /// Reports whether a request has the cookie. Fails if another page sends it.
    pub(super) fn allows(&self, headers: &HeaderMap) -> Result<bool, Refusal> {
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let (name, port) =
            header(HOST.as_str()).map(|host| host.rsplit_once(':').unwrap_or((host, "80"))).unzip();
        let is_port = port.is_some_and(|port| port.parse::<u16>().is_ok());
        if !(is_port && matches!(name, Some("127.0.0.1" | "localhost"))) {
            let words = "Host must be 127.0.0.1 or localhost: open the address that rlm printed.\n";
            return Err(Refusal(StatusCode::FORBIDDEN, words.to_owned()));
        }
        let own = header(HOST.as_str()).map(|host| format!("http://{host}"));
        let is_ours = match (header("sec-fetch-site"), header(ORIGIN.as_str())) {
            // A link that is followed from elsewhere.
            (Some("cross-site" | "same-site"), None) => {
                header("sec-fetch-mode") == Some("navigate") && header("sec-fetch-dest") == Some("document")
            }
            (Some("cross-site" | "same-site"), Some(_)) => false,
            (_, origin) => origin.is_none_or(|origin| own.as_deref() == Some(origin)),
        };
        if !is_ours {
            return Err(Refusal(StatusCode::FORBIDDEN, "Another page asked for this.\n".to_owned()));
        }
        let cookies = header(COOKIE.as_str()).unwrap_or_default().split(';').map(str::trim);
        let (name, pass) = &self.cookie;
        let mut passes = cookies.filter_map(|cookie| cookie.strip_prefix(name)?.strip_prefix('='));
        Ok(passes.any(|shown| pass.is(shown.as_bytes())))
    }
}

/// The token. It is kept, so that pages that are open find the next server.
fn secret(environment: &Environment) -> anyhow::Result<Secret> {
    let new = Secret::random().context("the system has no random bytes")?;
    let Some(dir) = environment.state_dir() else { return Ok(new) };
    let file = dir.join("page-token");
    let keep = || -> io::Result<Option<Secret>> {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        // Only the owner can read a temporary file.
        let mut made = tempfile::NamedTempFile::new_in(&dir)?;
        made.write_all(new.reveal().as_bytes())?;
        match made.persist_noclobber(&file) {
            Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => return Err(error.error),
            _ => {}
        }
        // The file may be a link or a FIFO that somebody put there.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let mut kept = File::options().read(true).custom_flags(flags.bits()).open(&file)?;
        let found = kept.metadata()?;
        let is_ours = found.is_file() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
        let mut text = String::new();
        let is_token =
            is_ours && found.len() == new.reveal().len() as u64 && kept.read_to_string(&mut text).is_ok();
        let is_token = is_token && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(is_token.then(|| Secret::new(&text)))
    };
    match keep() {
        Ok(Some(kept)) => Ok(kept),
        Ok(None) => {
            let words = "holds no token that only its user can read: remove it";
            refuse!("{} {words}", file.display())
        }
        Err(error) => {
            tell(format_args!("rlm: the page's token is a new one each time: {}: {error}", file.display()));
            Ok(new)
        }
    }
}
