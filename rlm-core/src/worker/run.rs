//! The life of a server, from its settings to its end.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use nix::unistd::{Pid, Uid};

use super::channel::Channel;
use super::confine::{self, Failed};
use super::events::{Above, Events};
use super::exit::Exit;
use super::guard::Confining;
use super::interpreter::{Description, Program};
use super::live::LiveOutput;
use super::log::{Log, print_error};
use super::pipes::path_of;
use super::resources::{Cgroup, ResourceLimits};
use super::serve::{empty, serve, unpack};
use super::settings::{Environment, Settings, Wanted};
use super::supervisor::Supervisor;
use super::{descendants, resources};
use crate::control::ControlDir;
use crate::env;
use crate::error::with_causes;
use crate::programs;
use crate::protocol::{Confine, Confinement, ConfinementLevel, Context, HistorySession, Limit};
use crate::saved::Saved;

/// Exit status if the session cannot be started or served.
pub(super) const CANNOT_SERVE: u8 = 3;

/// The process that a server was forked from.
pub(super) enum Origin {
    /// Its own guard, and the reason if it was not forked from another one as wanted.
    None(Option<String>),
    ForkServer,
    /// The session of which it is a branch. The file has what is not in its memory.
    Session(File),
}

/// Serves until the worker ends, logs the reason, and returns the exit status. A directory that is not a session's gets no log.
pub(super) fn run<P: Program>(
    mut program: P,
    control: &ControlDir,
    environment: &Environment,
    ready: Option<OwnedFd>,
    above: Above,
    (confine, confining): (Confine, Confining),
    origin: Origin,
) -> u8 {
    let (mut task, mut log) = match begin(control, environment) {
        Ok((task, file)) => (task, Log::new(P::NAME, file)),
        Err(exit) => {
            print_error(format_args!("{}: {}", P::NAME, with_causes(&exit)));
            return CANNOT_SERVE;
        }
    };
    let branch = match origin {
        Origin::None(why) if environment.get(env::BRANCH_NAME).is_some() => {
            let why = why.unwrap_or_else(|| "the worker cannot be forked".to_owned());
            let rule = "a branch takes one worker, while its session is there, and for 30 s at most";
            log.failure(format_args!("the session cannot begin as a branch: {why}; {rule}"));
            return CANNOT_SERVE;
        }
        Origin::None(Some(why)) => {
            log.line(format_args!("the session was started without the fork server: {why}"));
            None
        }
        Origin::None(None) | Origin::ForkServer => None,
        Origin::Session(saved) => Some(saved),
    };
    // A confined session reaches neither its score nor its cgroup.
    resources::offer_memory();
    let confined = match &confining {
        Confining::In { level, user, .. } => Some((*level, user.0)),
        _ => None,
    };
    let limits = limit(task.0.limits, confined, environment, above.guard, &mut log);
    let ready_to_serve = limits.and_then(|limits| {
        let entered =
            enter(&mut program, control, environment, &mut task, (confine, confining), &limits, &mut log);
        entered.map(|confinement| (limits, confinement))
    });
    let served = match ready_to_serve {
        Ok((limits, None)) => {
            limits.remove_cgroup();
            return 0;
        }
        Ok((limits, Some(confinement))) => start_and_serve(
            program,
            control,
            environment,
            (task, branch),
            ready,
            (above, limits, confinement),
            &mut log,
        ),
        Err(exit) => Err(exit),
    };
    let exit = served.unwrap_or_else(|exit| exit);
    let code = match &exit {
        Exit::Shutdown | Exit::HostGone => 0,
        Exit::Signalled(signal) => 128 + *signal as u8,
        Exit::Failed(_) => CANNOT_SERVE,
    };
    match exit {
        Exit::Failed(_) => log.failure(with_causes(&exit)),
        exit => log.line(exit),
    }
    code
}

/// Reads the task of the worker, and then opens its log.
fn begin(control: &ControlDir, environment: &Environment) -> Result<((Settings, Context), File), Exit> {
    let settings = Settings::from_environment(environment).map_err(Exit::failed)?;
    let context = control.read_context().map_err(Exit::failed)?;
    let log = control.open_log().map_err(Exit::failed)?;
    Ok(((settings, context), log))
}

/// Confines this process as far as wanted and possible. None: this process has to end, and another one takes its place.
///
/// # Errors
/// [`Exit::Failed`] if the confinement that is wanted cannot be had.
fn enter<P: Program>(
    program: &mut P,
    control: &ControlDir,
    environment: &Environment,
    (settings, context): &mut (Settings, Context),
    (wanted, confining): (Confine, Confining),
    limits: &ResourceLimits,
    log: &mut Log,
) -> Result<Option<Confinement>, Exit> {
    let in_words =
        |failures: &[Failed]| failures.iter().map(Failed::to_string).collect::<Vec<_>>().join("; ");
    let (level, before, link, user) = match confining {
        Confining::No => return Ok(Some(Confinement::default())),
        Confining::Cannot(failures) if wanted == Confine::Try => {
            log.line(format_args!("the session is not confined: {}", in_words(&failures)));
            return Ok(Some(Confinement::default()));
        }
        Confining::Cannot(failures) => return Err(cannot_confine(wanted, &in_words(&failures))),
        Confining::In { level, before, link, user } => (level, before, link, user),
    };
    let programs = programs::directory(environment.path(env::BIN_DIR).as_deref()).map_err(Exit::failed)?;
    let mut needs = program.needs(environment, &programs)?;
    needs.push(programs);
    confine::check_paths(settings, context, control.path(), &needs).map_err(Exit::failed)?;
    settings.shared.write.extend(limits.cgroup_dir().map(Path::to_owned));
    match confine::enter(level, settings, context, control, needs, (&link, user)) {
        Ok(confinement) => {
            let landlock = confinement
                .landlock
                .map_or("no Landlock".to_owned(), |version| format!("Landlock {version}"));
            let namespaces = match level {
                ConfinementLevel::Full => "namespaces".to_owned(),
                _ if before.is_empty() => "no namespaces".to_owned(),
                _ => format!("no namespaces ({})", in_words(&before)),
            };
            log.line(format_args!(
                "the session is confined: {namespaces}, {landlock}, a filter of system calls"
            ));
            Ok(Some(confinement))
        }
        Err(failed) => match failed.path() {
            Some(path) => Err(Exit::failed(format!(
                "a confined session cannot have {path}: it lies behind a link, or has been moved ({}); share where it leads",
                failed.errno
            ))),
            None if wanted == Confine::Try => {
                // The guard starts another server, which logs the failure.
                let _guard_gone = (&link).write_all(&failed.to_bytes());
                Ok(None)
            }
            None => Err(cannot_confine(wanted, &failed.to_string())),
        },
    }
}

fn cannot_confine(wanted: Confine, why: &str) -> Exit {
    let other = match wanted {
        Confine::Full => "landlock needs no namespaces",
        _ => "full needs namespaces and no Landlock",
    };
    let words = format!("{}={wanted} cannot be had here: {why}", env::CONFINE);
    Exit::failed(format!("{words}; {other}, try takes what can be had, off does without"))
}

/// Serves until the worker ends, and returns the reason. An error means that no call could be taken.
fn start_and_serve<P: Program>(
    program: P,
    control: &ControlDir,
    environment: &Environment,
    ((settings, context), branch): ((Settings, Context), Option<File>),
    ready: Option<OwnedFd>,
    (above, resource_limits, confinement): (Above, ResourceLimits, Confinement),
    log: &mut Log,
) -> Result<Exit, Exit> {
    let settings = Settings { live: LiveOutput::of(control), ..settings };
    let root = context.fs_root.clone();
    let branch = branch.map(|saved| branch_of(saved, &root)).transpose()?;
    let has_unpacked = branch.as_ref().is_some_and(|saved| saved.header().directory.is_some());
    let answer = match &branch {
        Some(saved) => Some(saved.header().answer.clone()),
        None => control.read_answer().unwrap_or_else(|error| {
            log.line(format_args!("{}; the session begins with an empty answer", with_causes(&error)));
            None
        }),
    };
    let workdir = context.fs_root.to_string_lossy().into_owned();
    let root_tools = settings.root_tools.iter().flat_map(|tools| tools.names.clone()).collect();
    let exec_timeout = settings.exec_timeout;
    let events = Events::new(above)?;
    // The FIFOs come first: a host that restarts a worker may not wait for the ready flag.
    let mut channel = Channel::open(control)?;
    let answer = answer.unwrap_or_default();
    let config = program.configure(environment, settings, context, answer, resource_limits.clone())?;
    let started =
        Supervisor::<P::Interpreter>::start(config, resource_limits.clone(), exec_timeout, control, &events);
    let mut session = started.inspect_err(|_exit| {
        descendants::end_all();
        if has_unpacked {
            empty(&root);
        }
    })?;
    let Description { language, version, has_final_functions, .. } = session.describe();
    let history_session = HistorySession {
        language: language.to_owned(),
        version,
        fs_root: workdir,
        root_tools,
        final_functions: has_final_functions,
    };
    let on_ready = || {
        if let Some(ready) = ready {
            // If the host has closed its end, it is not waiting either.
            let _not_listening = File::from(ready).write_all(b"ready\n");
        }
    };
    let exit = serve(
        &mut session,
        (history_session, confinement, branch),
        control,
        &mut channel,
        &events,
        log,
        on_ready,
    );
    // Otherwise the flag is that of the worker that took this one's place.
    if !channel.is_replaced()
        && let Err(error) = control.clear_ready()
    {
        log.line(with_causes(&error));
    }
    // Terminal and pipes are closed first: the session's processes get SIGHUP, and exit hooks do not wait for us.
    drop(session);
    if !descendants::end_all() {
        log.line("some processes of the session could not be ended");
    }
    // The guard removes the cgroup too, unless it was killed.
    resource_limits.remove_cgroup();
    Ok(exit)
}

/// The part of a branch that is not in its memory. Its directory is unpacked, if it is a copy.
fn branch_of(saved: File, root: &Path) -> Result<Saved, Exit> {
    let saved = Saved::open(Path::new(&path_of(saved.as_raw_fd()))).map_err(Exit::failed)?;
    unpack(&saved, root).map_err(Exit::failed)?;
    Ok(saved)
}

/// Puts limits into force for the session, in a cgroup if one can be created, and logs where they are weaker than wanted.
///
/// # Errors
/// [`Exit::Failed`] if no cgroup can be created where the host wants it.
fn limit(
    wanted: Wanted,
    confined: Option<(ConfinementLevel, Uid)>,
    environment: &Environment,
    guard: Pid,
    log: &mut Log,
) -> Result<ResourceLimits, Exit> {
    let has_cgroup = has_cgroup(environment);
    if !has_cgroup && confined.is_none() {
        return Ok(ResourceLimits::default());
    }
    let cgroup = has_cgroup.then(|| Cgroup::of_session(environment, guard)).flatten();
    let is_named = environment.get(env::CGROUP).is_some();
    let has_default = confined.is_some() || is_named;
    let resource_limits = match ResourceLimits::new(wanted, has_default, cgroup, confined) {
        Err(error) if !is_named => {
            log.line(format_args!("the limits are those of each process: {}", with_causes(&error)));
            ResourceLimits::new(wanted, has_default, None, confined)
        }
        created => created,
    };
    let resource_limits = resource_limits.map_err(Exit::failed)?;
    if let Some(Limit { value, mechanism: None }) = resource_limits.limits().processes {
        log.line(format_args!(
            "the limit of {value} processes ({}) has no effect here: it takes a cgroup with the controller pids ({}), or \
             full confinement and Linux 6.14, or 5.14 for other users than root",
            env::LIMIT_PROCESSES,
            env::CGROUP
        ));
    }
    Ok(resource_limits)
}

/// True if the session gets a cgroup of its own where one can be made.
fn has_cgroup(environment: &Environment) -> bool {
    env::LIMITS.iter().chain([&env::CGROUP]).any(|name| environment.get(name).is_some())
}

/// Removes the cgroup of the session that this process guards, if it has one.
pub(super) fn remove_cgroup(environment: &Environment) {
    if has_cgroup(environment)
        && let Some(cgroup) = Cgroup::of_session(environment, Pid::this())
    {
        // If processes are left there, the sweep of the session's processes could not end them either.
        let _removed = cgroup.remove();
    }
}
