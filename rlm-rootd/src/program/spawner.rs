//! Starts and reaps programs, in a thread of its own.
//!
//! The kernel sends a parent-death signal when the *thread* that forked ends. A runtime's threads may come and go, so one
//! thread forks for all. It ends when no tool needs it and no program runs.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rlm_core::sys::tie_to_parent;
use tokio::sync::oneshot;

/// Interval between looks at a killed program that has not ended yet.
const REAP_EVERY: Duration = Duration::from_millis(20);

enum Order {
    Start {
        command: Box<Command>,
        orders: Sender<Self>,
        reply: oneshot::Sender<io::Result<Program>>,
        /// Dropped when the reply is sent, or the program is killed since nobody wants it.
        handled: Sender<()>,
    },
    Reap(Child),
    /// Dropped when no killed program is left.
    Wait(oneshot::Sender<()>),
}

/// The thread that starts programs.
#[derive(Debug)]
pub(crate) struct Spawner {
    orders: Sender<Order>,
}

impl Spawner {
    /// Starts the thread. Programs get the limit of descriptors that this process has now.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, received) = channel();
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE)?;
        let thread = thread::Builder::new().name("rlm-rootd-spawn".to_owned());
        thread.spawn(move || serve(&received, descriptors))?;
        Ok(Self { orders })
    }

    /// Starts a program in a process group of its own. The program is killed when this process dies. If the future is dropped,
    /// the group is killed before the drop returns: the kernel kills the program alone, and not what it has started.
    pub(crate) async fn spawn(&self, command: Command) -> io::Result<Program> {
        let (reply, replied) = oneshot::channel();
        let (handled, when_handled) = channel();
        let gone = || io::Error::other("the thread that starts programs has ended");
        let order = Order::Start { command: Box::new(command), orders: self.orders.clone(), reply, handled };
        self.orders.send(order).map_err(|_gone| gone())?;
        // Dropped after what waits for the reply, which the thread then finds closed.
        let _until_handled = UntilHandled(when_handled);
        replied.await.map_err(|_gone| gone())?
    }

    /// Completes when all programs that were dropped before are gone.
    pub(crate) async fn reaped(&self) {
        let (gone, all_gone) = oneshot::channel();
        if self.orders.send(Order::Wait(gone)).is_ok() {
            // The thread drops its end of the channel.
            let _dropped = all_gone.await;
        }
    }
}

/// Waits for the end of an order's work when it is dropped.
struct UntilHandled(Receiver<()>);

impl Drop for UntilHandled {
    fn drop(&mut self) {
        // Nothing is sent: the other end is dropped.
        let _handled = self.0.recv();
    }
}

fn serve(orders: &Receiver<Order>, descriptors: (rlim_t, rlim_t)) {
    let mut killed: Vec<Child> = Vec::new();
    let mut waiting = Vec::new();
    loop {
        let order = if killed.is_empty() {
            orders.recv().map_err(RecvTimeoutError::from)
        } else {
            orders.recv_timeout(REAP_EVERY)
        };
        match order {
            Ok(Order::Start { reply, .. }) if reply.is_closed() => {}
            Ok(Order::Start { mut command, orders, reply, handled }) => {
                let started = start(&mut command, descriptors);
                let program = started.map(|child| Program { child: Some(child), orders });
                if let Err(Ok(mut program)) = reply.send(program) {
                    // The caller is gone.
                    killed.extend(program.kill());
                }
                drop(handled);
            }
            Ok(Order::Reap(child)) => killed.push(child),
            Ok(Order::Wait(gone)) => waiting.push(gone),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        killed.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if killed.is_empty() {
            waiting.clear();
        }
    }
    for mut child in killed {
        // The child was killed: nothing needs its status.
        let _ended = child.wait();
    }
}

fn start(command: &mut Command, (soft, hard): (rlim_t, rlim_t)) -> io::Result<Child> {
    let parent = Pid::this();
    let prepare = move || {
        tie_to_parent(parent, Signal::SIGKILL)?;
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        Ok(())
    };
    // SAFETY: prctl, getppid and setrlimit are async-signal-safe, and nothing here allocates.
    unsafe { command.pre_exec(prepare) };
    command.process_group(0).spawn()
}

/// A running program. Dropping it kills its process group and has it reaped.
#[derive(Debug)]
pub(crate) struct Program {
    /// The child. None once it is reaped, or handed over to be reaped.
    child: Option<Child>,
    orders: Sender<Order>,
}

impl Program {
    pub(crate) fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it is taken by `end` and drop alone")
    }

    /// Sends a signal to the program's process group.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            signal_group(child, signal);
        }
    }

    /// Kills what is left of the group of a program that has exited, and reaps it.
    pub(crate) fn end(mut self) -> io::Result<ExitStatus> {
        self.kill().expect("it is taken by `end` and drop alone").wait()
    }

    /// Kills the program's group, and gives the child away to be reaped.
    fn kill(&mut self) -> Option<Child> {
        let child = self.child.take()?;
        signal_group(&child, Signal::SIGKILL);
        Some(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let Some(child) = self.kill() else { return };
        // The thread lives as long as there are senders.
        let _thread_panicked = self.orders.send(Order::Reap(child));
    }
}

/// A child that is not reaped yet keeps the id of its group from being given to others.
fn signal_group(child: &Child, signal: Signal) {
    let Ok(pid) = i32::try_from(child.id()) else { return };
    // This fails for a group in which everything has ended.
    let _all_gone = killpg(Pid::from_raw(pid), signal);
}
