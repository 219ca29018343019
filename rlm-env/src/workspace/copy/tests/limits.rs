//! Bytes and files are counted, and a copy ends, also where files change meanwhile.

use std::fs::OpenOptions;

use super::*;

#[test]
fn a_large_file_is_refused_before_it_is_copied() {
    let ground = Ground::new();
    ground.file("a", "123");
    File::create(ground.context.join("sparse")).unwrap().set_len(2 << 30).unwrap();
    let looks = Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        false
    };
    let error = ground.fill_within(&ground.whole(), CopyLimits::of_bytes(1_000_000_000), &stop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the context has at least 2,147,483,651 bytes, more than the limit of 1,000,000,000: give a part of it, leave files \
         out with `exclude`, or raise `max_context_bytes`"
    );
    assert_eq!(looks.get(), 3, "two entries and the one chunk of the small file");
    ground.check_empty();
}

#[test]
fn bytes_are_counted_where_a_file_does_not_know_its_length() {
    let ground = Ground::new();
    let proc = PathBuf::from("/proc/self/environ");
    let length = fs::read(&proc).unwrap().len() as u64;
    let limits = CopyLimits { max_bytes: length - 1, ..LIMITS };
    let context = Context::Paths(vec![proc]);
    let error = ground.fill_within(&context, limits, &|| false).unwrap_err();
    assert!(matches!(error, ContextError::TooLarge { at_least, .. } if at_least == length), "{error}");
    ground.check_empty();
    let limits = CopyLimits { max_bytes: length, ..LIMITS };
    assert_eq!(ground.fill_within(&context, limits, &|| false).unwrap().bytes(), length);
}

#[test]
fn there_is_a_limit_of_files_too() {
    let ground = Ground::new();
    for index in 0..100 {
        ground.file(&format!("{index}"), "");
    }
    assert_eq!(ground.fill(&ground.whole()).unwrap().files(), 100);
    ground.clear();
    ground.file("one more", "");
    ground.check_error(
        "the context has more than 100 files and directories: give a part of it, leave some out with `exclude`, or give an \
         archive",
    );
}

#[test]
fn a_copy_stops_between_chunks_and_leaves_nothing() {
    let ground = Ground::new();
    File::create(ground.context.join("large")).unwrap().set_len(100 * CHUNK_BYTES).unwrap();
    let looks = Cell::new(0);
    let most = Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        most.set(fs::metadata(ground.fs.join("large")).map_or(0, |metadata| metadata.len()));
        looks.get() == 4
    };
    let error = ground.fill_within(&ground.whole(), CopyLimits::default(), &stop).unwrap_err();
    assert!(matches!(error, ContextError::Cancelled), "{error}");
    assert_eq!(most.get(), 2 * CHUNK_BYTES);
    ground.check_empty();
}

/// Each time the copier looks whether to stop, the file that it copies grows.
#[test]
fn a_file_that_grows_is_copied_as_it_was() {
    let ground = Ground::new();
    let growing = ground.file("growing", "x");
    let grow = || {
        OpenOptions::new().append(true).open(&growing).unwrap().write_all(b"more").unwrap();
        false
    };
    ground.fill_within(&ground.whole(), LIMITS, &grow).unwrap();
    assert_eq!(ground.read("growing"), "xmore", "it had grown once when it was opened");
}

/// Each time the copier looks whether to stop, there is a new file, and an old one is gone.
#[test]
fn a_tree_that_changes_ends() {
    let ground = Ground::new();
    for index in 0..10 {
        ground.file(&format!("old-{index}"), "x");
    }
    let looks = Cell::new(0);
    let change = || {
        ground.file(&format!("new-{}", looks.get()), "x");
        let _gone_already = fs::remove_file(ground.context.join(format!("old-{}", 9 - looks.get() % 10)));
        looks.set(looks.get() + 1);
        false
    };
    let summary = ground.fill_within(&ground.whole(), LIMITS, &change).unwrap();
    assert!(summary.files() < 12, "{}", summary.files());
}
