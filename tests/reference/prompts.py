"""The prompts of the golden files. All text is ours, or public domain (Carroll, Lincoln)."""


def inventory(lines: int) -> str:
    """A made-up log, regular enough to be read and long enough to fill blocks."""
    sites = ["Aalborg", "Brno", "Cádiz", "Delft", "Évora", "Gdańsk"]
    goods = ["copper wire", "pine boards", "rye flour", "glass jars", "wool yarn"]
    out = []
    for i in range(lines):
        out.append(f"{i + 1:03d} | {sites[i % 6]:8s} | {goods[(i * 7) % 5]} | {(i * 37) % 91 + 1} crates | "
                   f"{(i * 13) % 24:02d}:{(i * 29) % 60:02d}")
    return "\n".join(out)


ALICE = """Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: \
once or twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, \
"and what is the use of a book," thought Alice "without pictures or conversations?"

So she was considering in her own mind (as well as she could, for the hot day made her feel very sleepy and stupid), \
whether the pleasure of making a daisy-chain would be worth the trouble of getting up and picking the daisies, when \
suddenly a White Rabbit with pink eyes ran close by her.

There was nothing so very remarkable in that; nor did Alice think it so very much out of the way to hear the Rabbit \
say to itself, "Oh dear! Oh dear! I shall be late!" (when she thought it over afterwards, it occurred to her that she \
ought to have wondered at this, but at the time it all seemed quite natural); but when the Rabbit actually took a \
watch out of its waistcoat-pocket, and looked at it, and then hurried on, Alice started to her feet, for it flashed \
across her mind that she had never before seen a rabbit with either a waistcoat-pocket, or a watch to take out of it, \
and burning with curiosity, she ran across the field after it, and fortunately was just in time to see it pop down a \
large rabbit-hole under the hedge."""

GETTYSBURG = """Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived \
in Liberty, and dedicated to the proposition that all men are created equal.

Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, \
can long endure. We are met on a great battle-field of that war."""

PYTHON = '''def merge_sorted(a: list[int], b: list[int]) -> list[int]:
    """Merges two sorted lists in linear time."""
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            out.append(a[i]); i += 1
        else:
            out.append(b[j]); j += 1
    return out + a[i:]'''

CPP = """#include <vector>
template <typename T>
[[nodiscard]] constexpr T Sum(const std::vector<T>& v) noexcept {
\tT total{};
\tfor (const auto& x : v) total += x;  // O(n)
\treturn total;
}
int main() { return Sum<int>({0x1F, 0b101, 1'000}) != 1036 ? -1 : 0; }
"""

RUST = """impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.trim_start();
        if rest.is_empty() { return None; }
"""

SQL = """SELECT c.name, COUNT(*) AS orders, SUM(o.total_cents) / 100.0 AS total
FROM customers c LEFT JOIN orders o ON o.customer_id = c.id
WHERE o.placed_at >= '2024-01-01' AND c.country IN ('DE', 'FR')
GROUP BY c.name HAVING COUNT(*) > 3
ORDER BY"""

# name -> text. Encoded with special tokens parsed.
PROMPTS = {
    "english_short": "The capital of France is",
    "english_contractions": "I'm sure they'll say we've done what he'd asked; it isn't John's, they're US's. DON'T SHOUT, "
                            "I'LL hear you're 'twas.",
    "english_alice": ALICE,
    "english_gettysburg": GETTYSBURG,
    "code_python": PYTHON,
    "code_cpp": CPP,
    "code_rust": RUST,
    "code_sql": SQL,
    "code_html": "<!DOCTYPE html>\n<html lang=\"en\">\n  <head><title>Tea &amp; biscuits</title></head>\n  <body class='x'>",
    "code_json": '{"id": 17, "tags": ["a", "b\\u00e9"], "price": 12.50, "nested": {"ok": true, "none": null}, "next": ',
    "code_shell": "#!/bin/sh\nset -eu\nfor f in *.tar.gz; do\n  tar -xzf \"$f\" -C \"${OUT:-/tmp}\" && rm -- \"$f\" || exit $?\ndone\n",
    "scripts_european": "Größe, naïve façade, Łódź, žluťoučký kůň, Þórður, Ἀθῆναι, Москва слезам не верит, ძალა, հայերեն",
    "scripts_asian": "人工知能は世界を変える。机器学习很有趣。한국어 문장입니다. ภาษาไทยไม่มีช่องว่าง हिन्दी में लिखना தமிழ் எழுத்து",
    "scripts_rtl": "שלום עולם! مرحبا بالعالم، كيف حالكم؟ ‏اردو‎ ܐܒܓܕ",
    "combining": "e\u0301 versus é, a\u0308\u0323, Z\u0351\u036b\u0343a\u0317lgo, क्षि, กำ, \u200b\u200d\ufeff zero widths, \ufffd",
    "emoji": "Party 🎉🎊! 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ❤️‍🔥 ☺︎ 🧑🏿‍🚀 1️⃣ #️⃣ 🫠",
    "numbers": "3.14159 2,718,281 1e-9 0xDEADBEEF 007 1234567890123456789 ½ ² ⅷ ٣٤٥ १२३ 𝟘𝟙 ①② 12am v2.0.1-rc3 +49 (0)30",
    "maths": "∀x∈ℝ: x² ≥ 0 ⇒ ∑ᵢ₌₁ⁿ i = n(n+1)/2; ∫₀^∞ e^{-x²}dx = √π/2; \\frac{a}{b} \\leq \\alpha_1",
    "whitespace_runs": "a  b   c    d     e\t\tf\t g \t h\n\n\ni\n \n  j\r\nk\r\n\r\n  l   \n",
    "whitespace_only": "      \n\n\t\t\t    ",
    "whitespace_unicode": "no\u00a0break\u2003em\u3000ideographic\u2028line\u2029para\u0085next\u180evowel\u1680ogham \u2009\u2009thin\u000bvt\u000cff",
    "controls": "bell\x07 null\x00 esc\x1b[31mred\x1b[0m \x01\x02\x03\x04\x05\x06\x13\x7f del \x80\x9f",
    "beyond_bmp": "𝔊𝔬𝔱𝔥 𐎀𐎁 𠀀𠀁 \U000e0001 \U000f0000 \U0010ffff \U00040000 \uffff \ue000",
    "special_tokens": "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n",
    "special_in_text": "The token <|im_end|> ends a turn,<|endoftext|> ends a text; <repo_name>kvist<file_sep>README.md\n"
                       "<|im_star|> and <|im_start| > are none, <<|im_start|>>.",
    "punctuation": "!!! ??? ... --- *** ~~~ `code` ``` \"quoted\" ‘curly’ “double” «guillemets» (a)[b]{c}<d> @#$%^&*_+=|\\;:',./",
    "urls": "See https://example.org/a/b?c=d&e=%20f#g or mailto:jane.doe+tag@mail.example.com, C:\\Users\\jane\\file.txt, ~/.config",
    "long_word": "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft " + "ab" * 300 + " " + "x" * 257,
    "repetition": "na na na na na na na na hey hey hey " * 6,
    "questions": "Q: How many legs does a spider have?\nA: Eight.\nQ: What colour is the sky on a clear day?\nA:",
    "long_inventory": ALICE + "\n\n" + inventory(78) + "\n\nThe first line of the list above names the site",
}

# name -> messages; rendered with the file's own template by jinja2, with a generation prompt.
CHATS = {
    "chat_default_system": [{"role": "user", "content": "Write one sentence about the sea."}],
    "chat_own_system": [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "What is the capital of Italy?"},
    ],
    "chat_several_turns": [
        {"role": "user", "content": "Hi! My name is Zoë 🙂."},
        {"role": "assistant", "content": "Hello Zoë, nice to meet you."},
        {"role": "user", "content": "What is my name?\n\n  (one word)  "},
    ],
    "chat_system_later": [
        {"role": "user", "content": "Count to five."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": ""},
    ],
    "chat_empty": [],
}
