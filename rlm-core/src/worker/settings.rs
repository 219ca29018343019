//! A worker's settings, read once from the environment by its `main`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::live::LiveOutput;
use crate::env;
use crate::ids::is_identifier;
use crate::limits::{
    CHECKPOINT_EXPECTED, DEFAULT_MAX_OUTPUT_BYTES, DEFAULT_ROOT_TOOL_TIMEOUT, MAX_TIMEOUT,
    MIN_MAX_OUTPUT_BYTES, checkpoint_bytes,
};
use crate::protocol::Confine;
use crate::root_tool::Serialization;
use crate::root_tool::client::{BadUrl, Endpoint};

/// Settings that all workers share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time limit of a call without one of its own. None: no limit.
    pub exec_timeout: Option<Duration>,
    /// Most bytes of output returned per stream.
    pub max_output_bytes: usize,
    /// Environment of the session, built from an allow-list.
    pub session_env: Vec<(OsString, OsString)>,
    /// Functions of the host that code in the session can call.
    pub root_tools: Option<RootTools>,
    /// Limits of the session's resources.
    pub limits: Wanted,
    /// Paths that a confined session has besides its own.
    pub shared: Shared,
    /// Most memory of an interpreter of which a checkpoint is taken, in bytes. None: no checkpoints.
    pub checkpoint: Option<u64>,
    /// FIFOs for output as it comes; set by the worker's `main`.
    pub live: LiveOutput,
}

/// The root tools of a session and their endpoint.
#[derive(Clone, Serialize, Deserialize)]
pub struct RootTools {
    /// URL of the endpoint.
    pub url: String,
    /// Names of the tools: identifiers.
    pub names: Vec<String>,
    /// Encoding of arguments and results.
    pub serialization: Serialization,
    /// Sent as a bearer token.
    secret: Option<String>,
    /// Time limit of a call.
    pub timeout: Duration,
}

/// Formats the tools without the secret.
impl fmt::Debug for RootTools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, names, serialization, .. } = self;
        write!(formatter, "RootTools({url}, {serialization}, {names:?})")
    }
}

impl RootTools {
    /// Reads the settings; None if no endpoint is set.
    ///
    /// # Errors
    /// [`BadVariable`] names the first variable that cannot be used.
    pub fn from_environment(environment: &Environment) -> Result<Option<Self>, BadVariable> {
        let names = environment.parse(env::ROOT_TOOL_NAMES, "a JSON list of identifiers", names)?;
        let serialization =
            environment.parse(env::ROOT_TOOL_SERIALIZATION, "pickle or json", |text| text.parse().ok())?;
        let timeout = environment.parse(env::SUB_LLM_TIMEOUT, "a number of seconds above 0", seconds)?;
        let secret = environment.parse(env::INTERCEPTION_SECRET, "text without line breaks", |text| {
            (!text.contains(char::is_control)).then(|| text.to_owned())
        });
        // The value is a secret: it must not appear in an error.
        let secret = secret.map_err(|error| BadVariable { value: "(hidden)".to_owned(), ..error })?;
        let url = environment.parse(
            env::ROOT_TOOL_URL,
            "http://HOST[:PORT]/PATH or http+unix://SOCKET/PATH",
            |text| Endpoint::new(text, None).ok().map(|_| text.to_owned()),
        )?;
        let Some(url) = url else {
            return match names.filter(|names| !names.is_empty()) {
                None => Ok(None),
                Some(_) => Err(BadVariable {
                    name: env::ROOT_TOOL_URL,
                    value: String::new(),
                    expected: "the URL of the root-tool endpoint, as RLM_ROOT_TOOL_NAMES names tools",
                }),
            };
        };
        Ok(Some(Self {
            url,
            names: names.unwrap_or_default(),
            serialization: serialization.unwrap_or_default(),
            secret,
            timeout: timeout.unwrap_or(DEFAULT_ROOT_TOOL_TIMEOUT),
        }))
    }

    /// The endpoint that calls are sent to.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub fn endpoint(&self) -> Result<Endpoint, BadUrl> {
        Endpoint::new(&self.url, self.secret.clone())
    }

    /// Calls are sent to this port of the loopback device, which leads to the endpoint.
    pub(super) fn send_to_port(&mut self, port: u16) {
        if let Some((_, path)) = self.url.split_once("://").and_then(|(_, rest)| rest.split_once('/')) {
            self.url = format!("http://127.0.0.1:{port}/{path}");
        }
    }
}

/// Parses a JSON list of distinct identifiers.
fn names(text: &str) -> Option<Vec<String>> {
    let names = serde_json::from_str::<Vec<String>>(text).ok()?;
    let differ = (1..names.len()).all(|at| !names[..at].contains(&names[at]));
    (differ && names.iter().all(|name| is_identifier(name))).then_some(names)
}

/// An environment variable with a value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {name} is {value:?}, expected {expected}")]
pub struct BadVariable {
    /// Name of the variable.
    pub name: &'static str,
    /// Value of the variable.
    pub value: String,
    /// The values that are accepted.
    pub expected: &'static str,
}

/// The process environment, as passed down by a `main`.
#[derive(Clone, Debug, Default)]
pub struct Environment(Vec<(OsString, OsString)>);

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl Environment {
    /// All variables.
    pub(super) fn variables(&self) -> impl Iterator<Item = &(OsString, OsString)> {
        self.0.iter()
    }

    /// Sets a variable in place of those of that name.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.retain(|(held, _)| held != name);
        self.0.push((name.into(), value.into()));
    }

    /// Value of a variable; an empty one counts as absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// Value of a variable as a path.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// Path of a program on the `PATH` of this environment.
    #[must_use]
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        let path = self.get("PATH").unwrap_or_default();
        std::env::split_paths(path).map(|dir| dir.join(name)).find(|program| program.is_file())
    }

    /// Value of a variable as a list of names, separated by commas or white space.
    #[must_use]
    pub fn names(&self, name: &str) -> Vec<String> {
        env::list(&self.get(name).unwrap_or_default().to_string_lossy()).map(str::to_owned).collect()
    }

    /// Value of a variable, parsed.
    ///
    /// # Errors
    /// The variable is set to a value that `parse` does not accept.
    pub fn parse<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, BadVariable> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let parsed = value.to_str().and_then(|text| parse(text.trim()));
        match parsed {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(BadVariable { name, value: value.to_string_lossy().into_owned(), expected }),
        }
    }
}

impl Settings {
    /// The host's process: the worker ends when it does.
    pub(super) fn host(environment: &Environment) -> Result<Option<Pid>, BadVariable> {
        let pid = |text: &str| text.parse::<i32>().ok().filter(|pid| *pid > 0).map(Pid::from_raw);
        environment.parse(env::HOST_PID, "a process id", pid)
    }

    /// Reads the settings.
    ///
    /// # Errors
    /// [`BadVariable`] names the first variable that cannot be used.
    pub fn from_environment(environment: &Environment) -> Result<Self, BadVariable> {
        let exec_timeout = environment.parse(env::EXEC_TIMEOUT, "a number of seconds above 0", seconds)?;
        let max_output_bytes =
            environment.parse(env::MAX_OUTPUT_BYTES, "a number of bytes", |text| text.parse().ok())?;
        // The guard has used these two variables already, but could not report a fault.
        Self::host(environment)?;
        confine(environment)?;
        Ok(Self {
            exec_timeout,
            max_output_bytes: max_output_bytes.unwrap_or(DEFAULT_MAX_OUTPUT_BYTES).max(MIN_MAX_OUTPUT_BYTES),
            session_env: session_environment(environment),
            root_tools: RootTools::from_environment(environment)?,
            limits: Wanted::from_environment(environment)?,
            shared: Shared::from_environment(environment)?,
            checkpoint: environment.parse(env::CHECKPOINT, CHECKPOINT_EXPECTED, checkpoint_bytes)?.flatten(),
            live: LiveOutput::default(),
        })
    }
}

/// The limits of a session's resources that a host wants. None: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Processes and threads of the session.
    pub processes: Option<u64>,
    /// Memory of the session in bytes.
    pub memory: Option<u64>,
    /// Size of a file in bytes.
    pub file_size: Option<u64>,
    /// CPU time of a process in seconds.
    pub cpu: Option<u64>,
}

impl Wanted {
    fn from_environment(environment: &Environment) -> Result<Self, BadVariable> {
        let limit = |name, expected| {
            // The kernel's own limits are signed.
            let above_0 = |text: &str| text.parse::<i64>().ok().and_then(|value| u64::try_from(value).ok());
            environment.parse(name, expected, |text| above_0(text).filter(|value| *value > 0))
        };
        Ok(Self {
            processes: limit(env::LIMIT_PROCESSES, "a whole number of processes above 0")?,
            memory: limit(env::LIMIT_MEMORY, "a whole number of bytes above 0")?,
            file_size: limit(env::LIMIT_FILE_SIZE, "a whole number of bytes above 0")?,
            cpu: limit(env::LIMIT_CPU, "a whole number of seconds above 0")?,
        })
    }
}

/// The paths of a host that a confined session has, besides those of the system, the interpreter and the session itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Paths that it can read.
    pub read: Vec<PathBuf>,
    /// Paths that it can write.
    pub write: Vec<PathBuf>,
    /// Most bytes in each of its own directories for temporary files. None: the default.
    pub tmp_bytes: Option<u64>,
}

/// Sizes of a directory for temporary files: the kernel does not make a smaller one.
const TMP_BYTES: RangeInclusive<u64> = 1 << 16..=1 << 60;

impl Shared {
    fn from_environment(environment: &Environment) -> Result<Self, BadVariable> {
        let expected = "absolute paths, with colons between them";
        let paths = |name| {
            let paths = environment.parse(name, expected, |text| {
                let paths: Vec<_> =
                    std::env::split_paths(text).filter(|path| !path.as_os_str().is_empty()).collect();
                paths.iter().all(|path| path.is_absolute()).then_some(paths)
            });
            paths.map(Option::unwrap_or_default)
        };
        let bytes = |text: &str| text.parse::<u64>().ok().filter(|bytes| TMP_BYTES.contains(bytes));
        Ok(Self {
            read: paths(env::CONFINE_READ)?,
            write: paths(env::CONFINE_WRITE)?,
            tmp_bytes: environment.parse(
                env::CONFINE_TMP,
                "a whole number of bytes from 65536 to 2^60",
                bytes,
            )?,
        })
    }
}

/// The confinement that the host wants.
///
/// # Errors
/// [`BadVariable`].
pub fn confine(environment: &Environment) -> Result<Confine, BadVariable> {
    let wanted = environment.parse(env::CONFINE, Confine::EXPECTED, |text| text.parse().ok())?;
    Ok(wanted.unwrap_or_default())
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0)?;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(MAX_TIMEOUT).min(MAX_TIMEOUT))
}

/// Default `PATH` of a session: the directories of the system.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Shows a page of `man`, in which a letter is bold by a backspace and the letter again. `man` reads `\\` as one.
const WITHOUT_OVERSTRIKES: &str = r"sed s/.\\x08//g";

/// Names of the locale of C with UTF-8: that of sessions whose hosts, such as containers, have none.
const UTF_8: [&str; 2] = ["C.UTF-8", "C.utf8"];

/// Variables by which a shell passes its options to another.
const SHELL_STATE: [&str; 4] = ["SHELLOPTS", "BASHOPTS", "POSIXLY_CORRECT", "BASH_ENV"];

/// Builds the session's environment. It has only those host variables that are named here or in `RLM_PASS_ENV`, so that
/// no API key reaches a session unasked.
fn session_environment(environment: &Environment) -> Vec<(OsString, OsString)> {
    let passed = environment.names(env::PASS_ENV);
    let is_passed = |name: &str| passed.iter().any(|passed| passed == name);
    let mut session: Vec<(OsString, OsString)> = Vec::new();
    env::set(&mut session, "PATH", SYSTEM_PATH);
    for name in ["PAGER", "GIT_PAGER"] {
        env::set(&mut session, name, "cat");
    }
    env::set(&mut session, "MANPAGER", WITHOUT_OVERSTRIKES);
    for (name, value) in &environment.0 {
        let Some(text) = name.to_str() else { continue };
        let allowed = env::is_for_sessions(text) || env::SESSION_NAMES.contains(&text);
        // The host's shell functions and options are for no other shell.
        let is_shells =
            text.starts_with("BASH_FUNC_") || text.starts_with("__rlm") || SHELL_STATE.contains(&text);
        if allowed || is_passed(text) || is_passed("*") && !is_shells {
            env::set(&mut session, name, value);
        }
    }
    let names_locale = |(name, value): &(OsString, OsString)| {
        ["LANG", "LC_ALL", "LC_CTYPE"].iter().any(|own| name == own) && !value.is_empty()
    };
    if !session.iter().any(names_locale)
        && UTF_8.iter().any(|name| Path::new("/usr/lib/locale").join(name).exists())
    {
        env::set(&mut session, "LC_CTYPE", UTF_8[0]);
    }
    let term = environment.get(env::TERM).unwrap_or("dumb".as_ref());
    env::set(&mut session, "TERM", term);
    session
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, BadVariable> {
        let environment = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Settings::from_environment(&environment)
    }

    fn names(settings: &Settings) -> Vec<&str> {
        settings.session_env.iter().map(|(name, _)| name.to_str().unwrap()).collect()
    }

    #[test]
    fn the_session_sees_only_allowed_variables() {
        let host = [
            ("HOME", "/h"),
            ("OPENAI_API_KEY", "k"),
            ("LC_ALL", "C"),
            ("RLM_SUB_MODEL", "m"),
            ("PATH", "/x"),
        ];
        let settings = settings(&host).unwrap();
        assert_eq!(
            names(&settings),
            ["PATH", "PAGER", "GIT_PAGER", "MANPAGER", "HOME", "LC_ALL", "RLM_SUB_MODEL", "TERM"]
        );
        assert_eq!(settings.session_env[0].1, SYSTEM_PATH);
    }

    #[test]
    fn variables_that_the_host_names_are_passed() {
        let host = [("A", "1"), ("B", "2"), ("C", "3"), ("LANG", "C"), ("RLM_PASS_ENV", "A, C")];
        assert_eq!(
            names(&settings(&host).unwrap()),
            ["PATH", "PAGER", "GIT_PAGER", "MANPAGER", "A", "C", "LANG", "TERM"]
        );
        let host = [("A", "1"), ("PATH", "/x"), ("RLM_PASS_ENV", "*")];
        let settings = settings(&host).unwrap();
        assert_eq!(settings.session_env[0], ("PATH".into(), "/x".into()));
        assert!(names(&settings).contains(&"A"));
    }

    #[test]
    fn an_unusable_value_is_named() {
        let error = settings(&[("RLM_EXEC_TIMEOUT", "soon")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "environment variable RLM_EXEC_TIMEOUT is \"soon\", expected a number of seconds above 0"
        );
        assert_eq!(settings(&[("RLM_EXEC_TIMEOUT", "")]).unwrap().exec_timeout, None);
        assert_eq!(
            settings(&[("RLM_EXEC_TIMEOUT", "1.5")]).unwrap().exec_timeout,
            Some(Duration::from_millis(1500))
        );
        assert!(settings(&[("RLM_EXEC_TIMEOUT", "NaN")]).is_err());
        assert!(settings(&[("RLM_HOST_PID", "-1")]).is_err());
    }

    #[test]
    fn limits_are_whole_numbers_above_0() {
        assert_eq!(settings(&[]).unwrap().limits, Wanted::default());
        let limits = settings(&[("RLM_LIMIT_MEMORY", "1048576"), ("RLM_LIMIT_CPU", "60")]).unwrap().limits;
        assert_eq!(limits, Wanted { memory: Some(1 << 20), cpu: Some(60), ..Wanted::default() });
        for bad in ["0", "-1", "1.5", "1G", "9223372036854775808"] {
            let error = settings(&[("RLM_LIMIT_FILE_SIZE", bad)]).unwrap_err();
            let expected = "expected a whole number of bytes above 0";
            assert_eq!(
                error.to_string(),
                format!("environment variable RLM_LIMIT_FILE_SIZE is {bad:?}, {expected}")
            );
        }
    }

    #[test]
    fn root_tools_need_identifiers_and_a_url() {
        let url = ("RLM_ROOT_TOOL_URL", "http://127.0.0.1:1/rollout/a/v1/rlm/tools");
        let names = |names| {
            settings(&[url, ("RLM_ROOT_TOOL_NAMES", names)])
                .map(|settings| settings.root_tools.unwrap().names)
        };
        assert_eq!(names(r#"["llm_batch", "_x1"]"#).unwrap(), ["llm_batch", "_x1"]);
        for bad in ["llm_batch", "[1]", r#"["a b"]"#, r#"["1a"]"#, r#"[""]"#, r#"["a", "a"]"#, r#"["é"]"#] {
            let error = names(bad).unwrap_err();
            assert_eq!(error.name, "RLM_ROOT_TOOL_NAMES", "{bad}");
        }
        assert!(settings(&[]).unwrap().root_tools.is_none());
        assert_eq!(settings(&[("RLM_ROOT_TOOL_NAMES", r#"["a"]"#)]).unwrap_err().name, "RLM_ROOT_TOOL_URL");
        assert_eq!(settings(&[("RLM_ROOT_TOOL_URL", "https://x/")]).unwrap_err().name, "RLM_ROOT_TOOL_URL");
        let tools = settings(&[url, ("RLM_INTERCEPTION_SECRET", "s3cret")]).unwrap().root_tools.unwrap();
        assert!(!format!("{tools:?} {:?}", tools.endpoint().unwrap()).contains("s3cret"));
        let error = settings(&[url, ("RLM_INTERCEPTION_SECRET", "s3cret\n\nX")]).unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}
