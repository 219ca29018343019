//! Things to measure, and how they are measured in turns.

use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};

/// One thing to measure: does it the given number of times, and says how long each took.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    pub(crate) run: Box<dyn FnMut(u64) -> Vec<Duration> + 'a>,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(name: &'a str, run: impl FnMut(u64) -> Vec<Duration> + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }

    /// A thing that is timed from its beginning to its end.
    pub(crate) fn timed(name: &'a str, mut once: impl FnMut() + 'a) -> Self {
        let one = move || {
            let begun = Instant::now();
            once();
            begun.elapsed()
        };
        Self::repeated(name, one)
    }

    /// A thing that knows what part of it counts.
    pub(crate) fn repeated(name: &'a str, mut one: impl FnMut() -> Duration + 'a) -> Self {
        Self::new(name, move |count| (0..count).map(|_| one()).collect())
    }
}

/// How much is measured.
pub(crate) struct Effort {
    /// What Criterion's own measurement should take per subject; it takes at least ten samples.
    pub(crate) criterion: Duration,
    /// How often the subjects take turns for the table.
    pub(crate) rounds: usize,
    /// How often a subject runs in its turn.
    pub(crate) runs: u64,
    /// What one run moves, for Criterion's rates.
    pub(crate) throughput: Option<Throughput>,
}

/// Shows the subjects to Criterion, and returns the median of each over rounds in which they take turns.
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
