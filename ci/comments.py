"""Checks comments: no line of a Rust source is wider than 100 columns, and no comment has a word of ci/forbidden-words.txt."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100

# For each language, the pattern of a comment line. Its group is the text of the comment.
COMMENT = {
    ".rs": re.compile(r"^\s*//[/!]? ?(.*)$"),
    ".sh": re.compile(r"^\s*# ?(.*)$"),
    ".py": re.compile(r"^\s*# ?(.*)$"),
    ".pml": re.compile(r"^\s*/?\* ?(.*)$"),
    ".litmus": re.compile(r"^(?:\(\* |   (?! ))(.*)$"),
}
# Lines that cannot be broken: code, tables, links, and pictures are indented code.
UNBREAKABLE = re.compile(r"\s*(\||```|\[[^\]]+\]: |\S+$)")


def main():
    rules = [rule(line) for line in (ROOT / "ci/forbidden-words.txt").read_text().splitlines() if line and not line.startswith("# ")]
    rust = sources(".rs", "crates", "fuzz")
    others = sources(".sh", "ci") + sources(".py", "ci") + sources(".pml", "proofs") + sources(".litmus", "proofs")
    problems = [problem for path in rust for problem in wide(path)]
    problems += [problem for path in rust + others for problem in forbidden(path, rules)]
    for problem in problems:
        print(f"comments: {problem}", file=sys.stderr)
    return 1 if problems else 0


def rule(line):
    pattern, instead = line.split("\t")
    return re.compile(pattern, re.I), instead


def sources(suffix, *folders):
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*" + suffix)) if "target" not in path.parts]
    if not found:
        sys.exit(f"comments: no {suffix} files in {', '.join(folders)}")
    return found


def comments(path):
    """The paragraphs of all comments, as lists of (line number, line, text); a line in a code block is a paragraph of its own, without text."""
    paragraph, is_code = [], False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = COMMENT[path.suffix].match(line)
        text = match[1] if match else ""
        if not text.strip():
            is_code = is_code and bool(match)
            if paragraph:
                yield paragraph
            paragraph = []
            continue
        is_fence = text.lstrip().startswith("```")
        if is_code or is_fence:
            yield [(number, line, "")]
            is_code = is_code != is_fence
        else:
            paragraph.append((number, line, text))
    if paragraph:
        yield paragraph


def wide(path):
    for paragraph in comments(path):
        for number, line, text in paragraph:
            if len(line) > WIDTH and text and not UNBREAKABLE.match(text):
                yield f"{path.relative_to(ROOT)}:{number}: {len(line)} columns, {WIDTH} are allowed"


def forbidden(path, rules):
    for paragraph in comments(path):
        # Code is replaced by as many characters, so that match positions are positions in the
        # lines.
        whole = re.sub("`[^`]*`", lambda code: "`" * len(code[0]), " ".join(text for _, _, text in paragraph))
        for pattern, instead in rules:
            for match in pattern.finditer(whole):
                yield f"{path.relative_to(ROOT)}:{line_of(paragraph, match.start())}: \"{match[0]}\": write {instead}"


def line_of(paragraph, place):
    for number, _, text in paragraph:
        if place <= len(text):
            return number
        place -= len(text) + 1
    return paragraph[-1][0]


sys.exit(main())
