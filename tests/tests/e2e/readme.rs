//! The README's first steps, as printed.

use rlm_tests::{Place, program};

#[test]
fn the_first_steps_work_as_printed() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let readme = std::fs::read_to_string(format!("{root}/README.md")).unwrap();
    let (_, steps) = readme.split_once("\n## First steps\n").unwrap();
    let (_, block) = steps.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    assert_eq!(block.lines().filter(|line| line.starts_with("rlm ")).count(), 3, "{block}");
    let place = Place::new();
    let programs = program("rlm").parent().unwrap().display().to_string();
    let block = block.replace("$PWD/target/release", &programs);
    let output = place.at_work("bash").args(["-euc", &format!("cd {root}\n{block}")]).output().unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!((stderr.as_ref(), output.status.code()), ("", Some(0)), "{stdout}");
    let pages = std::fs::read_dir(format!("{root}/docs")).unwrap().map(|page| page.unwrap());
    let pages = pages.filter(|page| page.path().extension().is_some_and(|kind| kind == "md"));
    let largest = pages.max_by_key(|page| page.metadata().unwrap().len()).unwrap().file_name();
    let largest = format!("PosixPath('{}')", largest.display());
    for expected in [" pages, ", &largest, "rollout letters-1 · answered"] {
        assert!(stdout.contains(expected), "{stdout}");
    }
    place.assert_nothing_left();
}
