//! No files of a crate import each other, directly or by way of others.
//!
//! The `use` lines tell: an import leads to the file that defines the item, past files that re-export it. Imports of tests do
//! not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::{Attribute, File, Item, UseTree, Visibility};

/// Source directories, each of one crate.
const CRATES: [&str; 8] = [
    "rlm-core/src",
    "rlm-worker-bash/src",
    "rlm-worker-bash/src/bin/rlm-root-tool",
    "rlm-worker-python/src",
    "rlm-worker-python/engine/src",
    "rlm-rootd/src",
    "rlm-env/src",
    "rlm-cli/src",
];

/// The directories of these whose folders, at the top, do not import each other either.
const WHOSE_FOLDERS: [&str; 3] = ["rlm-worker-python/src", "rlm-env/src", "rlm-cli/src"];

/// The path of a module in its crate: `["rollout", "log"]`.
type ModulePath = Vec<String>;

/// A module in a file of its own.
struct Module {
    /// The full paths of what it imports.
    imports: Vec<ModulePath>,
    /// The names that it passes on: the name that each has here, and its full path. A glob has the name `*`.
    passed_on: Vec<(String, ModulePath)>,
}

type Modules = BTreeMap<ModulePath, Module>;

#[test]
fn no_files_import_each_other() {
    let circles: Vec<_> = CRATES.iter().flat_map(|src| circles(&arrows(src))).collect();
    assert!(circles.is_empty(), "files import each other: {circles:#?}");
}

#[test]
fn no_folders_import_each_other() {
    let folder = |path: &ModulePath| path.first().cloned().unwrap_or_default();
    for src in WHOSE_FOLDERS {
        let mut of_folders: Arrows<String> = BTreeMap::new();
        for (path, targets) in arrows(src) {
            let from = folder(&path);
            let targets: Vec<_> = targets.iter().map(folder).filter(|target| *target != from).collect();
            of_folders.entry(from).or_default().extend(targets);
        }
        let circles = circles(&of_folders);
        assert!(circles.is_empty(), "folders of {src} import each other: {circles:#?}");
    }
}

/// The modules that each module imports from.
type Arrows<T> = BTreeMap<T, BTreeSet<T>>;

fn arrows(src: &str) -> Arrows<ModulePath> {
    let src = &Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(src);
    let mut modules = Modules::new();
    let root = ["lib.rs", "main.rs"].map(|name| src.join(name)).into_iter().find(|file| file.exists());
    load(&root.unwrap(), src, Vec::new(), &mut modules);
    let targets = |path: &ModulePath, module: &Module| -> BTreeSet<ModulePath> {
        let targets = module.imports.iter().filter_map(|import| defining_module(&modules, import, 0));
        targets.filter(|target| *target != path).cloned().collect()
    };
    modules.iter().map(|(path, module)| (path.clone(), targets(path, module))).collect()
}

fn circles<T: Clone + Ord>(arrows: &Arrows<T>) -> BTreeSet<Vec<T>> {
    let mut reached: BTreeMap<&T, BTreeSet<&T>> = BTreeMap::new();
    for start in arrows.keys() {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(path) = next.pop() {
            next.extend(arrows.get(path).into_iter().flatten().filter(|target| seen.insert(*target)));
        }
        reached.insert(start, seen);
    }
    let reaches = |a: &T, b: &T| reached.get(a).is_some_and(|seen| seen.contains(b));
    let in_circle = |a: &T, b: &T| reaches(a, b) && reaches(b, a);
    let in_any = arrows.keys().filter(|path| in_circle(path, path));
    in_any.map(|path| arrows.keys().filter(|other| in_circle(path, other)).cloned().collect()).collect()
}

/// Reads a module and those below it.
fn load(file: &Path, dir: &Path, path: ModulePath, modules: &mut Modules) {
    let text = fs::read_to_string(file).unwrap();
    let File { items, .. } =
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut module = Module { imports: Vec::new(), passed_on: Vec::new() };
    let children: Vec<String> = items.iter().filter_map(child).collect();
    for item in &items {
        let Item::Use(item) = item else { continue };
        if is_for_tests(&item.attrs) {
            continue;
        }
        for (name, import) in leaves(&item.tree, Vec::new()) {
            let Some(import) = absolute(import, &path, &children) else { continue };
            match item.vis {
                Visibility::Inherited => module.imports.push(import),
                _ => module.passed_on.push((name, import)),
            }
        }
    }
    modules.insert(path.clone(), module);
    for child in children {
        let places = [dir.join(format!("{child}.rs")), dir.join(&child).join("mod.rs")];
        let file =
            places.iter().find(|place| place.exists()).unwrap_or_else(|| panic!("no file for {child}"));
        load(file, &dir.join(&child), [path.clone(), vec![child]].concat(), modules);
    }
}

/// The name of a module that has a file of its own and is not for tests.
fn child(item: &Item) -> Option<String> {
    match item {
        Item::Mod(item) if item.content.is_none() && !is_for_tests(&item.attrs) => {
            Some(item.ident.to_string())
        }
        _ => None,
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().unwrap().tokens.to_string() == "test"
    })
}

/// The names that a `use` brings, each with its path as it is written.
fn leaves(tree: &UseTree, mut path: ModulePath) -> Vec<(String, ModulePath)> {
    match tree {
        UseTree::Path(tree) => {
            path.push(tree.ident.to_string());
            leaves(&tree.tree, path)
        }
        UseTree::Group(tree) => tree.items.iter().flat_map(|tree| leaves(tree, path.clone())).collect(),
        UseTree::Name(tree) if tree.ident == "self" => vec![(path.last().cloned().unwrap_or_default(), path)],
        UseTree::Name(tree) => {
            path.push(tree.ident.to_string());
            vec![(tree.ident.to_string(), path)]
        }
        UseTree::Rename(tree) => {
            path.push(tree.ident.to_string());
            vec![(tree.rename.to_string(), path)]
        }
        UseTree::Glob(_) => vec![("*".to_owned(), path)],
    }
}

/// The path from the crate's root. None: it leads to another crate.
fn absolute(import: ModulePath, at: &[String], children: &[String]) -> Option<ModulePath> {
    let mut base = at.to_vec();
    let mut rest = import.as_slice();
    match rest.first()?.as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => {}
        name if children.iter().any(|child| child == name) => return Some([base, import].concat()),
        _ => return None,
    }
    while rest.first().is_some_and(|name| name == "super") {
        base.pop();
        rest = &rest[1..];
    }
    if matches!(rest.first().map(String::as_str), Some("crate" | "self")) {
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// The module whose file defines what is imported.
fn defining_module<'a>(modules: &'a Modules, import: &[String], depth: usize) -> Option<&'a ModulePath> {
    let split = (0..=import.len()).rev().find(|at| modules.contains_key(&import[..*at]))?;
    let (path, module) = modules.get_key_value(&import[..split])?;
    let Some(name) = import.get(split) else { return Some(path) };
    let passed_on = module.passed_on.iter().find(|(held, _)| held == name);
    match passed_on {
        Some((_, origin)) if depth < 8 => {
            let origin = [origin.as_slice(), &import[split + 1..]].concat();
            defining_module(modules, &origin, depth + 1)
        }
        _ => Some(path),
    }
}
