//! Whatever comes through the pipes between the Python worker and its engine: no panic, a command that is read is the one that
//! was written, and a report counts when it is whole and answers this command.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rlm_worker_python::wire::{Command, REPORT_HEADER_BYTES, Report};

fuzz_target!(|input: (u64, [u8; Command::BYTES], Vec<u8>)| {
    let (nonce, command, bytes) = input;
    assert_eq!(Command::decode(&command).encode(), command);
    let take = |bytes: &[u8], nonce| Report::take(&mut bytes.to_vec(), nonce);
    // Whatever the bytes are, it is read without a panic.
    let _any = take(&bytes, nonce);
    if let Ok(report) = serde_json::from_slice::<Report>(&bytes) {
        let result = String::from_utf8(bytes).ok().filter(|result| result.len() % 2 == 0);
        let report = Report { result, ..report };
        let (header, result, document) = report.encode(nonce).expect("it is JSON");
        let whole = [&header[..], result, &document].concat();
        for cut in [0, REPORT_HEADER_BYTES / 2, REPORT_HEADER_BYTES, whole.len() - 1] {
            assert_eq!(take(&whole[..cut], nonce).expect("it is not whole"), None);
        }
        assert_eq!(take(&whole, nonce.wrapping_add(1)).expect("it is another one"), None);
        assert_eq!(take(&whole, nonce).expect("it is our own"), Some(report));
    }
});
