//! Symbols of each language, in source that has one of each kind, and some that are none.

use std::collections::VecDeque;

use super::*;

pub(super) const FILES: &[(&str, &str)] = &[
    (
        "shop.py",
        r#"import os

LIMIT = 10
LIMIT = 11


# What a customer holds.
class Cart(dict):
    """A cart."""

    size: int = 0

    def __init__(self, owner: str,
                 limit: int = LIMIT) -> None:
        def inner():
            pass
        self.owner = owner

    @property
    def total(self):
        return 1

    @total.setter
    def total(self, value): self._total = value

    class Item:
        async def price(self): ...


if os.name == "posix":
    @cache
    def load(path):
        return path
"#,
    ),
    (
        "shape.rs",
        r#"//! Shapes.

use std::fmt;

/// A shape.
#[derive(Debug)]
pub struct Shape<T> {
    sides: T,
}

pub enum Kind { A, B }

impl<T> Shape<T> {
    /// The expected number.
    pub fn sides(&self) -> usize where T: Copy {
        fn hidden() {}
        3
    }
}

impl<T> fmt::Display for Shape<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { Ok(()) }
}

pub trait Area {
    const UNIT: f64;
    type Out;
    fn area(&self) -> f64;
}

mod inner {
    pub(crate) fn deep() {}
    #[cfg(test)]
    mod tests {
        #[test]
        fn works() {}
    }
}

macro_rules! square { () => {} }
pub const MAX: usize = 3;
static NAME: &str = "x";
type Pair = (u8, u8);
extern "C" { fn abs(x: i32) -> i32; }
"#,
    ),
    (
        "app.js",
        r#"import x from "y";

/** Starts. */
export async function start(port, { host } = {}) {
  function hidden() {}
}

export default class App extends Base {
  #secret = 1;
  constructor(a) { super(a); }
  static get name() { return 1; }
  *items() { yield 1; }
}

export const add = (a, b) => a + b, LIMIT = 3;
const api = {
  get(path) { return path; },
};
function* generate() {}
"#,
    ),
    (
        "types.ts",
        r#"export interface User<T> extends Base {
  id: number;
  rename(name: string): void;
}
export type Id = string | number;
enum Color { Red, Green }
namespace Tools {
  export function twice(x: number): number;
  export function twice(x: string): string;
  export function twice(x: any) { return x; }
}
abstract class Shape {
  abstract area(): number;
  private readonly label = "x";
}
declare function outside(a: string): void;
"#,
    ),
    (
        "view.tsx",
        r#"export function View(props: { name: string }) {
  return <div>{props.name}</div>;
}
"#,
    ),
    (
        "server.go",
        r#"package main

const Max = 3

const (
	A = 1
	B = 2
)

// Server serves.
type Server[T any] struct {
	name string
}

type Handler interface {
	Handle(path string) error
}

type (
	ID = string
	Count int
)

var global int

func main() { go func() {}() }

// Start starts.
func (s *Server[T]) Start(port int) error {
	return nil
}
"#,
    ),
    (
        "Main.java",
        r#"package a;

/** Main. */
@Deprecated
public class Main<T> extends Base implements Runnable {
    private int x;
    public Main(int x) { this.x = x; }
    @Override
    public void run() { Runnable r = () -> {}; }
    int add(int a) { return a; }
    int add(int a, int b) { return a + b; }
    static class Inner { void go() {} }
    enum Color { RED; void paint() {} }
}
interface Walk { void walk(int far); }
record Point(int x, int y) { double size() { return 0; } }
@interface Mark { int value(); }
"#,
    ),
    (
        "list.c",
        r#"#include <stdio.h>
#define SIZE 10
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* A node. */
struct node {
    struct node *next;
};
typedef struct { int x; } point_t;
enum color { RED, GREEN };
union value { int i; float f; };
static int count;
int (*callback)(void);

static int *
push(struct node *head,
     int value)
{
    return 0;
}
int declared(int a, char *b);
#ifdef SIZE
void conditional(void) {}
#endif
"#,
    ),
    (
        "geo.hpp",
        r#"#pragma once
namespace geo {
namespace deep::er { void far(); }

// A box.
template <typename T>
class Box : public Base<T> {
 public:
  Box(int w);
  ~Box();
  T area() const { return w * h; }
  Box& operator=(const Box& other);
  static Box* make(int w);
  struct Part { int n; };
 private:
  int w, h;
};

template <typename T>
T Box<T>::volume(T z) { return z; }

using Pair = std::pair<int, int>;
}  // namespace geo
extern "C" { int c_api(void); }
"#,
    ),
    ("util.h", "class Widget { void draw(); };\nint plain(void);\n"),
    ("notes.txt", "one\ntwo"),
];

/// `kind symbol line-end_line` of all symbols: first those of a file, then those of what holds some.
async fn listed(nav: &Nav, scope: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut scopes = VecDeque::from([scope.to_owned()]);
    while let Some(scope) = scopes.pop_front() {
        for entry in nav.ok("nav_ls", json!([scope])).await.as_array().unwrap() {
            let (kind, symbol) = (entry["kind"].as_str().unwrap(), entry["symbol"].as_str().unwrap());
            lines.push(format!("{kind} {symbol} {}-{}", entry["line"], entry["end_line"]));
            if entry["members"] != 0 && !scopes.iter().any(|held| held == symbol) {
                scopes.push_back(symbol.to_owned());
            }
        }
    }
    lines
}

#[tokio::test]
async fn outlines_and_lists_of_each_language() {
    let nav = Nav::of(FILES);
    for (file, outline, list) in EXPECTED {
        let text = nav.ok("nav_outline", json!([file])).await;
        assert_eq!(text.as_str().unwrap().lines().collect::<Vec<_>>(), *outline, "{file}");
        assert_eq!(listed(&nav, file).await, *list, "{file}");
    }
    assert_eq!(EXPECTED.len(), FILES.len());
}

/// File, outline, list.
const EXPECTED: &[(&str, &[&str], &[&str])] = &[
    (
        "shop.py",
        &[
            r#"shop.py: python, 33 lines"#,
            r#" 3: LIMIT = 10"#,
            r#" 8: class Cart(dict)"#,
            r#"11:     size: int = 0"#,
            r#"13:     def __init__(self, owner: str, limit: int = LIMIT) -> None"#,
            r#"20:     def total(self)"#,
            r#"24:     def total(self, value)"#,
            r#"26:     class Item"#,
            r#"27:         async def price(self)"#,
            r#"32: def load(path)"#,
        ],
        &[
            "variable shop.py:LIMIT 3-3",
            "class shop.py:Cart 8-27",
            "function shop.py:load 32-33",
            "variable shop.py:Cart.size 11-11",
            "method shop.py:Cart.__init__ 13-17",
            "method shop.py:Cart.total 20-21",
            "method shop.py:Cart.total 24-24",
            "class shop.py:Cart.Item 26-27",
            "method shop.py:Cart.Item.price 27-27",
        ],
    ),
    (
        "shape.rs",
        &[
            r#"shape.rs: rust, 44 lines"#,
            r#" 7: pub struct Shape<T>"#,
            r#"11: pub enum Kind"#,
            r#"13: impl<T> Shape<T>"#,
            r#"15:     pub fn sides(&self) -> usize where T: Copy"#,
            r#"21: impl<T> fmt::Display for Shape<T>"#,
            r#"22:     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result"#,
            r#"25: pub trait Area"#,
            r#"26:     const UNIT: f64"#,
            r#"27:     type Out"#,
            r#"28:     fn area(&self) -> f64"#,
            r#"31: mod inner"#,
            r#"32:     pub(crate) fn deep()"#,
            r#"34:     mod tests"#,
            r#"36:         fn works()"#,
            r#"40: macro_rules! square { () => {} }"#,
            r#"41: pub const MAX: usize = 3"#,
            r#"42: static NAME: &str = "x""#,
            r#"43: type Pair = (u8, u8)"#,
            r#"44: fn abs(x: i32) -> i32"#,
        ],
        &[
            "struct shape.rs:Shape 7-9",
            "enum shape.rs:Kind 11-11",
            "impl shape.rs:Shape 13-19",
            "impl shape.rs:Shape 21-23",
            "trait shape.rs:Area 25-29",
            "module shape.rs:inner 31-38",
            "macro shape.rs:square 40-40",
            "constant shape.rs:MAX 41-41",
            "variable shape.rs:NAME 42-42",
            "type shape.rs:Pair 43-43",
            "function shape.rs:abs 44-44",
            "method shape.rs:Shape.sides 15-18",
            "method shape.rs:Shape.fmt 22-22",
            "constant shape.rs:Area.UNIT 26-26",
            "type shape.rs:Area.Out 27-27",
            "method shape.rs:Area.area 28-28",
            "function shape.rs:inner.deep 32-32",
            "module shape.rs:inner.tests 34-37",
            "function shape.rs:inner.tests.works 36-36",
        ],
    ),
    (
        "app.js",
        &[
            r#"app.js: javascript, 19 lines"#,
            r#" 4: export async function start(port, { host } = {})"#,
            r#" 8: export default class App extends Base"#,
            r#"10:     constructor(a)"#,
            r#"11:     static get name()"#,
            r#"12:     *items()"#,
            r#"15: add = (a, b)"#,
            r#"15: LIMIT = 3"#,
            r#"16: const api"#,
            r#"17:     get(path)"#,
            r#"19: function* generate()"#,
        ],
        &[
            "function app.js:start 4-6",
            "class app.js:App 8-13",
            "function app.js:add 15-15",
            "variable app.js:LIMIT 15-15",
            "variable app.js:api 16-18",
            "function app.js:generate 19-19",
            "method app.js:App.constructor 10-10",
            "method app.js:App.name 11-11",
            "method app.js:App.items 12-12",
            "method app.js:api.get 17-17",
        ],
    ),
    (
        "types.ts",
        &[
            r#"types.ts: typescript, 16 lines"#,
            r#" 1: export interface User<T> extends Base"#,
            r#" 3:     rename(name: string): void"#,
            r#" 5: export type Id = string | number"#,
            r#" 6: enum Color"#,
            r#" 7: namespace Tools"#,
            r#" 8:     export function twice(x: number): number"#,
            r#" 9:     export function twice(x: string): string"#,
            r#"10:     export function twice(x: any)"#,
            r#"12: abstract class Shape"#,
            r#"13:     abstract area(): number"#,
            r#"16: declare function outside(a: string): void"#,
        ],
        &[
            "interface types.ts:User 1-4",
            "type types.ts:Id 5-5",
            "enum types.ts:Color 6-6",
            "namespace types.ts:Tools 7-11",
            "class types.ts:Shape 12-15",
            "function types.ts:outside 16-16",
            "method types.ts:User.rename 3-3",
            "function types.ts:Tools.twice 8-8",
            "function types.ts:Tools.twice 9-9",
            "function types.ts:Tools.twice 10-10",
            "method types.ts:Shape.area 13-13",
        ],
    ),
    (
        "view.tsx",
        &[r#"view.tsx: tsx, 3 lines"#, r#"1: export function View(props: { name: string })"#],
        &["function view.tsx:View 1-3"],
    ),
    (
        "server.go",
        &[
            r#"server.go: go, 31 lines"#,
            r#" 3: const Max = 3"#,
            r#" 6: A = 1"#,
            r#" 7: B = 2"#,
            r#"11: type Server[T any] struct"#,
            r#"15: type Handler interface"#,
            r#"16:     Handle(path string) error"#,
            r#"20: ID = string"#,
            r#"21: Count int"#,
            r#"24: var global int"#,
            r#"26: func main()"#,
            r#"29:     func (s *Server[T]) Start(port int) error"#,
        ],
        &[
            "constant server.go:Max 3-3",
            "constant server.go:A 6-6",
            "constant server.go:B 7-7",
            "type server.go:Server 11-13",
            "type server.go:Handler 15-17",
            "type server.go:ID 20-20",
            "type server.go:Count 21-21",
            "variable server.go:global 24-24",
            "function server.go:main 26-26",
            "method server.go:Server.Start 29-31",
            "method server.go:Handler.Handle 16-16",
        ],
    ),
    (
        "Main.java",
        &[
            r#"Main.java: java, 17 lines"#,
            r#" 5: @Deprecated public class Main<T> extends Base implements Runnable"#,
            r#" 7:     public Main(int x)"#,
            r#" 9:     @Override public void run()"#,
            r#"10:     int add(int a)"#,
            r#"11:     int add(int a, int b)"#,
            r#"12:     static class Inner"#,
            r#"12:         void go()"#,
            r#"13:     enum Color"#,
            r#"13:         void paint()"#,
            r#"15: interface Walk"#,
            r#"15:     void walk(int far)"#,
            r#"16: record Point(int x, int y)"#,
            r#"16:     double size()"#,
            r#"17: @interface Mark"#,
        ],
        &[
            "class Main.java:Main 5-14",
            "interface Main.java:Walk 15-15",
            "record Main.java:Point 16-16",
            "annotation Main.java:Mark 17-17",
            "method Main.java:Main.Main 7-7",
            "method Main.java:Main.run 9-9",
            "method Main.java:Main.add 10-10",
            "method Main.java:Main.add 11-11",
            "class Main.java:Main.Inner 12-12",
            "enum Main.java:Main.Color 13-13",
            "method Main.java:Walk.walk 15-15",
            "method Main.java:Point.size 16-16",
            "method Main.java:Main.Inner.go 12-12",
            "method Main.java:Main.Color.paint 13-13",
        ],
    ),
    (
        "list.c",
        &[
            r#"list.c: c, 24 lines"#,
            r#" 2: #define SIZE 10"#,
            r#" 3: #define MAX(a, b) ((a) > (b) ? (a) : (b))"#,
            r#" 6: struct node"#,
            r#" 9: typedef struct { int x; } point_t"#,
            r#"10: enum color"#,
            r#"11: union value"#,
            r#"15: static int * push(struct node *head, int value)"#,
            r#"21: int declared(int a, char *b)"#,
            r#"23: void conditional(void)"#,
        ],
        &[
            "macro list.c:SIZE 2-2",
            "macro list.c:MAX 3-3",
            "struct list.c:node 6-8",
            "type list.c:point_t 9-9",
            "enum list.c:color 10-10",
            "union list.c:value 11-11",
            "function list.c:push 15-20",
            "function list.c:declared 21-21",
            "function list.c:conditional 23-23",
        ],
    ),
    (
        "geo.hpp",
        &[
            r#"geo.hpp: c++, 24 lines"#,
            r#" 2: namespace geo"#,
            r#" 3:         namespace deep::er"#,
            r#" 3:             void far()"#,
            r#" 7:     template <typename T> class Box : public Base<T>"#,
            r#" 9:         Box(int w)"#,
            r#"10:         ~Box()"#,
            r#"11:         T area() const"#,
            r#"12:         Box& operator=(const Box& other)"#,
            r#"13:         static Box* make(int w)"#,
            r#"14:         struct Part"#,
            r#"20:         template <typename T> T Box<T>::volume(T z)"#,
            r#"22:     using Pair = std::pair<int, int>"#,
            r#"24: int c_api(void)"#,
        ],
        &[
            "namespace geo.hpp:geo 2-23",
            "namespace geo.hpp:geo.deep.er 3-3",
            "function geo.hpp:c_api 24-24",
            "class geo.hpp:geo.Box 7-17",
            "type geo.hpp:geo.Pair 22-22",
            "function geo.hpp:geo.deep.er.far 3-3",
            "method geo.hpp:geo.Box.Box 9-9",
            "method geo.hpp:geo.Box.~Box 10-10",
            "method geo.hpp:geo.Box.area 11-11",
            "method geo.hpp:geo.Box.operator= 12-12",
            "method geo.hpp:geo.Box.make 13-13",
            "struct geo.hpp:geo.Box.Part 14-14",
            "method geo.hpp:geo.Box.volume 20-20",
        ],
    ),
    (
        "util.h",
        &[r#"util.h: c, 2 lines"#, r#"1: class Widget"#, r#"1:     void draw()"#, r#"2: int plain(void)"#],
        &["class util.h:Widget 1-1", "function util.h:plain 2-2", "method util.h:Widget.draw 1-1"],
    ),
    (
        "notes.txt",
        &[r#"notes.txt: 2 lines; there is no grammar for files of its kind"#],
        &["text notes.txt 1-2"],
    ),
];

#[tokio::test]
async fn a_receiver_may_have_several_type_parameters() {
    let text =
        "package a\nfunc (s *S[T, U]) Method() {}\nfunc (p Plain) Other() {}\nfunc (*Bare) Third() {}\n";
    let nav = Nav::of(&[("a.go", text)]);
    let symbols = field(&nav.ok("nav_ls", json!(["a.go"])).await, "symbol");
    assert_eq!(symbols, ["a.go:S.Method", "a.go:Plain.Other", "a.go:Bare.Third"]);
}
