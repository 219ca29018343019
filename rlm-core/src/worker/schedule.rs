//! The schedule of a request: when it is stopped, and by which rung of the ladder, and when upkeep is due.
//!
//! Nothing here reads a clock, so that every order of events can be tested.

use std::time::{Duration, Instant};

use super::interpreter::Progress;
use super::ladder::Ladder;
use crate::protocol::Outcome;

/// Shortest time between two looks at a clock that stands still.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// The deadlines of a request.
#[derive(Debug)]
pub(super) struct Schedule<R: 'static> {
    limit: Option<Duration>,
    /// Time at which the request, or its code, began.
    began: Instant,
    /// Time at which the time limit is reached.
    time_is_up: Option<Instant>,
    /// Time until which the interpreter may go on reporting.
    reporting_until: Option<Instant>,
    /// True once the host has interrupted the request.
    is_interrupted: bool,
    rungs: &'static [(R, Duration)],
    /// The ladder, once the request is being stopped.
    ladder: Option<Ladder<R>>,
    upkeep_at: Instant,
    upkeep_interval: Duration,
}

impl<R: Copy> Schedule<R> {
    /// The schedule of a request that is sent now.
    pub(super) fn new(
        rungs: &'static [(R, Duration)],
        limit: Option<Duration>,
        upkeep_interval: Duration,
        now: Instant,
    ) -> Self {
        Self {
            limit,
            began: now,
            time_is_up: limit.and_then(|limit| now.checked_add(limit)),
            reporting_until: None,
            is_interrupted: false,
            rungs,
            ladder: None,
            upkeep_at: now + upkeep_interval,
            upkeep_interval,
        }
    }

    /// Takes notice of the interpreter's progress.
    pub(super) fn note(&mut self, progress: &Progress, now: Instant) {
        self.reporting_until = None;
        match progress {
            Progress::Running | Progress::Done(_) => {}
            Progress::CodeBegins => {
                self.began = now;
                self.time_is_up = self.limit.and_then(|limit| now.checked_add(limit));
            }
            // A deadline that has passed would wake the worker again and again.
            Progress::Reporting { until } => self.reporting_until = Some(*until).filter(|until| now < *until),
        }
    }

    /// Records that the host interrupts the request. A report that is on its way may still come first.
    pub(super) fn interrupt(&mut self) {
        self.is_interrupted = true;
    }

    /// True if the time limit is reached now, and nothing has stopped the request before.
    pub(super) fn is_time_up(&self, now: Instant) -> bool {
        self.ladder.is_none() && self.time_is_up.is_some_and(|time| now >= time)
    }

    /// Records that the request's clock has stood still for this long since the request began.
    pub(super) fn stood_still(&mut self, time: Duration, now: Instant) {
        let limit = self.limit.and_then(|limit| limit.checked_add(time));
        let time_is_up = limit.and_then(|limit| self.began.checked_add(limit));
        // While the clock stands still, the deadline moves along with it: one that is near must not wake the worker all the
        // time.
        self.time_is_up = time_is_up.map(|time| if time > now { time.max(now + LEAST_WAIT) } else { time });
    }

    /// The rung to take now. Starts to stop a request that was interrupted or whose time limit has passed. A rung is due
    /// only after the one before it has had its time.
    pub(super) fn due_rung(&mut self, now: Instant) -> Option<R> {
        if self.reporting_until.is_some_and(|until| now < until) {
            return None;
        }
        if self.ladder.is_none() {
            self.ladder = Ladder::start(self.rungs, self.is_interrupted, self.time_is_up, now);
        }
        self.ladder.as_mut().filter(|ladder| now >= ladder.next).map(|ladder| ladder.take(now))
    }

    /// True if upkeep is due; the next one is then due after the interval.
    pub(super) fn is_upkeep_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.upkeep_at;
        if is_due {
            self.upkeep_at = now + self.upkeep_interval;
        }
        is_due
    }

    /// The next time at which there is something to do even if nothing arrives.
    pub(super) fn wake_at(&self) -> Instant {
        let rung_at = self.ladder.as_ref().map(|ladder| ladder.next);
        let stop_at = self.reporting_until.or(rung_at).or(self.time_is_up);
        stop_at.map_or(self.upkeep_at, |stop_at| stop_at.min(self.upkeep_at))
    }

    /// Why the request is being stopped, if it is.
    pub(super) fn cause(&self) -> Option<Outcome> {
        self.ladder.as_ref().map(|ladder| ladder.cause)
    }

    /// True once every rung has been taken.
    pub(super) fn is_at_end(&self) -> bool {
        self.ladder.as_ref().is_some_and(Ladder::is_at_end)
    }
}

/// Simulated clocks and every order of events. The schedule is plain data without threads or shared memory, so a loop over
/// the orders covers everything; a model checker for threads has nothing to add.
#[cfg(test)]
mod tests {
    use super::*;

    const RUNGS: [(usize, Duration); 4] = [
        (0, Duration::from_millis(20)),
        (1, Duration::from_millis(380)),
        (2, Duration::from_millis(200)),
        (3, Duration::from_secs(3600)),
    ];
    const LIMIT: Duration = Duration::from_millis(300);
    const UPKEEP: Duration = Duration::from_millis(50);

    /// Something that happens to a worker that waits.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// It wakes at the time that the schedule asks for.
        Timer,
        /// The worker wakes late: the machine is busy.
        LateTimer,
        /// Output arrives, at once after the event before.
        Output,
        Interrupt,
        /// Part of a report arrives, and silence counts from then on.
        Part,
        /// The bytes that had arrived are not a report.
        Dropped,
    }

    const EVENTS: [Event; 6] =
        [Event::Timer, Event::LateTimer, Event::Output, Event::Interrupt, Event::Part, Event::Dropped];

    /// Calls `check` with every sequence of `length` events.
    fn every_order(length: usize, check: impl Fn(&[Event])) {
        for number in 0..EVENTS.len().pow(u32::try_from(length).unwrap()) {
            let mut rest = number;
            let mut order = Vec::with_capacity(length);
            for _ in 0..length {
                order.push(EVENTS[rest % EVENTS.len()]);
                rest /= EVENTS.len();
            }
            check(&order);
        }
    }

    #[test]
    fn whatever_happens_each_rung_has_its_time_and_none_is_left_out() {
        every_order(6, |order| {
            let start = Instant::now();
            let mut now = start;
            let mut schedule = Schedule::new(&RUNGS, Some(LIMIT), UPKEEP, now);
            let mut taken: Vec<(usize, Instant)> = Vec::new();
            let mut interrupted = false;
            let mut progress = Progress::Running;
            // Then time passes, and nothing else happens.
            let events = order.iter().copied().chain(std::iter::repeat_n(Event::Timer, 150));
            for event in events {
                match event {
                    Event::Timer => now = now.max(schedule.wake_at()),
                    Event::LateTimer => now = now.max(schedule.wake_at()) + Duration::from_millis(130),
                    Event::Output => {}
                    Event::Interrupt => {
                        schedule.interrupt();
                        interrupted = true;
                    }
                    Event::Part => progress = Progress::Reporting { until: now + Duration::from_secs(1) },
                    Event::Dropped => progress = Progress::Running,
                }
                schedule.note(&progress, now);
                if let Some(rung) = schedule.due_rung(now) {
                    if let Progress::Reporting { until } = progress {
                        assert!(now >= until, "stopped while it reports: {order:?}");
                    }
                    assert!(interrupted || now >= start + LIMIT, "stopped too early: {order:?}");
                    taken.push((rung, now));
                }
                schedule.is_upkeep_due(now);
            }
            let rungs: Vec<usize> = taken.iter().map(|(rung, _)| *rung).collect();
            assert_eq!(rungs, [0, 1, 2, 3], "{order:?}");
            for pair in taken.windows(2) {
                let pause = RUNGS[pair[0].0].1;
                assert!(pair[1].1 >= pair[0].1 + pause, "rung {} came too soon: {order:?}", pair[1].0);
            }
            assert!(schedule.is_at_end());
        });
    }

    #[test]
    fn an_interrupt_that_meets_a_report_which_never_ends_still_stops_the_call() {
        let now = Instant::now();
        let mut schedule = Schedule::new(&RUNGS, None, UPKEEP, now);
        let until = now + Duration::from_secs(5);
        schedule.note(&Progress::Reporting { until }, now);
        schedule.interrupt();
        assert_eq!(schedule.due_rung(now), None);
        schedule.note(&Progress::Reporting { until }, until);
        assert_eq!((schedule.due_rung(until), schedule.cause()), (Some(0), Some(Outcome::Interrupted)));
    }

    #[test]
    fn the_time_that_the_clock_stood_still_is_added_to_the_limit() {
        let start = Instant::now();
        let mut schedule = Schedule::new(&RUNGS, Some(LIMIT), UPKEEP, start);
        let up = start + LIMIT;
        assert!(!schedule.is_time_up(up - UPKEEP) && schedule.is_time_up(up));
        schedule.stood_still(UPKEEP, up);
        assert_eq!((schedule.is_time_up(up), schedule.due_rung(up)), (false, None));
        schedule.stood_still(UPKEEP, up + UPKEEP);
        assert_eq!(schedule.due_rung(up + UPKEEP), Some(0));
        assert!(!schedule.is_time_up(up + UPKEEP), "it is being stopped");
    }

    #[test]
    fn the_time_limit_begins_with_the_code() {
        let start = Instant::now();
        let mut schedule = Schedule::new(&RUNGS, Some(LIMIT), UPKEEP, start);
        let began = start + Duration::from_millis(250);
        schedule.note(&Progress::CodeBegins, began);
        assert_eq!(schedule.due_rung(start + LIMIT), None);
        assert_eq!((schedule.due_rung(began + LIMIT), schedule.cause()), (Some(0), Some(Outcome::TimedOut)));
    }
}
