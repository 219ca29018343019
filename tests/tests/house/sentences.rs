//! Comments for documentation begin with what they are about.

use std::path::Path;
use std::process::Command;

/// Beginnings that a reader must complete in mind: "Those of confinement.", "What ended it.", "By their ids."
const REFUSED: &str = "(Those|That of|What|Of|By) ";

#[test]
fn comments_begin_with_what_they_are_about() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (mark, files) in [("//[/!] ", "*.rs"), ("\"\"\"", "*.py")] {
        let found = Command::new("git")
            .args(["grep", "-nE", &format!("^ *{mark}{REFUSED}"), "--", files])
            .current_dir(root)
            .output()
            .unwrap();
        // 1: there are none.
        assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
    }
}
