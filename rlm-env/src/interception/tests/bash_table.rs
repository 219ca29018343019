//! Bash snippets and their exact plans.

#[rustfmt::skip] // one line of output on a line
pub(super) const ACCEPTED: &[(&str, &[&str])] = &[
    ("echo a \\\n\nx=$(nav_info)\n", &[
        "3:3 nav_info() -> $1",
        "echo a \\\n\nx=${$1}\n",
    ]),
    ("info=$(nav_info)\n", &[
        "1:6 nav_info() -> $1",
        "info=${$1}\n",
    ]),
    ("info=$(nav_info)", &[
        "1:6 nav_info() -> $1",
        "info=${$1}",
    ]),
    ("x=$(rlm_query --max-turns=3 'who failed?' logs/a.log \"b c\" --json)\n", &[
        "1:3 rlm_query('who failed?', max_turns=3, files=['logs/a.log', 'b c'], json=True) -> $1",
        "x=${$1}\n",
    ]),
    ("x=$(rlm_query_batch who when --file logs --share 0.5 -- --odd)\n", &[
        "1:3 rlm_query_batch(['who', 'when', '--odd'], share=0.5, files=['logs']) -> $1",
        "x=${$1}\n",
    ]),
    ("info=\"$(nav_info)\"\n", &[
        "1:7 nav_info() -> $1",
        "info=\"${$1}\"\n",
    ]),
    ("  info=$( nav_info )  # what is there\n", &[
        "1:8 nav_info() -> $1",
        "  info=${$1}  # what is there\n",
    ]),
    ("\tls=$(nav_ls 'src' \"a b\" c)\nprintf '%s\\n' \"$ls\"\n", &[
        "1:5 nav_ls('src', 'a b', 'c') -> $1",
        "\tls=${$1}\nprintf '%s\\n' \"$ls\"\n",
    ]),
    ("x=$(nav_ls src/'a b'.py)\n", &[
        "1:3 nav_ls('src/a b.py') -> $1",
        "x=${$1}\n",
    ]),
    ("x=$(nav_read a.py 2)\ny=$(nav_read a.py '\"2\"')\n", &[
        "1:3 nav_read('a.py', 2) -> $1",
        "2:3 nav_read('a.py', '2') -> $2",
        "x=${$1}\ny=${$2}\n",
    ]),
    ("x=$(nav_ls 3 -5 1.5 true null '[1, \"a\"]' '{\"a\": 1}' 007 1e3)\n", &[
        "1:3 nav_ls(3, -5, 1.5, True, None, [1, 'a'], {'a': 1}, '007', 1000.0) -> $1",
        "x=${$1}\n",
    ]),
    ("x=$(nav_ls '' \"\" - --- '- x')\n", &[
        "1:3 nav_ls('', '', '-', '---', '- x') -> $1",
        "x=${$1}\n",
    ]),
    ("x=$(llm_batch 'what is 1<<3?' \"it's\" '@home' 3)\n", &[
        "1:3 llm_batch(['what is 1<<3?', \"it's\", '@home', '3']) -> $1",
        "x=${$1}\n",
    ]),
    ("x=$(nav_ls 'é' \"日本\" '$HOME `x` \\n \"q\"')\n", &[
        "1:3 nav_ls('é', '日本', '$HOME `x` \\\\n \"q\"') -> $1",
        "x=${$1}\n",
    ]),
    ("budget=$(budget)\necho $budget\n", &[
        "1:8 budget() -> $1",
        "budget=${$1}\necho $budget\n",
    ]),
    ("x=$(nav_ls '#' a=b '# c')\n", &[
        "1:3 nav_ls('#', 'a=b', '# c') -> $1",
        "x=${$1}\n",
    ]),
    ("if true; then\n  echo a\nfi\nx=$(budget)\nfor i in 1 2; do echo $i; done\ny=$(budget)\n", &[
        "4:3 budget() -> $1",
        "6:3 budget() -> $2",
        "if true; then\n  echo a\nfi\nx=${$1}\nfor i in 1 2; do echo $i; done\ny=${$2}\n",
    ]),
    ("f() { echo \"$1\"; }\nx=$(budget)\nf \"$x\"\n", &[
        "2:3 budget() -> $1",
        "f() { echo \"$1\"; }\nx=${$1}\nf \"$x\"\n",
    ]),
    ("# nav_info\necho budget nav_info\nx=$(budget)\n", &[
        "3:3 budget() -> $1",
        "# nav_info\necho budget nav_info\nx=${$1}\n",
    ]),
    ("echo 'a\nb'\nx=$(budget)\necho \"c\nd\"\n", &[
        "3:3 budget() -> $1",
        "echo 'a\nb'\nx=${$1}\necho \"c\nd\"\n",
    ]),
    ("a=(1\n2)\nx=$(budget)\n", &[
        "3:3 budget() -> $1",
        "a=(1\n2)\nx=${$1}\n",
    ]),
    ("set -euo pipefail\nx=$(budget)\n", &[
        "2:3 budget() -> $1",
        "set -euo pipefail\nx=${$1}\n",
    ]),
];

#[rustfmt::skip] // one line of output on a line
pub(super) const UNTOUCHED: &[(&str, &[&str])] = &[
    ("", &[
        "untouched",
    ]),
    ("echo hello\n", &[
        "untouched",
    ]),
    ("echo budget\n", &[
        "untouched",
    ]),
    ("echo 'x\nbudget\ny'\n", &[
        "untouched",
    ]),
    ("cat <<E\nnav_info\nE\n", &[
        "untouched",
    ]),
    ("# nav_info\n", &[
        "untouched",
    ]),
    ("x=$budget\n", &[
        "untouched",
    ]),
    ("grep -n nav_info *.py\n", &[
        "untouched",
    ]),
    ("./nav_info; a/nav_ls; nav_info.sh; nav_infos; x_nav_info\n", &[
        "untouched",
    ]),
    ("case a in a) echo b;; esac # budget\n", &[
        "untouched",
    ]),
    ("echo 'open budget\n", &[
        "untouched",
    ]),
];

#[rustfmt::skip] // one line of output on a line
pub(super) const REJECTED: &[(&str, &[&str])] = &[
    ("echo a \\\nx=$(nav_info)\n", &[
        "line 2, column 5: nav_info is called inside another expression or statement",
        "  write before line 1, at the top level, and use the name:",
        "    info=$(nav_info)",
    ]),
    ("echo a \\\\\nx=$(nav_info)\n", &[
        "line 2, column 3: nav_info is named in code that has a line that goes on after a backslash, before this one; make this call first, in a separate piece of code",
        "  write instead:",
        "    x=$(nav_info)",
    ]),
    ("nav_info\n", &[
        "line 1, column 1: nav_info is called, but its value is not assigned to a name",
        "  write instead:",
        "    info=$(nav_info)",
        "    printf '%s\\n' \"$info\"",
    ]),
    ("nav_info 2>/dev/null\n", &[
        "line 1, column 1: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    printf '%s\\n' \"$info\" 2>/dev/null",
    ]),
    ("nav_ls src | head -3\n", &[
        "line 1, column 1: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    ls=$(nav_ls src)",
        "    printf '%s\\n' \"$ls\" | head -3",
    ]),
    ("echo \"$(nav_info)\"\n", &[
        "line 1, column 9: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    echo \"${info}\"",
    ]),
    ("echo $(nav_ls a) `nav_ls b`\n", &[
        "line 1, column 8: nav_ls is called inside another expression or statement",
        "line 1, column 19: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    ls=$(nav_ls a)",
        "    ls_2=$(nav_ls b)",
        "    echo ${ls} ${ls_2}",
    ]),
    ("x=`nav_info`\n", &[
        "line 1, column 4: nav_info is called on a line that is not just `name=$(…)`",
        "  write instead:",
        "    x=$(nav_info)",
    ]),
    ("x=$(nav_info | head)\n", &[
        "line 1, column 5: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    x=$(printf '%s\\n' \"$info\" | head)",
    ]),
    ("x=$(nav_info; budget)\n", &[
        "line 1, column 5: nav_info is called inside another expression or statement",
        "line 1, column 15: budget is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    budget_value=$(budget)",
        "    x=$(printf '%s\\n' \"$info\"; printf '%s\\n' \"$budget_value\")",
    ]),
    ("x=$(nav_info 2>&1)\n", &[
        "line 1, column 5: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    x=$(printf '%s\\n' \"$info\" 2>&1)",
    ]),
    ("x=a$(nav_info)\n", &[
        "line 1, column 6: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    x=a${info}",
    ]),
    ("x=\"a $(nav_info)\"\n", &[
        "line 1, column 8: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    x=\"a ${info}\"",
    ]),
    ("x+=$(nav_info)\n", &[
        "line 1, column 6: nav_info is called in an augmented assignment",
        "  write instead:",
        "    info=$(nav_info)",
        "    x+=${info}",
    ]),
    ("x[0]=$(nav_info)\n", &[
        "line 1, column 8: nav_info is called with a target that is not a simple name",
        "  write instead:",
        "    info=$(nav_info)",
        "    x[0]=${info}",
    ]),
    ("x=($(nav_info))\n", &[
        "line 1, column 6: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    x=(${info})",
    ]),
    ("export x=$(nav_info)\n", &[
        "line 1, column 12: nav_info is called inside another expression or statement",
        "  write instead:",
        "    x=$(nav_info)",
        "    export x=${x}",
    ]),
    ("local x=$(nav_info)\n", &[
        "line 1, column 11: nav_info is called inside another expression or statement",
        "  write instead:",
        "    x=$(nav_info)",
        "    local x=${x}",
    ]),
    ("x=$(nav_info) y=$(budget)\n", &[
        "line 1, column 5: nav_info is called inside another expression or statement",
        "line 1, column 19: budget is called inside another expression or statement",
        "  write instead:",
        "    x=$(nav_info)",
        "    y=$(budget)",
        "    x=${x} y=${y}",
    ]),
    ("x=$(nav_info); echo $x\n", &[
        "line 1, column 5: nav_info is called on a line that is not just `name=$(…)`",
        "  write instead:",
        "    x=$(nav_info)",
        "    echo $x",
    ]),
    ("x=$(nav_info) && echo $x\n", &[
        "line 1, column 5: nav_info is called inside another expression or statement",
        "  write instead:",
        "    x=$(nav_info)",
        "    x=${x} && echo $x",
    ]),
    ("x=$(nav_info) &\n", &[
        "line 1, column 5: nav_info is called on a line that is not just `name=$(…)`",
        "  write instead:",
        "    x=$(nav_info)",
    ]),
    ("x=$(nav_info) env\n", &[
        "line 1, column 5: nav_info is called inside another expression or statement",
        "  write instead:",
        "    x=$(nav_info)",
        "    x=${x} env",
    ]),
    ("x=$(nav_info)# c\n", &[
        "line 1, column 5: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    x=${info}# c",
    ]),
    ("\rx=$(nav_info)\n", &[
        "line 1, column 6: nav_info is called on a line that is not just `name=$(…)`",
        "  write instead:",
        "    x=$(nav_info)",
    ]),
    ("x=$(nav_info)\r\n", &[
        "line 1, column 5: nav_info is called on a line that is not just `name=$(…)`",
        "  write instead:",
        "    x=$(nav_info)",
    ]),
    ("x=$(nav_info \\\n a)\n", &[
        "line 1, column 14: nav_info needs a literal as argument 1 (found: a backslash)",
        "  write instead:",
        "    x=$(nav_info a)",
    ]),
    ("x=$(\nnav_info\n)\n", &[
        "line 2, column 1: nav_info is called on a line that is not just `name=$(…)`",
        "  write instead:",
        "    x=$(nav_info)",
    ]),
    ("x=$(nav_read \"$path\")\n", &[
        "line 1, column 15: nav_read needs a literal as argument 1 (found: an expansion ($))",
        "  write instead:",
        "    x=$(nav_read <literal>)",
    ]),
    ("x=$(nav_read $path 2)\n", &[
        "line 1, column 14: nav_read needs a literal as argument 1 (found: an expansion ($))",
        "  write instead:",
        "    x=$(nav_read <literal> 2)",
    ]),
    ("x=$(nav_read *.py)\n", &[
        "line 1, column 14: nav_read needs a literal as argument 1 (found: an unquoted pattern or special character)",
        "  write instead:",
        "    x=$(nav_read '*.py')",
    ]),
    ("x=$(nav_read ~/a)\n", &[
        "line 1, column 14: nav_read needs a literal as argument 1 (found: an unquoted pattern or special character)",
        "  write instead:",
        "    x=$(nav_read <literal>)",
    ]),
    ("x=$(nav_read {a,b})\n", &[
        "line 1, column 14: nav_read needs a literal as argument 1 (found: an unquoted pattern or special character)",
        "  write instead:",
        "    x=$(nav_read <literal>)",
    ]),
    ("x=$(nav_read a\\ b)\n", &[
        "line 1, column 15: nav_read needs a literal as argument 1 (found: a backslash)",
        "  write instead:",
        "    x=$(nav_read <literal>)",
    ]),
    ("x=$(nav_read \"a\\\"b\")\n", &[
        "line 1, column 16: nav_read needs a literal as argument 1 (found: a backslash in double quotes)",
        "  write instead:",
        "    x=$(nav_read 'a\"b')",
    ]),
    ("x=$(nav_read $'a')\n", &[
        "line 1, column 14: nav_read needs a literal as argument 1 (found: an expansion ($))",
        "  write instead:",
        "    x=$(nav_read <literal>)",
    ]),
    ("x=$(nav_read \"$(cat p)\")\n", &[
        "line 1, column 15: nav_read needs a literal as argument 1 (found: an expansion ($))",
        "  write instead:",
        "    x=$(nav_read <literal>)",
    ]),
    ("x=$(nav_read @a.py)\n", &[
        "line 1, column 5: nav_read is called with argument 1 that stands for a file (@a.py), which is not supported here",
        "  write instead:",
        "    x=$(nav_read <literal>)",
    ]),
    ("x=$(nav_read --json '[1]')\n", &[
        "line 1, column 5: nav_read is called with argument 1 that is an option (--json), which is not supported here",
        "  write instead:",
        "    x=$(nav_read <literal> '[1]')",
    ]),
    ("x=$(nav_read -- -x)\n", &[
        "line 1, column 5: nav_read is called with argument 1 that is an option (--), which is not supported here",
        "  write instead:",
        "    x=$(nav_read <literal> <literal>)",
    ]),
    ("x=$(llm_batch --lines < p)\n", &[
        "line 1, column 5: llm_batch is called inside another expression or statement",
        "  write instead:",
        "    batch=$(llm_batch <literal>)",
        "    x=$(printf '%s\\n' \"$batch\" < p)",
    ]),
    ("x=$(llm_batch)\n", &[
        "line 1, column 5: llm_batch is called without a prompt; give each prompt as an argument",
        "  write instead:",
        "    x=$(llm_batch)",
    ]),
    ("x=$(rlm_query who -)\n", &[
        "line 1, column 5: rlm_query is not called with the words that it takes: standard input is not known before the code runs",
    ]),
    ("x=$(rlm_query_batch -0 who)\n", &[
        "line 1, column 5: rlm_query_batch is not called with the words that it takes: a variable cannot hold NUL",
    ]),
    ("x=$(rlm_query --model)\n", &[
        "line 1, column 5: rlm_query is not called with the words that it takes: --model needs a value; see rlm_query --help",
    ]),
    ("x=$(llm_batch 'a\nb')\n", &[
        "line 1, column 17: llm_batch needs a literal as argument 1 (found: a line end)",
        "  write instead:",
        "    x=$(llm_batch <literal>)",
    ]),
    ("for p in a b; do x=$(nav_read $p); done\n", &[
        "line 1, column 22: nav_read is called in a `for` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    x=$(nav_read <literal>)",
    ]),
    ("for p in a b; do\n  nav_read \"$p\"\ndone\n", &[
        "line 2, column 3: nav_read is called in a `for` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    read=$(nav_read <literal>)",
    ]),
    ("if nav_info; then :; fi\n", &[
        "line 1, column 4: nav_info is called in an `if` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    info=$(nav_info)",
    ]),
    ("if true; then\n  x=$(nav_info)\nfi\n", &[
        "line 2, column 7: nav_info is called in an `if` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    x=$(nav_info)",
    ]),
    ("while budget; do :; done\n", &[
        "line 1, column 7: budget is called in a `while` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    budget_value=$(budget)",
    ]),
    ("case $(nav_info) in *) ;; esac\n", &[
        "line 1, column 8: nav_info is called in a `case` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    info=$(nav_info)",
    ]),
    ("f() {\n  x=$(nav_info)\n}\n", &[
        "line 2, column 7: nav_info is called in a `{ }` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    x=$(nav_info)",
    ]),
    ("{ x=$(nav_info); }\n", &[
        "line 1, column 7: nav_info is called in a `{ }` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    x=$(nav_info)",
    ]),
    ("( x=$(nav_info) )\n", &[
        "line 1, column 7: nav_info is called in a `( )` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    x=$(nav_info)",
    ]),
    ("[[ $(budget) -gt 3 ]] && echo a\n", &[
        "line 1, column 6: budget is called inside another expression or statement",
        "  write instead:",
        "    budget_value=$(budget)",
        "    [[ ${budget_value} -gt 3 ]] && echo a",
    ]),
    ("echo $(( $(budget) + 1 ))\n", &[
        "line 1, column 12: budget is called inside another expression or statement",
        "  write instead:",
        "    budget_value=$(budget)",
        "    echo $(( ${budget_value} + 1 ))",
    ]),
    ("! nav_info\n", &[
        "line 1, column 3: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    ! printf '%s\\n' \"$info\"",
    ]),
    ("time nav_info\n", &[
        "line 1, column 6: nav_info is used as a value; a tool can only be called",
        "  write instead:",
        "    info=$(nav_info <literal>)",
    ]),
    ("cat f | xargs -n1 nav_read\n", &[
        "line 1, column 19: nav_read is used as a value; a tool can only be called",
        "  write instead:",
        "    read=$(nav_read <literal>)",
    ]),
    ("\\nav_info\n'nav_info'\n", &[
        "line 1, column 1: nav_info is called, but its value is not assigned to a name",
        "  write instead:",
        "    info=$(nav_info)",
        "    printf '%s\\n' \"$info\"",
        "line 2, column 1: nav_info is called, but its value is not assigned to a name",
        "  write instead:",
        "    info_2=$(nav_info)",
        "    printf '%s\\n' \"$info_2\"",
    ]),
    ("alias nav_info='x'\n", &[
        "line 1, column 7: nav_info is used as a value; a tool can only be called",
        "  write instead:",
        "    info=$(nav_info <literal>)",
    ]),
    ("nav_info() { :; }\n", &[
        "line 1, column 1: nav_info is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    my_nav_info() { :; }",
    ]),
    ("function budget { :; }\n", &[
        "line 1, column 10: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    function my_budget { :; }",
    ]),
    ("cat <<E\na\nE\nx=$(nav_info)\n", &[
        "line 4, column 3: nav_info is named in code that has a here-document or `<<`; make this call first, in a separate piece of code",
        "  write instead:",
        "    x=$(nav_info)",
    ]),
    ("cat <<E\n$(nav_info)\nE\n", &[
        "line 2, column 3: nav_info is called inside another expression or statement",
        "  write before line 1, at the top level, and use the name:",
        "    info=$(nav_info)",
    ]),
    ("x=${y:-$(nav_info)}\n", &[
        "line 1, column 10: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    x=${y:-${info}}",
    ]),
    ("diff <(nav_ls a) <(nav_ls b)\n", &[
        "line 1, column 8: nav_ls is called inside another expression or statement",
        "line 1, column 20: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    ls=$(nav_ls a)",
        "    ls_2=$(nav_ls b)",
        "    diff <(printf '%s\\n' \"$ls\") <(printf '%s\\n' \"$ls_2\")",
    ]),
    ("__rlm_icpt_0000002a_1=3\n", &[
        "line 1, column 1: __rlm_icpt_0000002a_1 is reserved, as is every name that begins with __rlm_icpt_",
        "  write instead:",
        "    value=3",
    ]),
    ("echo $__rlm_icpt_x\n", &[
        "line 1, column 7: __rlm_icpt_x is reserved, as is every name that begins with __rlm_icpt_",
        "  write instead:",
        "    echo $value",
    ]),
    ("x=$(nav_info\n", &[
        "line 1, column 5: nav_info is named in code that the host's parser does not understand; make this call first, in a separate piece of code",
    ]),
    ("if true; then\nnav_info\n", &[
        "line 2, column 1: nav_info is named in code that the host's parser does not understand; make this call first, in a separate piece of code",
    ]),
    ("x=$(nav_ls a)\nnav_info\n", &[
        "line 2, column 1: nav_info is called, but its value is not assigned to a name",
        "  write instead:",
        "    info=$(nav_info)",
        "    printf '%s\\n' \"$info\"",
    ]),
    ("nav_info > f\nexec nav_info\n", &[
        "line 1, column 1: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info=$(nav_info)",
        "    printf '%s\\n' \"$info\" > f",
        "line 2, column 6: nav_info is used as a value; a tool can only be called",
        "  write instead:",
        "    info_2=$(nav_info <literal>)",
    ]),
    ("x=$(nav_read 1); y=$(nav_info); echo \"$x$y\"\n", &[
        "line 1, column 5: nav_read is called on a line that is not just `name=$(…)`",
        "line 1, column 22: nav_info is called on a line that is not just `name=$(…)`",
        "  write instead:",
        "    x=$(nav_read 1)",
        "    y=$(nav_info)",
        "    echo \"$x$y\"",
    ]),
    ("x=$(nav_read \"a\\(b$\" ^def \"\\$1\" \"$1\" @f)\n", &[
        "line 1, column 16: nav_read needs a literal as argument 1 (found: a backslash in double quotes)",
        "  write instead:",
        "    x=$(nav_read 'a\\(b$' '^def' '$1' <literal> <literal>)",
    ]),
];
