//! Time to decode pickles. The limits are generous: they catch a quadratic step, not a slow machine.

use std::time::{Duration, Instant};

use rlm_core::pickle::decode;

use super::memory::{peak, sharing};

#[track_caller]
fn check(name: &str, pickle: &[u8], limit: Duration) {
    let start = Instant::now();
    let (value, peak) = peak(|| decode(pickle, &sharing()).unwrap());
    let took = start.elapsed();
    let rate = pickle.len() as f64 / 1e6 / took.as_secs_f64();
    #[expect(clippy::print_stderr, reason = "the figures are worth seeing")]
    {
        eprintln!(
            "{name}: {} bytes in {took:?}, {rate:.0} MB/s, {} KiB at the peak",
            pickle.len(),
            peak >> 10
        );
    }
    drop(value);
    assert!(took < limit, "{name}: {took:?}");
}

#[test]
fn large_values_are_read_quickly() {
    let text = [&b"X\x80\x96\x98\0"[..], &vec![b'x'; 10_000_000], b"."].concat();
    check("a str of 10 MB", &text, Duration::from_secs(5));
    let ints: Vec<u8> = (0..1_000_000i32).flat_map(|int| [&b"J"[..], &int.to_le_bytes()].concat()).collect();
    check("a list of a million ints", &[&b"]("[..], &ints, b"e."].concat(), Duration::from_secs(10));
    let keys: Vec<u8> = (0..300_000).flat_map(|key| format!("X\x08\0\0\0{key:08}N").into_bytes()).collect();
    check("a dict of 300000 keys", &[&b"}("[..], &keys, b"u."].concat(), Duration::from_secs(10));
    let int = [&b"\x8b\0\x10\0\0"[..], &[0x7f; 4096]].concat();
    let same = [&int[..], b"q\x000\x8f(", &b"h\0".repeat(500_000), b"\x90."].concat();
    check("a set of one int of 4 KiB, 500000 times", &same, Duration::from_secs(10));
    check("7000 ints of 4 KiB", &[&b"("[..], &int.repeat(7000), b"t."].concat(), Duration::from_secs(10));
}
