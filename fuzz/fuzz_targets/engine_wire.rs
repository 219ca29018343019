//! Whatever comes through the pipes between the Python worker and its engine: no panic, a command that is read is the one that
//! was written, and a report counts when it is whole and answers this command.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rlm_worker_python::wire::{Command, REPORT_HEADER_BYTES, Report, complete_report, report_header};

fuzz_target!(|input: (u64, [u8; Command::BYTES], Vec<u8>)| {
    let (nonce, command, bytes) = input;
    assert_eq!(Command::decode(&command).encode(), command);
    if let Some(document) = complete_report(&bytes, nonce) {
        assert_eq!(bytes, [&report_header(nonce, document.len())[..], document].concat());
    }
    if let Ok(report) = serde_json::from_slice::<Report>(&bytes) {
        let document = serde_json::to_vec(&report).expect("it is JSON");
        let whole = [&report_header(nonce, document.len())[..], &document].concat();
        for cut in [0, REPORT_HEADER_BYTES / 2, REPORT_HEADER_BYTES, whole.len() - 1] {
            assert_eq!(complete_report(&whole[..cut], nonce), None);
        }
        let read = complete_report(&whole, nonce).expect("it is whole");
        assert_eq!(serde_json::from_slice::<Report>(read).expect("it is our own"), report);
        assert_eq!(complete_report(&whole, nonce.wrapping_add(1)), None);
    }
});
