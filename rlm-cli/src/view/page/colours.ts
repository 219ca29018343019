// Colours of code.

const WORDS: Record<string, RegExp> = {
  python:
    /(?<comment>#.*)|(?<text>"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?<word>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b)|(?<number>\b\d[\w.]*)/g,
  bash: /(?<comment>(?<=^|\s)#.*)|(?<text>"(?:\\[^]|[^"\\])*"|'[^']*')|(?<word>\b(?:case|do|done|elif|else|esac|fi|for|function|if|in|then|until|while)\b|\$\w+|\$\{[^}]*\})|(?<number>(?<![\w.])\d+(?![\w.]))/gm,
};

/** Longest code with colours, in characters. */
const MAX_COLOURED = 20_000;

function colour(code: Element, words: RegExp): void {
  // What is selected stays so.
  if (code.querySelector("[class^=code-]") || getSelection()?.containsNode(code, true)) return;
  for (const node of [...code.childNodes]) {
    if (!(node instanceof Text) || node.length > MAX_COLOURED) continue;
    const parts: Child[] = [];
    let end = 0;
    for (const found of node.data.matchAll(words)) {
      const kind = Object.entries(found.groups!).find(([, text]) => text !== undefined)![0];
      parts.push(node.data.slice(end, found.index), make("span", { class: `code-${kind}` }, found[0]));
      end = found.index + found[0].length;
    }
    if (end > 0) node.replaceWith(...parts, node.data.slice(end));
  }
}

/** Colours code when it comes into view. */
const inView = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    inView.unobserve(target);
    const words = WORDS[target.closest<HTMLElement>("[data-language]")?.dataset.language ?? ""];
    if (words) colour(target, words);
  }
}, { rootMargin: "400px" });

function colourAll(article: HTMLElement): void {
  for (const turn of all<HTMLElement>("details.turn", article)) turn.dataset.language = article.dataset.language ?? "";
  for (const code of all("pre.repl", article)) inView.observe(code);
}
