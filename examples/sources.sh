# Looks through the sources of this project, one call per block, in one session.
cd rlm-core/src
files=$(find . -name '*.rs' | sort)
echo "$(wc -l <<<"$files") files in ${PWD##*/}"
# %%
# A function, kept for the calls that follow.
count() { cat $files | grep -c "$1"; }
count '#\[test\]'
# %%
# A background job: it goes on while other calls run.
cat $files | tr -cs 'a-z' '\n' | sort | uniq -c | sort -rn | head -3 >/tmp/rlm-words.$$ &
# %%
# A pipeline over the files, and an error that is only an error.
for file in $files; do echo "$(wc -l <$file) $file"; done | sort -rn | head -3
echo "an open quote
# %%
# A here-document with what earlier calls left behind.
wait
read words word </tmp/rlm-words.$$ && rm /tmp/rlm-words.$$
report=$(cat <<EOF
The wire of this project is $(cat $files | wc -l) lines of Rust in $(wc -l <<<"$files") files.
It has $(count '#\[test\]') tests, and its most frequent word is "$word" ($words times).
EOF
)
# %%
# Nobody types at the terminal: a reader gets end of file.
cat; read -p 'continue? '
# %%
RLM_CONTENT=$report
RLM_READY=1
