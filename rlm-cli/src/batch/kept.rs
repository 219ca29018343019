//! Kept directories of earlier attempts, renamed so that the attempts can be run again.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Renames the directories of the rollouts that run again, and returns a message about it. Nothing in them is lost.
pub(super) fn rename_old(keep: &Path, runs: impl Fn(&str) -> bool) -> anyhow::Result<Option<String>> {
    let entries = std::fs::read_dir(keep).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.with_context(|| format!("cannot list {}", keep.display()))?;
    let mut ids: Vec<_> = entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    ids.retain(|id| runs(id));
    ids.sort();
    let mut first = None;
    let mut others = 0_usize;
    for id in &ids {
        let dir = keep.join(id);
        let name = free_name(keep, id);
        std::fs::rename(&dir, &name)
            .with_context(|| format!("cannot rename {} to {}", dir.display(), name.display()))?;
        match first {
            None => first = Some((dir, name)),
            Some(_) => others += 1,
        }
    }
    Ok(first.map(|(dir, name)| {
        let renamed = format!("the kept directory {} is now {}", dir.display(), name.display());
        match others {
            0 => renamed,
            1 => format!("{renamed}, and so is another"),
            others => format!("{renamed}, and so are {others} others"),
        }
    }))
}

/// The rollout above all others of one that code has started: `1-1` of `1-1.2.1`.
pub(super) fn root_of(id: &str) -> &str {
    match id.rsplit_once('.') {
        Some((above, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => root_of(above),
        _ => id,
    }
}

/// The first of `ID.old`, `ID.old2`, … that does not exist.
fn free_name(keep: &Path, id: &str) -> PathBuf {
    let numbers = std::iter::once(String::new()).chain((2_u64..).map(|number| number.to_string()));
    let mut names = numbers.map(|number| keep.join(format!("{id}.old{number}")));
    names
        .find(|name| name.symlink_metadata().is_err())
        .expect("a directory has fewer entries than there are numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_get_unused_names_and_keep_their_contents() {
        let keep = tempfile::tempdir().unwrap();
        let keep = keep.path();
        assert_eq!(rename_old(keep, |id| id == "1-1").unwrap(), None);
        for (round, name) in [(1, "1-1.old"), (2, "1-1.old2"), (3, "1-1.old3")] {
            std::fs::create_dir(keep.join("1-1")).unwrap();
            std::fs::write(keep.join("1-1/round"), round.to_string()).unwrap();
            let said = rename_old(keep, |id| ["1-1", "2-1"].contains(&id)).unwrap().unwrap();
            assert_eq!(said, format!("the kept directory {0}/1-1 is now {0}/{name}", keep.display()));
            assert_eq!(std::fs::read_to_string(keep.join(name).join("round")).unwrap(), round.to_string());
        }
        assert_eq!(["1-1.2.1", "1-1.old", "a.b-1"].map(root_of), ["1-1", "1-1.old", "a.b-1"]);
        for id in ["1-1", "2-1", "3-1"] {
            std::fs::create_dir(keep.join(id)).unwrap();
        }
        let said = rename_old(keep, |id| ["1-1", "2-1", "3-1"].contains(&id)).unwrap().unwrap();
        assert!(said.ends_with("/1-1.old4, and so are 2 others"), "{said}");
    }
}
