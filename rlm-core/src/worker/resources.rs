//! Limits of a session's resources, and its usage of them.
//!
//! A session has a cgroup (version 2) of its own where one can be created: it limits memory and processes of the whole
//! session, as far as the cgroup has the controllers, and counts CPU time. Everything else is a resource limit
//! (`setrlimit`) that every process of the session inherits: for each process by itself, and for processes of the whole
//! user. The processes of a fully confined session are limited by its namespaces, without being asked.
//!
//! Guard and server find the cgroup by its name, so that either can remove it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::time::TimeValLike as _;
use nix::unistd::{Pid, Uid, getuid};

use super::descendants;
use super::settings::{Environment, Wanted};
use crate::env;
use crate::protocol::{ConfinementLevel, Limit, Limits, Mechanism, Usage};

/// Most processes and threads of a session that is confined, or has a cgroup that its host names, if no other limit is wanted.
const DEFAULT_PROCESSES: u64 = 1024;

/// Process ids of a namespace that the kernel gives only once, to the first processes (`RESERVED_PIDS`).
const RESERVED_PIDS: u64 = 300;

/// Thousandths of all memory that the kernel, when it is out of memory, adds to what a session uses: half of it. So a session ends
/// before its host and others, unless one of them has taken more than that.
const OOM_SCORE: i32 = 500;

/// Time that killed processes have to leave a cgroup, so that it can be removed.
const REMOVAL_LIMIT: Duration = Duration::from_millis(500);

/// Interval at which the removal is tried.
const REMOVAL_INTERVAL: Duration = Duration::from_millis(5);

/// The limits in force for a session.
#[derive(Clone, Debug, Default)]
pub struct ResourceLimits {
    limits: Limits,
    /// Soft and hard limits of each process.
    rlimits: Vec<(Resource, u64, u64)>,
    cgroup: Option<Cgroup>,
}

impl ResourceLimits {
    /// Limits for the processes that will [enter](Entry::enter). Creates the cgroup, if there is one. `has_default` has the number
    /// of processes limited if no limit of it is wanted. A confined session has a level, and a user outside of its namespaces.
    ///
    /// # Errors
    /// The cgroup cannot be created.
    pub fn new(
        wanted: Wanted,
        has_default: bool,
        cgroup: Option<Cgroup>,
        confined: Option<(ConfinementLevel, Uid)>,
    ) -> Result<Self, CgroupError> {
        let processes = wanted.processes.or(has_default.then_some(DEFAULT_PROCESSES));
        if let Some(cgroup) = &cgroup {
            cgroup.create(Wanted { processes, ..wanted })?;
        }
        let mut new = Self { cgroup, ..Self::default() };
        new.limits.memory_bytes = wanted.memory.map(|bytes| {
            new.by_cgroup("memory.max", bytes).unwrap_or_else(|| new.by_rlimit(Resource::RLIMIT_AS, bytes, 0))
        });
        new.limits.processes =
            processes.map(|count| new.limit_processes(count, wanted.processes.is_some(), confined));
        new.limits.file_size_bytes =
            wanted.file_size.map(|bytes| new.by_rlimit(Resource::RLIMIT_FSIZE, bytes, 0));
        // SIGXCPU at the limit lets a shell save its state; SIGKILL follows a second later.
        new.limits.cpu_seconds = wanted.cpu.map(|seconds| new.by_rlimit(Resource::RLIMIT_CPU, seconds, 1));
        Ok(new)
    }

    fn limit_processes(
        &mut self,
        count: u64,
        is_wanted: bool,
        confined: Option<(ConfinementLevel, Uid)>,
    ) -> Limit {
        if let Some(limit) = self.by_cgroup("pids.max", count) {
            return limit;
        }
        let has_namespaces = matches!(confined, Some((ConfinementLevel::Full, _)));
        // Inside of new namespaces, this process has no user yet.
        let user = confined.map_or_else(getuid, |(_, user)| user);
        // The kernel does not apply this limit to root. In a user namespace, it counts the session's processes alone.
        if !user.is_root() && if has_namespaces { is_kernel(5, 14) } else { is_wanted } {
            return self.by_rlimit(Resource::RLIMIT_NPROC, count, 0);
        }
        // Before, root would change the number for the whole host.
        let is_of_namespace = has_namespaces
            && is_kernel(6, 14)
            && fs::write("/proc/sys/kernel/pid_max", (count + RESERVED_PIDS).to_string()).is_ok();
        Limit { value: count, mechanism: is_of_namespace.then_some(Mechanism::PidNamespace) }
    }

    fn by_cgroup(&self, file: &str, value: u64) -> Option<Limit> {
        let is_set = self.cgroup.as_ref()?.write(file, &value.to_string()).is_ok();
        is_set.then_some(Limit { value, mechanism: Some(Mechanism::Cgroup) })
    }

    /// The hard limit is `above` the soft one, but never above what this process has.
    fn by_rlimit(&mut self, resource: Resource, value: u64, above: u64) -> Limit {
        let most = getrlimit(resource).map_or(value, |(_, hard)| hard);
        let value = value.min(most);
        self.rlimits.push((resource, value, value.saturating_add(above).min(most)));
        Limit { value, mechanism: Some(Mechanism::Rlimit) }
    }

    /// Prepares the entry of one process.
    ///
    /// # Errors
    /// The cgroup is gone, or the process is out of descriptors.
    pub fn entry(&self) -> io::Result<Entry> {
        let open = |cgroup: &Cgroup| OpenOptions::new().write(true).open(cgroup.dir.join("cgroup.procs"));
        Ok(Entry {
            rlimits: self.rlimits.clone(),
            cgroup: self.cgroup.as_ref().map(open).transpose()?.map(OwnedFd::from),
            ignores_file_size_signal: self.limits.file_size_bytes.is_some(),
        })
    }

    /// The directory of the session's cgroup.
    pub(super) fn cgroup_dir(&self) -> Option<&Path> {
        self.cgroup.as_ref().map(|cgroup| &*cgroup.dir)
    }

    /// Kills what is left in the session's cgroup, and removes it.
    pub fn remove_cgroup(&self) {
        // If processes are left there, the sweep of the session's processes could not end them either.
        let _removed = self.cgroup.as_ref().is_none_or(Cgroup::remove);
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The most that the session has used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let cgroup = self.cgroup.as_ref();
        let counted = cgroup.and_then(|cgroup| cgroup.field("cpu.stat", "usage_usec"));
        Usage {
            peak_processes: cgroup.and_then(|cgroup| cgroup.number("pids.peak")),
            peak_memory_bytes: cgroup.and_then(|cgroup| cgroup.number("memory.peak")),
            cpu_seconds: counted.map_or_else(cpu_seconds_of_children, |micros| Some(micros as f64 / 1e6)),
        }
    }

    /// Number of processes of the session that the kernel has killed for the limit of memory.
    #[must_use]
    pub fn memory_kills(&self) -> u64 {
        self.cgroup.as_ref().and_then(|cgroup| cgroup.field("memory.events", "oom_kill")).unwrap_or(0)
    }
}

/// The means by which one process comes under the limits.
#[derive(Debug)]
pub struct Entry {
    rlimits: Vec<(Resource, u64, u64)>,
    cgroup: Option<OwnedFd>,
    ignores_file_size_signal: bool,
}

impl Entry {
    /// Puts this process under the limits. Async-signal-safe.
    ///
    /// # Errors
    /// The kernel refuses a limit, or the move to the cgroup.
    pub fn enter(&self) -> io::Result<()> {
        if let Some(procs) = &self.cgroup {
            nix::unistd::write(procs, b"0")?;
        }
        for (resource, soft, hard) in &self.rlimits {
            setrlimit(*resource, *soft, *hard)?;
        }
        if self.ignores_file_size_signal {
            // Programs say "File too large". An interactive bash has a handler of its own, which ends it.
            // SAFETY: no handler is installed.
            unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }?;
        }
        Ok(())
    }
}

/// Has the kernel, out of memory, end this process and all that it starts before its host and others. Whoever wants that more for
/// itself has said so already.
pub fn offer_memory() {
    const FILE: &str = "/proc/self/oom_score_adj";
    let own = fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if own.is_some_and(|own| own < OOM_SCORE) {
        // Where it cannot be raised, the kernel chooses by the use of memory alone.
        let _by_use_alone = fs::write(FILE, OOM_SCORE.to_string());
    }
}

/// True if the kernel is of this version or a newer one.
fn is_kernel(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// CPU time of everything that this process has started, in seconds: of what has ended, and of what is running.
fn cpu_seconds_of_children() -> Option<f64> {
    let ended = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let ended = (ended.user_time() + ended.system_time()).num_microseconds() as f64 / 1e6;
    // User and system time, of the process and of its own children that have ended.
    let running = descendants::below(Pid::this()).into_iter();
    let ticks: u64 =
        running.filter_map(|pid| descendants::stat_fields(pid, [14, 15, 16, 17])).flatten().sum();
    Some(ended + ticks as f64 / descendants::ticks_per_second() as f64)
}

/// A cgroup that cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the cgroup {}", dir.display())]
pub struct CgroupError {
    dir: PathBuf,
    source: io::Error,
}

/// A cgroup of version 2.
#[derive(Clone, Debug)]
pub struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Names the cgroup of the session that a guard guards: in the directory of [`env::CGROUP`], or in the cgroup of this
    /// process. None if the system has no cgroups of version 2. Nothing is created yet.
    #[must_use]
    pub fn of_session(environment: &Environment, guard: Pid) -> Option<Self> {
        let parent = environment.path(env::CGROUP).or_else(|| {
            let [cgroup, mounts] =
                ["cgroup", "mountinfo"].map(|file| fs::read_to_string(format!("/proc/self/{file}")));
            own_cgroup(&cgroup.ok()?, &mounts.ok()?)
        })?;
        // The start time tells the guard from other processes with its id, earlier or in another PID namespace.
        let [started] = descendants::stat_fields(guard, [22])?;
        Some(Self { dir: parent.join(format!("rlm-session-{guard}-{started}")) })
    }

    fn create(&self, wanted: Wanted) -> Result<(), CgroupError> {
        let parent = Self { dir: self.dir.parent().unwrap_or(Path::new("/")).to_owned() };
        // With the controller cpu, sessions share the processors as equals, however many processes one of them has.
        for (is_wanted, controller) in
            [(true, "+cpu"), (wanted.memory.is_some(), "+memory"), (wanted.processes.is_some(), "+pids")]
        {
            if is_wanted {
                // The kernel refuses if the controller is missing, or if the parent has processes. Then the cgroup
                // lacks the controller's files.
                let _lacks_controller = parent.write("cgroup.subtree_control", controller);
            }
        }
        fs::create_dir(&self.dir).map_err(|source| CgroupError { dir: self.dir.clone(), source })?;
        if wanted.memory.is_some() {
            // Otherwise the limit would only move the session's memory to the swap space.
            let _no_swap_or_no_controller = self.write("memory.swap.max", "0");
        }
        Ok(())
    }

    /// Kills what is left in the cgroup, and removes it. True if it is gone.
    pub fn remove(&self) -> bool {
        let deadline = Instant::now() + REMOVAL_LIMIT;
        loop {
            match fs::remove_dir(&self.dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {}
                Err(error) => return error.kind() == io::ErrorKind::NotFound,
                Ok(()) => return true,
            }
            // A kernel before 5.14 has no such file, but the processes are gone unless they have escaped the worker.
            let _old_kernel = self.write("cgroup.kill", "1");
            std::thread::sleep(REMOVAL_INTERVAL);
        }
    }

    /// Writes a file that the kernel provides.
    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let mut file: File = OpenOptions::new().write(true).open(self.dir.join(file))?;
        file.write_all(value.as_bytes())
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.dir.join(file)).ok()?.trim().parse().ok()
    }

    fn field(&self, file: &str, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.dir.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }
}

/// The directory of a process's cgroup, from its `cgroup` and `mountinfo` of proc(5).
fn own_cgroup(cgroup: &str, mounts: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mut fields = mount.split(' ').skip(3);
    let (root, place) = (fields.next()?, fields.next()?);
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(place).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_below_the_mount() {
        let mounts = "25 1 0:22 / /proc rw - proc proc rw\n57 47 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let own = |cgroup| own_cgroup(cgroup, mounts);
        assert_eq!(own("0::/"), Some("/sys/fs/cgroup/unified/".into()));
        assert_eq!(own("8:pids:/x\n0::/a/b c\n"), Some("/sys/fs/cgroup/unified/a/b c".into()));
        assert_eq!(own("8:pids:/x\n"), None);
        let mounts = "57 47 0:38 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(own_cgroup("0::/docker/1/a\n", mounts), Some("/sys/fs/cgroup/a".into()));
        assert_eq!(own_cgroup("0::/elsewhere\n", mounts), None);
        assert_eq!(own_cgroup("0::/", ""), None);
    }

    /// A directory with the files of a cgroup that has these controllers, as a session's cgroup would be.
    fn cgroup(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let cgroup = Cgroup { dir: dir.path().to_owned() };
        (dir, cgroup)
    }

    #[test]
    fn a_cgroup_with_controllers_limits_and_counts() {
        let (dir, cgroup) = cgroup(&[
            ("memory.max", "max\n"),
            ("memory.peak", "4096\n"),
            ("memory.events", "low 0\noom 2\noom_kill 1\noom_group_kill 0\n"),
            ("pids.max", "max\n"),
            ("pids.peak", "7\n"),
            ("cpu.stat", "usage_usec 1500000\nuser_usec 0\n"),
        ]);
        let resource_limits = ResourceLimits { cgroup: Some(cgroup), ..ResourceLimits::default() };
        let limit = |value| Some(Limit { value, mechanism: Some(Mechanism::Cgroup) });
        assert_eq!(resource_limits.by_cgroup("memory.max", 1 << 20), limit(1 << 20));
        assert_eq!(resource_limits.by_cgroup("pids.max", 9), limit(9));
        let written = |name| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(written("memory.max").starts_with("1048576"));
        assert!(written("pids.max").starts_with('9'));
        let used = Usage { peak_processes: Some(7), peak_memory_bytes: Some(4096), cpu_seconds: Some(1.5) };
        assert_eq!((resource_limits.usage(), resource_limits.memory_kills()), (used, 1));
    }

    #[test]
    fn a_limit_without_its_controller_is_set_for_each_process() {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = Cgroup { dir: dir.path().join("session") };
        let wanted = Wanted { memory: Some(1 << 30), cpu: Some(60), ..Wanted::default() };
        let resource_limits = ResourceLimits::new(wanted, false, Some(cgroup.clone()), None).unwrap();
        let limit = |value| Some(Limit { value, mechanism: Some(Mechanism::Rlimit) });
        let limits = Limits { memory_bytes: limit(1 << 30), cpu_seconds: limit(60), ..Limits::default() };
        assert_eq!(resource_limits.limits(), limits);
        let rlimits = [(Resource::RLIMIT_AS, 1 << 30, 1 << 30), (Resource::RLIMIT_CPU, 60, 61)];
        assert_eq!(resource_limits.rlimits, rlimits);
        let error = ResourceLimits::new(wanted, false, Some(cgroup.clone()), None).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot create the cgroup {}", cgroup.dir.display()));
        assert!(cgroup.remove());
        assert!(!cgroup.dir.exists());
    }
}
