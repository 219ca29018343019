//! Source that has a symbol of each kind, and some that are none.

pub(in super::super) const FILES: &[(&str, &str)] = &[
    (
        "shop.py",
        r#"import os

LIMIT = 10
LIMIT = 11


# The money of a customer.
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
