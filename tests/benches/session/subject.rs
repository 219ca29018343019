//! Things to measure, in turns.

use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};

/// One thing to measure: does it a given number of times, and returns the time of each.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) run: Box<dyn FnMut(u64) -> Vec<Duration> + 'a>,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(name: &'a str, run: impl FnMut(u64) -> Vec<Duration> + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }

    /// A thing that is timed as a whole.
    pub(crate) fn timed(name: &'a str, mut once: impl FnMut() + 'a) -> Self {
        let one = move || {
            let begun = Instant::now();
            once();
            begun.elapsed()
        };
        Self::repeated(name, one)
    }

    /// A thing that measures the relevant part itself.
    pub(crate) fn repeated(name: &'a str, mut one: impl FnMut() -> Duration + 'a) -> Self {
        Self::new(name, move |count| (0..count).map(|_| one()).collect())
    }
}

/// The extent of a measurement.
pub(crate) struct Effort {
    /// Time of Criterion's own measurement per subject; it takes at least ten samples.
    pub(crate) criterion: Duration,
    /// Number of times that the subjects take turns for the table.
    pub(crate) rounds: usize,
    /// Number of runs of a subject in its turn.
    pub(crate) runs: u64,
    /// Amount processed in one run, for Criterion's rates.
    pub(crate) throughput: Option<Throughput>,
}

/// Measures the subjects with Criterion, and returns the median of each over rounds in which they take turns.
pub(crate) fn measure<const N: usize>(
    criterion: &mut Criterion,
    group: &str,
    effort: &Effort,
    mut subjects: [Subject<'_>; N],
) -> [Duration; N] {
    let mut group = criterion.benchmark_group(group);
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(effort.criterion);
    group.sampling_mode(SamplingMode::Flat);
    if let Some(throughput) = &effort.throughput {
        group.throughput(throughput.clone());
    }
    for Subject { name, run } in &mut subjects {
        group.bench_function(*name, |bencher| bencher.iter_custom(|count| run(count).iter().sum()));
    }
    group.finish();
    let mut samples = [const { Vec::new() }; N];
    for _ in 0..effort.rounds {
        for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
            samples.extend((subject.run)(effort.runs));
        }
    }
    samples.map(median)
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}
