//! Files and scripts as resources.

use rmcp::model::{PaginatedRequestParams, ResourceContents};

use super::*;

#[tokio::test]
async fn files_and_scripts_are_resources() {
    let served = Served::start().await;
    let root = served.root();
    std::fs::create_dir(root.join("sub dir")).unwrap();
    std::fs::write(root.join("sub dir/é.txt"), "text\n").unwrap();
    std::fs::write(root.join("blob"), b"\xff\0").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
    served.output("bash", "x=1").await;
    let listed = served.client.list_all_resources().await.unwrap();
    let uri = |name: &str| format!("file://{}/{name}", root.display());
    let uris: Vec<_> = listed.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(uris, ["rlm://script/bash/default", &uri("blob"), &uri("sub%20dir/%C3%A9.txt")]);
    assert_eq!((listed[2].name.as_str(), listed[2].size), ("sub dir/é.txt", Some(5)));
    let types: Vec<_> = listed.iter().map(|resource| resource.mime_type.as_deref()).collect();
    assert_eq!(types, [Some("text/x-shellscript"), None, Some("text/plain")]);
    let one = |read: Result<ReadResourceResult, ServiceError>| read.unwrap().contents.remove(0);
    match one(served.read(uris[2]).await) {
        ResourceContents::TextResourceContents { text, mime_type, .. } => {
            assert_eq!((text.as_str(), mime_type.as_deref()), ("text\n", Some("text/plain")));
        }
        other => panic!("{other:?}"),
    }
    match one(served.read(uris[1]).await) {
        ResourceContents::BlobResourceContents { blob, .. } => assert_eq!(blob, "/wA="),
        other => panic!("{other:?}"),
    }
    match one(served.read(uris[0]).await) {
        ResourceContents::TextResourceContents { text, .. } => {
            assert!(text.contains("\nx=1\n"), "{text}")
        }
        other => panic!("{other:?}"),
    }
    let script = served.text("session_script", json!({"language": "bash"})).await;
    assert!(script.contains("\nx=1\n"), "{script}");
    for (uri, code) in [
        (uri("none"), ErrorCode::RESOURCE_NOT_FOUND),
        ("rlm://script/bash/none".to_owned(), ErrorCode::RESOURCE_NOT_FOUND),
        ("https://example.org".to_owned(), ErrorCode::RESOURCE_NOT_FOUND),
        (uri("link"), ErrorCode::INVALID_PARAMS),
        (uri("../secret"), ErrorCode::INVALID_PARAMS),
        (uri("%2e%2e/secret"), ErrorCode::INVALID_PARAMS),
        ("file:///etc/passwd".to_owned(), ErrorCode::INVALID_PARAMS),
        (uri("sub%20dir"), ErrorCode::INVALID_PARAMS),
    ] {
        assert_eq!(protocol_error(served.read(&uri).await).0, code, "{uri}");
    }
    let cursor = PaginatedRequestParams::default().with_cursor(Some("nonsense".to_owned()));
    let (code, _) = protocol_error(served.client.list_resources(Some(cursor)).await);
    assert_eq!(code, ErrorCode::INVALID_PARAMS);
    served.close().await;
}
