use std::fs::File;
use std::io::Read as _;
use std::thread;

use nix::fcntl::{FcntlArg, fcntl};
use tempfile::TempDir;

use super::*;

fn fifos() -> (TempDir, ResponseFifos) {
    let dir = tempfile::tempdir().unwrap();
    let fifos = ResponseFifos::make(&ControlDir::new(dir.path())).unwrap();
    (dir, fifos)
}

fn open(path: &Path) -> File {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap()
}

/// Everything up to end of file; an error if that does not come.
fn read_to_end(mut reader: &File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    reader.read_to_end(&mut text).map(|_length| text)
}

#[test]
fn a_fifo_that_is_held_for_writing_too_is_found_once_it_was_read() {
    let (_dir, mut fifos) = fifos();
    let holder = File::options().read(true).write(true).open(fifos.path()).unwrap();
    let mut first = fifos.target().unwrap();
    first.write(b"first").unwrap();
    fifos.finish(first);
    // The response may be a slow reader's, and must not be read.
    assert!(fifos.target().is_none() && fifos.may_be_held());
    (&holder).read_exact(&mut [0; 5]).unwrap();
    for _ in 0..3 {
        let target = fifos.target().unwrap();
        assert!(target.is_held && !fifos.spare_path.exists());
        fifos.finish(target);
    }
    let reader = open(fifos.path());
    let target = fifos.target().unwrap();
    assert!(!target.is_held);
    drop(reader);
    fifos.abandon(target);
    assert!(fifos.target().unwrap().is_held);
    drop(holder);
    assert!(fifos.target().is_none() && !fifos.may_be_held());
}

#[test]
fn without_a_next_fifo_one_serves_again() {
    let (dir, mut fifos) = fifos();
    fifos.remove_spare();
    let planted = dir.path().join("rlm_res.new");
    fs::create_dir(&planted).unwrap();
    for text in [b"first", b"other"] {
        let reader = open(fifos.path());
        let mut target = fifos.target().unwrap();
        target.write(text).unwrap();
        fifos.finish(target);
        assert_eq!(read_to_end(&reader).unwrap(), text);
    }
    fs::remove_dir(&planted).unwrap();
    let reader = open(fifos.path());
    let target = fifos.target().unwrap();
    assert!(fifos.current.is_some());
    fifos.finish(target);
    assert_eq!(read_to_end(&reader).unwrap(), b"");
}

/// A look takes several steps: a host may read and close between two of them.
#[test]
fn a_host_that_reads_one_byte_and_closes_at_once_has_begun() {
    let (_dir, mut fifos) = fifos();
    for _ in 0..1_000 {
        let mut reader = open(fifos.path());
        let mut target = fifos.target().unwrap();
        target.write(b"response").unwrap();
        let host = thread::spawn(move || reader.read_exact(&mut [0]).unwrap());
        let fate = loop {
            let fate = fifos.fate(&target).unwrap();
            if fate != Fate::Waiting {
                break fate;
            }
        };
        host.join().unwrap();
        assert_eq!(fate, Fate::Begun);
        fifos.finish(target);
    }
}

// Every order of the steps of a host and of the worker.
//
// The faults that a FIFO of its own for each response rules out were races, which tests with two processes met once in
// thousands of calls. Each step here is one system call or a few that do not wait, so both sides run in one thread, and a
// small scheduler takes every order of their steps in turn. There is no clock, since no decision depends on the time:
// what has to wait is a step that makes no progress, and if neither side makes any, the order has found a deadlock.

/// One step of a host.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sends the next request.
    Send,
    /// Opens the path in this slot.
    Open(usize),
    /// Opens the path for reading and writing.
    Hold(usize),
    /// A process that the host forks has the reader of the first slot in the second.
    Fork(usize, usize),
    /// Closes a slot.
    Close(usize),
    /// Reads one byte if there is one.
    Taste(usize),
    /// Reads one response up to end of file, which must be whole, alone, and this one or a late one. A late one is
    /// followed by another reading.
    Read(usize, u8),
    /// Reads one response without waiting for end of file.
    Take(usize, u8),
}

/// Steps of which every order is taken; after them the host goes first.
const ORDERED_STEPS: usize = 11;

/// Bytes of a response: more than the smallest FIFO holds if `is_large`.
fn response(number: u8, is_large: bool) -> Vec<u8> {
    vec![b'0' + number; if is_large { 10_000 } else { 100 }]
}

/// A worker that answers each request.
struct Worker {
    fifos: ResponseFifos,
    is_large: bool,
    requests: u8,
    answered: u8,
    delivery: Option<(Target, Vec<u8>)>,
}

impl Worker {
    /// Does what [`super::super::channel`] does between two waits. False if it would wait.
    fn step(&mut self) -> bool {
        if self.answered == self.requests {
            return false;
        }
        let Some((mut target, rest)) = self.delivery.take() else {
            self.delivery = self.fifos.target().map(|target| {
                // The kernel refuses if the user has too many pipes: then a response of this size fits in.
                let _larger = fcntl(target.writer(), FcntlArg::F_SETPIPE_SZ(4096));
                (target, response(self.answered + 1, self.is_large))
            });
            return self.delivery.is_some();
        };
        let fate = self.fifos.fate(&target).unwrap();
        if target.written > 0 && fate == Fate::Lost {
            self.fifos.abandon(target);
            return true;
        }
        match target.write(&rest) {
            _ if rest.is_empty() => {
                if fate == Fate::Waiting {
                    self.delivery = Some((target, rest));
                    return false;
                }
            }
            Ok(count) => {
                self.delivery = Some((target, rest[count..].to_vec()));
                return true;
            }
            Err(Errno::EAGAIN) => {
                self.delivery = Some((target, rest));
                return false;
            }
            Err(Errno::EPIPE) if target.is_unread().unwrap() => {
                self.fifos.abandon(target);
                return true;
            }
            Err(Errno::EPIPE) => {}
            Err(errno) => panic!("{errno}"),
        }
        self.fifos.finish(target);
        self.answered += 1;
        true
    }
}

struct Host<'a> {
    steps: &'a [Step],
    slots: [Option<File>; 3],
    text: Vec<u8>,
}

impl Host<'_> {
    /// False if it would wait.
    fn step(&mut self, worker: &mut Worker, order: &[bool]) -> bool {
        let [step, rest @ ..] = self.steps else { return false };
        let path = worker.fifos.path();
        match *step {
            Step::Send => worker.requests += 1,
            Step::Open(slot) => self.slots[slot] = Some(open(path)),
            Step::Hold(slot) => {
                let both = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
                self.slots[slot] = Some(both.unwrap());
            }
            Step::Fork(from, to) => {
                self.slots[to] = self.slots[from].as_ref().map(|reader| reader.try_clone().unwrap());
            }
            Step::Close(slot) => self.slots[slot] = None,
            Step::Taste(slot) => match self.slots[slot].as_ref().unwrap().read(&mut [0]) {
                Ok(count) => assert_eq!(count, 1, "end of file before the response: {order:?}"),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    return false;
                }
            },
            Step::Read(slot, wanted) => {
                let mut bytes = [0; 3000];
                match self.slots[slot].as_ref().unwrap().read(&mut bytes) {
                    Ok(0) => {
                        let text = std::mem::take(&mut self.text);
                        let number = text.first().map(|digit| digit - b'0').unwrap_or_default();
                        assert_eq!(text.len(), response(1, worker.is_large).len(), "{order:?}");
                        assert!(text == response(number, worker.is_large) && number <= wanted, "{order:?}");
                        if number < wanted {
                            self.slots[slot] = Some(open(path));
                            return true;
                        }
                    }
                    Ok(count) => {
                        self.text.extend_from_slice(&bytes[..count]);
                        return true;
                    }
                    Err(_) => return false,
                }
            }
            Step::Take(slot, wanted) => {
                let whole = response(wanted, worker.is_large);
                let mut bytes = vec![0; whole.len() - self.text.len()];
                match self.slots[slot].as_ref().unwrap().read(&mut bytes) {
                    Ok(count) => self.text.extend_from_slice(&bytes[..count]),
                    Err(_) => return false,
                }
                if self.text.len() < whole.len() {
                    return true;
                }
                assert_eq!(std::mem::take(&mut self.text), whole, "{order:?}");
            }
        }
        self.steps = rest;
        true
    }
}

/// Runs one order: true is a step of the worker. After the given steps the host goes first. Returns all steps, and for each
/// one whether the other side could have made a step instead.
fn run(steps: &[Step], is_large: bool, order: &[bool]) -> Vec<bool> {
    let (_dir, fifos) = fifos();
    let mut worker = Worker { fifos, is_large, requests: 0, answered: 0, delivery: None };
    let mut host = Host { steps, slots: [None, None, None], text: Vec::new() };
    let mut taken = Vec::new();
    while !host.steps.is_empty() {
        let is_worker = order.get(taken.len()).copied().unwrap_or(false);
        let mut step = |is_worker: bool, taken: &[bool]| match is_worker {
            true => worker.step(),
            false => host.step(&mut worker, taken),
        };
        let side = if step(is_worker, &taken) {
            is_worker
        } else {
            assert!(step(!is_worker, &taken), "deadlock before {:?}: {taken:?}", host.steps);
            !is_worker
        };
        taken.push(side);
    }
    taken
}

/// Takes every order of the first steps. Returns their number.
fn run_all(steps: &[Step]) -> usize {
    let mut orders = 0;
    for is_large in [false, true] {
        let mut pending = vec![Vec::new()];
        while let Some(order) = pending.pop() {
            let taken = run(steps, is_large, &order);
            orders += 1;
            for at in order.len()..taken.len().min(ORDERED_STEPS) {
                if !taken[at] {
                    pending.push([&taken[..at], &[true]].concat());
                }
            }
        }
    }
    orders
}

#[test]
fn every_order_of_host_and_worker_gives_one_whole_response_for_each_reading() {
    use Step::{Close, Fork, Hold, Open, Read, Send, Take, Taste};
    let hosts: [&[Step]; 9] = [
        // Opens after the request, or before.
        &[Send, Open(0), Read(0, 1), Close(0), Send, Open(0), Read(0, 2)],
        &[Open(0), Send, Read(0, 1), Close(0), Open(0), Send, Read(0, 2)],
        // Gives up before it has read anything, with or without a reader.
        &[Send, Open(0), Close(0), Send, Open(0), Read(0, 2)],
        &[Send, Send, Open(0), Read(0, 2)],
        // Stops in the middle, and calls again at once.
        &[Send, Open(0), Taste(0), Close(0), Send, Open(0), Read(0, 2)],
        // A process that it forked has a copy of its reader, for a while or for ever.
        &[Open(0), Fork(0, 1), Close(0), Send, Open(0), Read(0, 1), Close(1), Send, Open(0), Read(0, 2)],
        &[Send, Open(0), Fork(0, 1), Read(0, 1), Close(0), Send, Open(0), Read(0, 2)],
        // Opens again and again while it waits.
        &[Send, Open(0), Close(0), Open(0), Close(0), Open(0), Read(0, 1)],
        // Holds the FIFO open, and gives up once.
        &[Hold(0), Send, Take(0, 1), Send, Take(0, 2), Send, Send, Take(0, 3), Take(0, 4)],
    ];
    for host in hosts {
        let orders = run_all(host);
        assert!(orders > 20, "{host:?}: {orders}");
    }
}
