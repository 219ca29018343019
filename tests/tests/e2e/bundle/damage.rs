//! Programs and bundles that are damaged.

use super::*;

#[test]
fn files_that_a_loss_of_power_took_are_noticed_in_the_next_boot() {
    let (place, bundle) = packed(1000);
    let unpacked = directory(&ran(&place, &bundle));
    let (used, noise) = (unpacked.join(".used"), unpacked.join("lib/noise"));
    let of_this_boot = fs::read_to_string(&used).unwrap();
    let (_, sums) = of_this_boot.split_once('\n').unwrap();
    // Written in another boot, and whole: it is taken for good, once.
    let of_another = format!("another boot\n{sums}");
    fs::write(&used, &of_another).unwrap();
    let before = fs::metadata(&noise).unwrap().modified().unwrap();
    assert_eq!(directory(&ran(&place, &bundle)), unpacked);
    assert_eq!(fs::read_to_string(&used).unwrap(), of_this_boot);
    assert_eq!(fs::metadata(&noise).unwrap().modified().unwrap(), before);
    // Zeros in a file's place, and no file at all: it is unpacked again.
    let link = unpacked.join("lib/link");
    let lines: Vec<_> = of_another.split_inclusive('\n').collect();
    let damages: [&dyn Fn(); 9] = [
        &|| fs::write(&noise, [0; 1000]).unwrap(),
        &|| fs::remove_file(&noise).unwrap(),
        &|| fs::set_permissions(&noise, Permissions::from_mode(0o755)).unwrap(),
        &|| fs::remove_file(&link).unwrap(),
        &|| fs::remove_file(&link).and_then(|()| symlink("rlm", &link)).unwrap(),
        &|| fs::remove_dir(unpacked.join("empty")).unwrap(),
        &|| fs::write(&used, "").unwrap(),
        &|| fs::write(&used, lines[0]).unwrap(),
        // The end of the list is lost, with the file that it names.
        &|| fs::write(&used, lines[..3].concat()).and_then(|()| fs::remove_file(&noise)).unwrap(),
    ];
    for damage in damages {
        fs::write(&used, &of_another).unwrap();
        damage();
        assert_eq!(directory(&ran(&place, &bundle)), unpacked);
        assert!(fs::read(&noise).unwrap().iter().any(|byte| *byte != 0));
        assert_eq!(mode(&noise), 0o644);
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("noise"));
        assert!(unpacked.join("empty").is_dir());
        assert_eq!(names(&cache(&place)).len(), 1);
    }
    // A time to come would keep it for ever.
    let in_a_year = SystemTime::now() + Duration::from_secs(365 * 24 * 3600);
    File::options().append(true).open(&used).unwrap().set_modified(in_a_year).unwrap();
    directory(&ran(&place, &bundle));
    assert!(fs::metadata(&used).unwrap().modified().unwrap() <= SystemTime::now());
}

#[test]
fn programs_that_cannot_be_started_are_unpacked_again_or_passed_over() {
    let (place, bundle) = packed(1000);
    let in_tmp = in_tmp(&place);
    let unpacked = directory(&ran(&place, &bundle));
    let (program, worker) = (unpacked.join("rlm"), unpacked.join("rlm-worker-bash"));
    let damages: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&program).unwrap(),
        &|| fs::write(&worker, "").unwrap(),
        &|| fs::set_permissions(&worker, Permissions::from_mode(0o644)).unwrap(),
        &|| fs::remove_dir_all(&unpacked).unwrap(),
    ];
    for damage in damages {
        damage();
        assert_eq!(directory(&ran(&place, &bundle)), unpacked);
        assert!(fs::metadata(&worker).unwrap().len() > 0);
        assert_eq!(mode(&worker), 0o755);
    }
    // The system refuses a program that looks whole.
    let bytes = fs::metadata(&program).unwrap().len();
    fs::write(&program, "#!/dev/null\n").unwrap();
    File::options().append(true).open(&program).unwrap().set_len(bytes).unwrap();
    assert_eq!(directory(&ran(&place, &bundle)).parent(), Some(&*in_tmp));
    let words = fails(&start(&place, &bundle).env("RLM_CACHE_DIR", cache(&place)).output().unwrap());
    assert!(words.contains("Permission denied"), "{words}");
    fs::remove_dir_all(&in_tmp).unwrap();
    let mounts = "mount -t tmpfs -o mode=755 none \"$1/home\"; \"$0\" exec >/dev/null || [ $? = 7 ]; \
                  mount -o remount,noexec \"$1/home\"";
    let Some(output) = with_mounts(&place, &bundle, mounts) else { return };
    assert_eq!(directory(&output).parent(), Some(&*in_tmp));
    fs::remove_dir_all(&in_tmp).unwrap();
}

#[test]
fn a_bundle_that_is_cut_off_or_damaged_says_so() {
    let (place, bundle) = packed(100_000);
    let whole = fs::read(&bundle).unwrap();
    for bytes in [whole.len() - 1, whole.len() - 1000, whole.len() - 90_000] {
        write_program(&bundle, &whole[..bytes]);
        let words = fails(&ran(&place, &bundle));
        assert!(words.contains("the end of this file is missing"), "{words}");
    }
    let mut damaged = whole.clone();
    let middle = whole.len() - 50_000;
    damaged[middle] ^= 1;
    write_program(&bundle, &damaged);
    let words = fails(&ran(&place, &bundle));
    assert!(words.contains("this file is damaged: copy or download it again"), "{words}");
    assert_eq!(names(&cache(&place)), [""; 0]);
}
