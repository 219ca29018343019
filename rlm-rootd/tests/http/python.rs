//! Python as it posts: `urllib`, `pickle` in every protocol, JSON.

use std::process::Stdio;

use serde_json::json;

use crate::support::{Endpoint, echo, soon};

const SCRIPT: &str = r#"
import base64, json, pickle, sys, urllib.error, urllib.request

url, secret = sys.argv[1:]

def post(body):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + secret}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)

def call(protocol, *args, **kwargs):
    encode = lambda value: base64.b64encode(pickle.dumps(value, protocol)).decode()
    body = {"tool_name": "echo", "serialization": "pickle", "args": encode(args), "kwargs": encode(kwargs)}
    return pickle.loads(base64.b64decode(post(body)["result"]))

shared = [1, 2]
values = [
    None, True, False, 0, -1, 2**31, -(2**63), 2**70, -(2**70), 1.5, float("inf"), -0.0, "", "é\n\0\U0001f600",
    b"", b"\x00\xff", bytearray(b"\x80"), (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [[]], [1, "a"] * 2000,
    {}, {"b": 1, "a": {2: (3,)}}, {None: 1, 1.5: 2}, set(), {1, "x"}, frozenset([1, (2,)]), [shared, shared],
    "x" * 100000,
]
for protocol in range(6):
    for value in values:
        result = call(protocol, value, name=value)
        expected = {"args": (value,), "kwargs": {"name": value}}
        assert result == expected and type(result["args"][0]) is type(value), (protocol, value, result)
        assert list(result["args"][0]) == list(value) if isinstance(value, dict) else True
    print("protocol", protocol)

body = {"tool_name": "echo", "serialization": "json", "args": [1, {"a": None}], "kwargs": {"x": "y"}}
assert post(body) == {"result": {"args": [1, {"a": None}], "kwargs": {"x": "y"}}}, post(body)
assert post({"tool_name": "echo", "args": base64.b64encode(pickle.dumps(())).decode()}).keys() == {"result"}
print("json")

class Hostile:
    def __reduce__(self):
        return (print, ("executed",))

try:
    call(4, Hostile())
except urllib.error.HTTPError as error:
    text = json.load(error)["error"]
    assert error.code == 400 and "builtins.print" in text, (error.code, text)
    print("refused")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_of_python_comes_back_as_it_went() {
    let (endpoint, r) = Endpoint::with_tools(vec![echo("echo", json!({"type": "object"}))]);
    let mut python = tokio::process::Command::new("python3");
    python.args(["-c", SCRIPT, &r.tools_url(&endpoint.base_url), r.secret.reveal()]);
    let output = soon(python.stderr(Stdio::piped()).output()).await.expect("python3");
    let lines =
        (0..6).map(|protocol| format!("protocol {protocol}\n")).collect::<String>() + "json\nrefused\n";
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), lines, "{errors}");
}
