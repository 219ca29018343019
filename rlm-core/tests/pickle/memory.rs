//! Small payloads that could grow large, and the peak memory of each.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rlm_core::pickle::{Limits, Value, WriteError, decode, encode};

/// Counts the memory that the thread holds. Each test counts only its own allocations.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends may free memory after its thread-locals are gone.
    let _gone = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is forwarded unchanged to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is the one that the system allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work`, and returns by how many bytes the thread's memory rose at the peak.
pub(crate) fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let done = work();
    (done, (PEAK.get() - before) as usize)
}

/// Decodes a pickle, and checks the outcome and the peak memory in KiB.
#[track_caller]
fn check(name: &str, pickle: &[u8], ends: &str, kib: usize) {
    let (result, peak) = peak(|| decode(pickle, &sharing()).map(drop));
    let found = result.map_or_else(|error| error.to_string(), |()| "read".to_owned());
    #[expect(clippy::print_stderr, reason = "the figures are worth seeing")]
    {
        eprintln!("{name}: {} KiB of payload, {} KiB at the peak: {found}", pickle.len() >> 10, peak >> 10);
    }
    assert_eq!(found, ends, "{name}");
    assert!(peak >> 10 <= kib, "{name}: {} KiB at the peak", peak >> 10);
}

/// The default limits, but with room for long values that are shared many times.
pub(crate) fn sharing() -> Limits {
    Limits { expanded_bytes: usize::MAX, ..Limits::default() }
}

fn repeated(opcodes: &[u8], count: usize) -> Vec<u8> {
    opcodes.repeat(count)
}

const EXPANDED: &str = "more than 2097152 values, with shared ones counted each time";

#[test]
fn lengths_and_indexes_cost_nothing() {
    check("LONG_BINPUT at 2**24", b"Nr\0\0\0\x01.", "read", 2);
    check(
        "LONG_BINPUT at 2**28",
        b"Nr\0\0\0\x10.",
        "pickle, byte 1: memo index 268435456 over the limit of 16777216",
        2,
    );
    check(
        "BINBYTES8 of 2**60",
        b"\x8e\0\0\0\0\0\0\0\x10.",
        "pickle, byte 0: truncated: 1152921504606846976 more bytes expected, 1 left",
        2,
    );
    check(
        "bytearray(2**31 - 1)",
        b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
        "pickle, byte 26: call of bytearray(int) refused",
        2,
    );
}

#[test]
fn shared_values_are_held_once() {
    let dup = [&b")"[..], &repeated(b"2\x86", 63), b"."].concat();
    check("DUP and TUPLE2, 63 times", &dup, &format!("pickle, byte 42: {EXPANDED}"), 32);
    let one = [&b"X\0\0\x10\0"[..], &vec![b'x'; 1 << 20], b"q\x000("].concat();
    let memo = [&one[..], &repeated(b"h\0", 4000), b"t."].concat();
    check("1 MiB of str, 4000 times", &memo, "read", 3 << 10);
    let refused = decode(&memo, &Limits::default()).unwrap_err().to_string();
    assert!(refused.ends_with(": more than 67108864 bytes, with shared ones counted each time"), "{refused}");
    let text = decode(&memo, &sharing()).unwrap();
    let (refused, peak) = peak(|| encode(&text));
    assert_eq!(refused, Err(WriteError::TooLarge(32 << 20)));
    assert!(peak <= 64 << 20, "{peak}");
    let keys = [&one[..], &repeated(b"}h\0Ns", 4000), b"t."].concat();
    check("a key of 1 MiB in 4000 dicts", &keys, "read", 10 << 10);
}

#[test]
fn calls_do_not_multiply_what_they_copy() {
    let items = [&b"(]q\0("[..], &repeated(b"K\x01", 100_000), b"e"].concat();
    let sets = [&items[..], &repeated(b"cbuiltins\nset\nh\0\x85R", 10_000), b"t."].concat();
    check(
        "set of one list, 10000 times",
        &sets,
        "pickle, byte 200077: more than 380008 items copied by calls",
        40 << 10,
    );
    let long = [&b"X\0\0\0\x01"[..], &vec![b'x'; 16 << 20], b"0"].concat();
    let padded = [&long[..], &items, &repeated(b"cbuiltins\nset\nh\0\x85R", 1000), b"t."].concat();
    check(
        "the same beside a str of 16 MiB",
        &padded,
        "pickle, byte 16977605: more than 2097152 items copied by calls",
        80 << 10,
    );
    let text = [&b"X\0\0\x10\0"[..], &vec![b'x'; 1 << 20], b"q\x000("].concat();
    let arrays =
        [&text[..], &repeated(b"c_codecs\nencode\nh\0X\x06\0\0\0latin1\x86R", 10_000), b"t."].concat();
    check(
        "encode of one str, 10000 times",
        &arrays,
        "pickle, byte 1048646: more than 1358587 bytes copied by calls",
        16 << 10,
    );
}

#[test]
fn floods_of_opcodes_cost_memory_in_proportion() {
    check("a million MARK", &repeated(b"(", 1_000_000), "pickle, byte 1000: more than 1000 open marks", 64);
    let memoize = [&b"N"[..], &repeated(b"\x94", 1_000_000), b"."].concat();
    check("a million MEMOIZE", &memoize, "read", 32 << 10);
    let lists = [&b"("[..], &repeated(b"]", 1_000_000), b"t."].concat();
    check("a million EMPTY_LIST", &lists, "read", 200 << 10);
    let nested = [&repeated(b"]", 1_000_000)[..], &repeated(b"a", 999_999), b"."].concat();
    check("a million lists, nested", &nested, "pickle, byte 200: more than 200 levels of nesting", 200 << 10);
    let nones = repeated(b"N", 3_000_000);
    check("three million NONE", &nones, "pickle, byte 2097152: more than 2097152 opcodes", 100 << 10);
    let large = [&b"("[..], &repeated(b"]", (2 << 20) - 3), b"t."].concat();
    check("as many EMPTY_LIST as may be", &large, "read", 320 << 10);
    let ints = (0..(1 << 20) - 2).flat_map(|int: u32| [&b"J"[..], &int.to_le_bytes(), b"N"].concat());
    let keys = [&b"}("[..], &ints.collect::<Vec<_>>(), b"u."].concat();
    check("as many keys as may be", &keys, "read", 320 << 10);
    let sparse: Vec<u8> =
        (1..500_000u32).flat_map(|index| [&b"r"[..], &(index * 30).to_le_bytes()].concat()).collect();
    check("500000 indexes with gaps", &[b"N", &sparse[..], b"."].concat(), "read", 60 << 10);
}

#[test]
fn keys_that_share_parts_are_hashed_quickly() {
    let key = [&b")"[..], &repeated(b"2\x86", 18), b"q\0"].concat();
    let dicts = [&b"("[..], &key, b"0", &repeated(b"}h\0Ns", 3), b"t."].concat();
    check("keys of half a million values", &dicts, "read", 64);
}

#[test]
fn json_of_many_small_values_is_bounded() {
    for (piece, kib) in
        [("0,", 100 << 10), ("\"\",", 200 << 10), ("[],", 200 << 10), ("{\"\":0},", 300 << 10)]
    {
        let json = format!("[{}0]", piece.repeat((30 << 20) / piece.len()));
        let (read, peak) = peak(|| Value::from_json_text(json.as_bytes(), &Limits::default()).map(drop));
        assert_eq!(read.unwrap_err().to_string(), "more than 2097152 values", "{piece}");
        assert!(peak >> 10 <= kib, "{piece}: {} KiB at the peak", peak >> 10);
    }
}
