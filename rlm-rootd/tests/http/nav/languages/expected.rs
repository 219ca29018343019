//! The outline and the symbols of each source.

/// File, outline, and symbols as [`super::listed`] tells them.
pub(super) const EXPECTED: &[(&str, &[&str], &str)] = &[
    (
        "shop.py",
        &[
            "shop.py: python, 33 lines",
            " 3: LIMIT = 10",
            " 8: class Cart(dict)",
            "11:     size: int = 0",
            "13:     def __init__(self, owner: str, limit: int = LIMIT) -> None",
            "20:     def total(self)",
            "24:     def total(self, value)",
            "26:     class Item",
            "27:         async def price(self)",
            "32: def load(path)",
        ],
        "variable LIMIT 3-3, class Cart 8-27, function load 32-33, variable Cart.size 11-11, \
         method Cart.__init__ 13-17, method Cart.total 20-21, method Cart.total 24-24, \
         class Cart.Item 26-27, method Cart.Item.price 27-27",
    ),
    (
        "shape.rs",
        &[
            "shape.rs: rust, 44 lines",
            " 7: pub struct Shape<T>",
            "11: pub enum Kind",
            "13: impl<T> Shape<T>",
            "15:     pub fn sides(&self) -> usize where T: Copy",
            "21: impl<T> fmt::Display for Shape<T>",
            "22:     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result",
            "25: pub trait Area",
            "26:     const UNIT: f64",
            "27:     type Out",
            "28:     fn area(&self) -> f64",
            "31: mod inner",
            "32:     pub(crate) fn deep()",
            "34:     mod tests",
            "36:         fn works()",
            "40: macro_rules! square { () => {} }",
            "41: pub const MAX: usize = 3",
            r#"42: static NAME: &str = "x""#,
            "43: type Pair = (u8, u8)",
            "44: fn abs(x: i32) -> i32",
        ],
        "struct Shape 7-9, enum Kind 11-11, impl Shape 13-19, impl Shape 21-23, trait Area 25-29, \
         module inner 31-38, macro square 40-40, constant MAX 41-41, variable NAME 42-42, \
         type Pair 43-43, function abs 44-44, method Shape.sides 15-18, method Shape.fmt 22-22, \
         constant Area.UNIT 26-26, type Area.Out 27-27, method Area.area 28-28, \
         function inner.deep 32-32, module inner.tests 34-37, function inner.tests.works 36-36",
    ),
    (
        "app.js",
        &[
            "app.js: javascript, 19 lines",
            " 4: export async function start(port, { host } = {})",
            " 8: export default class App extends Base",
            "10:     constructor(a)",
            "11:     static get name()",
            "12:     *items()",
            "15: add = (a, b)",
            "15: LIMIT = 3",
            "16: const api",
            "17:     get(path)",
            "19: function* generate()",
        ],
        "function start 4-6, class App 8-13, function add 15-15, variable LIMIT 15-15, \
         variable api 16-18, function generate 19-19, method App.constructor 10-10, \
         method App.name 11-11, method App.items 12-12, method api.get 17-17",
    ),
    (
        "types.ts",
        &[
            "types.ts: typescript, 16 lines",
            " 1: export interface User<T> extends Base",
            " 3:     rename(name: string): void",
            " 5: export type Id = string | number",
            " 6: enum Color",
            " 7: namespace Tools",
            " 8:     export function twice(x: number): number",
            " 9:     export function twice(x: string): string",
            "10:     export function twice(x: any)",
            "12: abstract class Shape",
            "13:     abstract area(): number",
            "16: declare function outside(a: string): void",
        ],
        "interface User 1-4, type Id 5-5, enum Color 6-6, namespace Tools 7-11, class Shape 12-15, \
         function outside 16-16, method User.rename 3-3, function Tools.twice 8-8, \
         function Tools.twice 9-9, function Tools.twice 10-10, method Shape.area 13-13",
    ),
    (
        "view.tsx",
        &["view.tsx: tsx, 3 lines", "1: export function View(props: { name: string })"],
        "function View 1-3",
    ),
    (
        "server.go",
        &[
            "server.go: go, 31 lines",
            " 3: const Max = 3",
            " 6: A = 1",
            " 7: B = 2",
            "11: type Server[T any] struct",
            "15: type Handler interface",
            "16:     Handle(path string) error",
            "20: ID = string",
            "21: Count int",
            "24: var global int",
            "26: func main()",
            "29:     func (s *Server[T]) Start(port int) error",
        ],
        "constant Max 3-3, constant A 6-6, constant B 7-7, type Server 11-13, type Handler 15-17, \
         type ID 20-20, type Count 21-21, variable global 24-24, function main 26-26, \
         method Server.Start 29-31, method Handler.Handle 16-16",
    ),
    (
        "Main.java",
        &[
            "Main.java: java, 17 lines",
            " 5: @Deprecated public class Main<T> extends Base implements Runnable",
            " 7:     public Main(int x)",
            " 9:     @Override public void run()",
            "10:     int add(int a)",
            "11:     int add(int a, int b)",
            "12:     static class Inner",
            "12:         void go()",
            "13:     enum Color",
            "13:         void paint()",
            "15: interface Walk",
            "15:     void walk(int far)",
            "16: record Point(int x, int y)",
            "16:     double size()",
            "17: @interface Mark",
        ],
        "class Main 5-14, interface Walk 15-15, record Point 16-16, annotation Mark 17-17, \
         method Main.Main 7-7, method Main.run 9-9, method Main.add 10-10, method Main.add 11-11, \
         class Main.Inner 12-12, enum Main.Color 13-13, method Walk.walk 15-15, \
         method Point.size 16-16, method Main.Inner.go 12-12, method Main.Color.paint 13-13",
    ),
    (
        "list.c",
        &[
            "list.c: c, 24 lines",
            " 2: #define SIZE 10",
            " 3: #define MAX(a, b) ((a) > (b) ? (a) : (b))",
            " 6: struct node",
            " 9: typedef struct { int x; } point_t",
            "10: enum color",
            "11: union value",
            "15: static int * push(struct node *head, int value)",
            "21: int declared(int a, char *b)",
            "23: void conditional(void)",
        ],
        "macro SIZE 2-2, macro MAX 3-3, struct node 6-8, type point_t 9-9, enum color 10-10, \
         union value 11-11, function push 15-20, function declared 21-21, function conditional 23-23",
    ),
    (
        "geo.hpp",
        &[
            "geo.hpp: c++, 24 lines",
            " 2: namespace geo",
            " 3:         namespace deep::er",
            " 3:             void far()",
            " 7:     template <typename T> class Box : public Base<T>",
            " 9:         Box(int w)",
            "10:         ~Box()",
            "11:         T area() const",
            "12:         Box& operator=(const Box& other)",
            "13:         static Box* make(int w)",
            "14:         struct Part",
            "20:         template <typename T> T Box<T>::volume(T z)",
            "22:     using Pair = std::pair<int, int>",
            "24: int c_api(void)",
        ],
        "namespace geo 2-23, namespace geo.deep.er 3-3, function c_api 24-24, class geo.Box 7-17, \
         type geo.Pair 22-22, function geo.deep.er.far 3-3, method geo.Box.Box 9-9, \
         method geo.Box.~Box 10-10, method geo.Box.area 11-11, method geo.Box.operator= 12-12, \
         method geo.Box.make 13-13, struct geo.Box.Part 14-14, method geo.Box.volume 20-20",
    ),
    (
        "util.h",
        &["util.h: c, 2 lines", "1: class Widget", "1:     void draw()", "2: int plain(void)"],
        "class Widget 1-1, function plain 2-2, method Widget.draw 1-1",
    ),
    ("notes.txt", &["notes.txt: 2 lines; there is no grammar for files of its kind"], "text . 1-2"),
];
