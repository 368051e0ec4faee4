#!/usr/bin/python3
"""Runs the litmus tests in proofs/litmus and their weakened twins under herd7, and checks that
comments in the sources name each test. Unpacks herd7, which Debian 12 does not have, from Debian
sid.

    ci/litmus.py               checks all
    ci/litmus.py --show TEST   prints the tests and twins of one file, in all forms, also as they are translated to AArch64
    ci/litmus.py --list        prints the accesses of the sources that order others, with their tests and mutations

A test is a file in herd7's C format. Its condition describes what must never happen. A line that
ends with `// weaken: CHANGE` is a claim that the ordering is needed: a *twin* of the test, in which
only this line is weaker, must reach the condition, or have a data race. The change is one of

    // weaken: ORDERING -> ORDERING     another ordering of this access
    // weaken: leave out                without this line
    // weaken: => STATEMENT...          other statements

and may end with `(not MODEL...)`, for models that are stronger than the language there. Tests and
twins run under two models of the language, rc11 and rust (see proofs/litmus/rust.cat), and
translated to AArch64 by the usual mapping, with the atomic instructions of ARMv8.1 (lse) and
without (llsc)."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from support import ROOT, TARGET, debian_sh

# Those whose atomic accesses have tests.
CRATES = ["core", "rcu", "bucket", "table", "map", "cache"]
TESTS = ROOT / "proofs/litmus"
WORK = TARGET / "litmus"
HERD = TARGET / "herd7"
# The file of each model, and whether its tests are in assembly.
MODELS = {"rc11": ("rc11.cat", None), "rust": (str(TESTS / "rust.cat"), None), "lse": ("aarch64.cat", True), "llsc": ("aarch64.cat", False)}
# A test takes less than a second. A single call of herd7 runs several tests.
SECONDS = 100
BATCH = 8

MARK = re.compile(r"\s*// weaken: (?P<change>.*?)(?: \(not (?P<stronger>[a-z0-9 ]+)\))?$")


def main():
    if sys.argv[1:2] == ["--show"]:
        return show(sys.argv[2])
    paths = sorted(TESTS.glob("*/*.litmus"))
    if sys.argv[1:] == ["--list"]:
        return list_accesses(paths)
    install()
    problems = named_in_sources(paths)
    weakenings, unnoticed = weakened_sources(paths)
    problems += unnoticed
    variants = [variant for path in paths for variant in variants_of(path)]
    marks = sum(variant.is_twin for variant in variants)
    jobs = [(model, batch) for model in MODELS for batch in batches(variants)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda job: run(*job), jobs):
            problems += found
    for problem in problems:
        print(f"litmus: {problem}", file=sys.stderr)
    summary = f"{len(paths)} tests and {marks} twins under {', '.join(MODELS)}, {weakenings} weaker orderings in the sources"
    print(f"litmus: {summary}: {len(problems)} problems")
    return 1 if problems or not paths else 0


def install():
    if not HERD.exists():
        debian_sh("unpack_from", "sid", HERD, "herdtools7", "libc6", "libgmp10", "libgcc-s1")
        for program in (HERD / "usr/bin").iterdir():
            if program.name != "herd7" and not program.is_symlink():
                program.unlink()


def show(name):
    [path] = TESTS.glob(f"*/{name}.litmus")
    for variant in variants_of(path):
        for model in MODELS:
            print(f"--- {variant.name}, {model}\n{variant.text(model)}")
    return 0


def batches(variants):
    return [variants[start : start + BATCH] for start in range(0, len(variants), BATCH)]


# --- Tests and twins


class Variant:
    """A test, or a twin, in herd7's C format without marks. `stronger` are the models under which
    the twin need not reach the condition."""

    def __init__(self, name, lines, is_twin=False, stronger=()):
        self.name, self.lines, self.is_twin, self.stronger = name, lines, is_twin, stronger

    def text(self, model):
        has_lse = MODELS[model][1]
        return "\n".join(self.lines) + "\n" if has_lse is None else Assembly(self.lines, has_lse).text()


def variants_of(path):
    lines = path.read_text().splitlines()
    if lines[0] != f"C {path.stem}":
        sys.exit(f"litmus: the first line of {path.relative_to(ROOT)} is not its name")
    plain = [MARK.sub("", line) for line in lines]
    yield Variant(path.stem, plain)
    marks = [(number, mark) for number, line in enumerate(lines) if (mark := MARK.search(line))]
    if not marks or any("weaken" in line for line in plain):
        sys.exit(f"litmus: {path.relative_to(ROOT)} has no mark, or one that is not understood")
    for twin, (number, mark) in enumerate(marks, 1):
        changed = plain.copy()
        changed[number] = weakened(plain[number], mark["change"])
        name = f"{path.stem}+{twin}"
        changed[0] = f"C {name}"
        yield Variant(name, changed, True, (mark["stronger"] or "").split())


def weakened(line, change):
    if change == "leave out":
        return ""
    if change.startswith("=> "):
        return change.removeprefix("=> ").replace("; ", ";\n")
    strong, weak = (f"memory_order_{ordering}" for ordering in change.split(" -> "))
    if strong not in line:
        sys.exit(f"litmus: no {strong} in: {line}")
    return line.replace(strong, weak, 1)


# --- Running


def run(model, batch):
    """Runs a batch of tests and twins, and returns what is wrong with the results."""
    folder = WORK / model
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for variant in batch:
        files.append(folder / f"{variant.name}.litmus")
        files[-1].write_text(variant.text(model))
    libraries = HERD / "usr/lib/x86_64-linux-gnu"
    herd = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries, HERD / "usr/bin/herd7"]
    command = [*herd, "-set-libdir", HERD / "usr/share/herdtools7/herd", "-model", MODELS[model][0], *files]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return [f"herd7 did not end within {SECONDS} s: {model}, {batch[0].name} to {batch[-1].name}"]
    problems = [f"{model}: {line}" for line in done.stderr.splitlines()]
    reports = dict(re.findall(r"^Test (\S+) .*?\n(.*?)^Hash=", done.stdout, re.M | re.S))
    for variant in batch:
        problem = judge(variant, model, reports.get(variant.name, ""))
        problems += [f"{variant.name}, {model}: {problem}"] if problem else []
    return problems


def judge(variant, model, report):
    observed = re.search(r"^Observation \S+ (Never|Sometimes|Always) \d+ (\d+)", report, re.M)
    if not observed:
        return "no result"
    is_reached = observed[1] != "Never" or "\nUndef" in report
    if variant.is_twin:
        is_expected = is_reached or model in variant.stronger
        if is_reached and model in variant.stronger:
            return "the mark names this model, but the twin reaches the condition"
        return None if is_expected else "the weakened twin does not reach the condition"
    if is_reached:
        return "reaches the condition, or has a data race"
    return None if int(observed[2]) else "no execution passes the filter"


# --- The names of tests in the sources

METHOD = re.compile(r"\b(load|store|swap|compare_exchange(?:_weak)?|fetch_\w+|fence|compiler_fence|light|heavy|full_fence|fence_after_exchange)\(")
ORDERING = re.compile(r"\b(Relaxed|Acquire|Release|AcqRel|SeqCst)\b")
# Functions that execute a fence, and compiler fences: they may name tests of fences, and need not.
FENCES_BY_CALL = {"light", "heavy", "full_fence", "fence_after_exchange", "compiler_fence"}
CALL = ("fence", "SeqCst by call")
# The load of an exchange that fails.
FAILED = "failed compare_exchange"
# What the functions of a test are called in Rust.
IN_RUST = {"thread_fence": "fence", "exchange": "swap", "compare_exchange_strong": "compare_exchange"}


def named_in_sources(paths):
    """Checks that the comments of the sources and the tests fit. Each atomic access that orders
    others names a test (`litmus: NAME`). The test exists, and has such an access with the same
    ordering. One of its tests has a twin in which such an access is weaker, or the access says that
    its ordering is stronger than needed. Each test is named, by such an access for each of its
    twins."""
    tests, problems, found = Tests(paths), [], []
    for path, number, names, accesses in all_statements():
        found.append((names, accesses))
        problems += [f"{path.relative_to(ROOT)}:{number}: {problem}" for problem in tests.problems(names, accesses)]
    named = set().union(*(names for names, _ in found))
    problems += [f"no comment names the test {name}" for name in sorted(tests.accesses.keys() - named)]
    return problems + list(tests.twins_without_access(found))


def weakened_sources(paths):
    """Weakens each ordering in the sources. Returns how many variants there are, and the ones that
    `named_in_sources` does not notice."""
    tests, count, unnoticed = Tests(paths), 0, []
    statements_of = {path: list(statements(path.read_text())) for path in sources()}
    for path in sources():
        others = [statement[1:] for other in statements_of.keys() - {path} for statement in statements_of[other]]
        lines = without_tests(path.read_text()).splitlines()
        for number, column, ordering in orderings_of_accesses(lines):
            for weaker in WEAKER.get(ordering, ()):
                line = lines[number]
                changed = [*lines[:number], line[:column] + weaker + line[column + len(ordering) :], *lines[number + 1 :]]
                here = [statement[1:] for statement in statements("\n".join(changed))]
                count += 1
                if not any(any(tests.problems(*statement)) for statement in here) and not any(tests.twins_without_access(here + others)):
                    unnoticed.append(f"{path.relative_to(ROOT)}:{number + 1}: {weaker} instead of {ordering} is not noticed")
    return count, unnoticed


def orderings_of_accesses(lines):
    """The line, the column and the name of each ordering."""
    is_import = False
    for number, line in enumerate(lines):
        is_import = is_import or bool(re.match(r"\s*(pub(\(crate\))? )?use ", line))
        is_code = not is_import and "loom::" not in line and not line.lstrip().startswith("//") and NOT_NEEDED not in lines[number - 1]
        is_import = is_import and ";" not in line
        for match in ORDERING.finditer(line) if is_code else ():
            yield number, match.start(), match[1]


def without_tests(text):
    return re.split(r"^#\[cfg\((?:all\()?test\b", text, flags=re.M)[0]


WEAKER = {"SeqCst": ("AcqRel", "Acquire", "Release", "Relaxed"), "AcqRel": ("Acquire", "Release", "Relaxed"), "Acquire": ("Relaxed",), "Release": ("Relaxed",)}


class Tests:
    def __init__(self, paths):
        self.accesses = {path.stem: accesses_of_test(path.read_text()) for path in paths}
        self.weaker = weaker_accesses(paths)

    def problems(self, names, accesses):
        """What is wrong with an access of the sources and the names of its tests."""
        if not names and orders(accesses):
            yield "this access orders others, and names no litmus test"
        for name in names - {NOT_NEEDED}:
            if name not in self.accesses:
                yield f"there is no litmus test {name}"
            elif not actual(accesses) & self.accesses[name]:
                yield f"{name} has no such access with this ordering"
        if orders(accesses) and bool(too_weak(accesses, names, self.weaker)) == (NOT_NEEDED in names):
            yield f"either a twin has a weaker access here, or the comment ends with `, {NOT_NEEDED}`"

    def twins_without_access(self, found):
        """What the twins weaken, and no access that names their test has. `found` are the names and
        the accesses of all statements."""
        named = {(name, access) for names, accesses in found for name in names for access in actual(accesses)}
        for name, (method, ordering) in sorted(self.weaker.keys() - named):
            yield f"{name} weakens {method} with {ordering}, but no access that names it has that"


# Stands after the names of the tests of an access.
NOT_NEEDED = "stronger than needed"


def weaker_accesses(paths):
    """For each test and each of its accesses: what replaces the ordering in a twin."""
    weaker = {}
    for path in paths:
        for line in path.read_text().splitlines():
            if match := MARK.search(line):
                replacement = replacement_of(match["change"])
                for access in accesses_of_test(line[: match.start()]):
                    weaker.setdefault((path.stem, access), set()).add(replacement)
    return weaker


def replacement_of(change):
    if change.startswith("=>"):
        return "two accesses"
    return in_rust(change.split(" -> ")[1]) if " -> " in change else "nothing"


def too_weak(accesses, names, weaker):
    """What does not suffice in place of an access, according to the twins of its tests."""
    return set().union(*(weaker.get((name, access), ()) for name in names for access in actual(accesses)))


def sources():
    of_crates = [path for crate in CRATES for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))]
    return [*of_crates, ROOT / "crates/papers/src/tables/key_move.rs"]


def all_statements():
    for path in sources():
        yield from ((path, *statement) for statement in statements(path.read_text()))


def orders(accesses):
    return any(ordering != "Relaxed" for _, ordering in accesses - {CALL})


def actual(accesses):
    return {("fence", "SeqCst") if access == CALL else access for access in accesses}


def accesses_of_test(text):
    """The accesses of a test that order others, as Rust calls them."""
    found = re.findall(r"atomic_(\w+?)(?:_explicit)?\(.*?memory_order_(\w+)(?:, memory_order_(\w+))?", text)
    accesses = {(IN_RUST.get(method, method), in_rust(ordering)) for method, ordering, _ in found}
    accesses |= {(FAILED, in_rust(on_failure)) for _, _, on_failure in found if on_failure}
    return {access for access in accesses if access[1] != "Relaxed"}


def in_rust(ordering):
    return "".join(map(str.title, ordering.split("_")))


def statements(text):
    """The statements of a source with atomic accesses, or after a comment with names: line, names,
    accesses. Unit tests are left out."""
    lines = without_tests(text).splitlines()
    names = set()
    for number, line in enumerate(lines):
        comment = re.match(r"\s*//(.*)", line)
        if comment:
            if match := re.match(r" litmus: (.*)", comment[1]):
                names |= set(match[1].split(", "))
            continue
        if line.lstrip().startswith("#["):
            continue
        accesses = set() if line.startswith(("use ", "pub(crate) use")) else accesses_of(lines, number)
        if names or orders(accesses):
            yield number + 1, names, accesses
        names = set()


def accesses_of(lines, number):
    """The accesses that begin in this line."""
    statement = " ".join(line.split("//")[0] for line in lines[number : number + 4])
    methods = [match for match in METHOD.finditer(statement) if match.start() < len(lines[number])]
    if "loom::" in lines[number] or re.search(r"\bfn ", lines[number]):
        return set()
    return {access for match in methods for access in accesses_at(match, statement)}


def accesses_at(match, statement):
    method = match[1]
    ordering = ORDERING.search(statement, match.end())
    if method == "compiler_fence" and ordering[1] != "SeqCst":
        yield "fence", "too weak"
    elif method in FENCES_BY_CALL:
        yield CALL
    elif ordering:
        # All read-modify-writes that compute something are the same to the models.
        yield re.sub("_weak", "", re.sub("^fetch_.*", "fetch_add", method)), ordering[1]
        if on_failure := re.match(rf",\s*{ORDERING.pattern}", statement[ordering.end() :]):
            yield FAILED, on_failure[1]


# --- The list

# What stands for each ordering in the list.
SHOWN = {"SeqCst by call": "SeqCst fence"}


def list_accesses(paths):
    """Prints all accesses that order others: where, the ordering, what replaces it in twins of its
    tests, which then fail (a weaker ordering, nothing, or two accesses for an exchange), the tests,
    and the mutations that change the line."""
    print("access\tordering\tnot enough\tlitmus tests\tmutations")
    for row in rows_of_accesses(paths):
        print("\t".join(row))


def rows_of_accesses(paths):
    mutations, weaker, tests = mutations_by_line(), weaker_accesses(paths), {path.stem for path in paths}
    for path, number, names, accesses in all_statements():
        lines, path = path.read_text().splitlines(), path.relative_to(ROOT).as_posix()
        function = next(match[1] for line in reversed(lines[:number]) if (match := re.search(r"\bfn (\w+)", line)))
        orderings = sorted({SHOWN.get(ordering, ordering) for _, ordering in accesses if ordering != "Relaxed"})
        insufficient = sorted(too_weak(accesses, names, weaker))
        found = mutations.get((path, lines[number - 1].strip()), ())
        yield f"{path}: {function}", *map(", ".join, (orderings, insufficient, sorted(names & tests), found))


def mutations_by_line():
    """The names of the mutations that replace a line, by path and line."""
    found = {}
    for patch in ROOT.glob("crates/*/tests/mutations.patch"):
        path, replaced, names = None, [], []
        for line in patch.read_text().splitlines():
            if match := re.match(r"\+\+\+ b/(.*)", line):
                path = match[1]
            elif line.startswith("-"):
                replaced, names = ([] if names else replaced) + [line[1:].strip()], []
            elif line.startswith("+"):
                names += re.findall(r'mutation::\w+\("([a-z-]+)"', line)
                found |= {(path, code): tuple(dict.fromkeys(names)) for code in replaced if names}
            else:
                replaced, names = [], []
    return found


# --- The translation to AArch64

STATEMENTS = {
    "store": re.compile(r"atomic_store_explicit\((\w+), (.+), memory_order_(\w+)\);"),
    "write": re.compile(r"\*(\w+) = (.+);"),
    "load": re.compile(r"(?:int )?r(\d+) = atomic_load_explicit\((\w+), memory_order_(\w+)\);"),
    "read": re.compile(r"(?:int )?r(\d+) = \*(\w+);"),
    "swap": re.compile(r"(?:int )?r(\d+) = atomic_exchange_explicit\((\w+), (.+), memory_order_(\w+)\);"),
    "add": re.compile(r"(?:int )?r(\d+) = atomic_fetch_add_explicit\((\w+), (\d+), memory_order_(\w+)\);"),
    "cas": re.compile(r"(?:int )?r(\d+) = atomic_compare_exchange_strong_explicit\((\w+), (\w+), (.+), memory_order_(\w+), memory_order_(\w+)\);"),
    "fence": re.compile(r"atomic_thread_fence\(memory_order_(\w+)\);"),
    "if_": re.compile(r"if \(r(\d+) (==|!=) (\d+)\) \{"),
    "else_": re.compile(r"\} else \{"),
    "end": re.compile(r"\}"),
    "let": re.compile(r"(?:int )?r(\d+) = (.+);"),
}
LOADS = {"relaxed": "LDR", "acquire": "LDAPR", "seq_cst": "LDAR"}
STORES = {"relaxed": "STR", "release": "STLR", "seq_cst": "STLR"}
# The endings of read-modify-writes, and the exclusive load and store.
UPDATES = {"relaxed": ("", "LDXR", "STXR"), "acquire": ("A", "LDAXR", "STXR"), "release": ("L", "LDXR", "STLXR"), "acq_rel": ("AL", "LDAXR", "STLXR")}
UPDATES["seq_cst"] = UPDATES["acq_rel"]
FENCES = {"seq_cst": "DMB ISH", "release": "DMB ISH", "acquire": "DMB ISHLD"}
# Registers: Wn holds rn, W10 to W12 are temporary, the addresses follow.
FIRST_ADDRESS = 13


class Assembly:
    """A test translated to AArch64. Values are 32 bits wide. Plain accesses become LDR and STR. A
    failed store-exclusive ends the thread: executions in which it fails are left out by the filter."""

    def __init__(self, lines, has_lse):
        self.has_lse, self.labels, self.successes = has_lse, 0, []
        text = re.sub(r"\(\*.*?\*\)", "", "\n".join(lines), flags=re.S)
        head, self.initial, self.body, self.clauses = re.match(r"C (\S+)\s*\{(.*?)\}(.*?)((?:filter|exists).*)", text, re.S).groups()
        self.name = head
        self.values = dict(re.findall(r"(\w+)=(\d+);", self.initial))
        self.threads = []
        for number, text in enumerate(re.findall(r"^P\d+ \(.*?\) \{\n(.*?)^\}", self.body, re.M | re.S)):
            self.number, self.code, self.open, self.addresses = number, [], [], {}
            for line in filter(None, map(str.strip, text.splitlines())):
                self.translate(line)
            self.threads.append((self.code, self.addresses))

    def translate(self, line):
        for name, pattern in STATEMENTS.items():
            if match := pattern.fullmatch(line):
                return getattr(self, name)(*match.groups())
        sys.exit(f"litmus: {self.name}: cannot translate: {line}")

    def emit(self, *instructions):
        self.code += instructions

    def at(self, location):
        register = self.addresses.setdefault(location, FIRST_ADDRESS + len(self.addresses))
        return f"[X{register}]"

    def value(self, expression):
        """Returns the register that holds the value."""
        if match := re.fullmatch(r"r(\d+)", expression):
            return f"W{match[1]}"
        if match := re.fullmatch(r"r(\d+) \+ (\d+)", expression):
            self.emit(f"ADD W10,W{match[1]},#{match[2]}")
        else:
            self.emit(f"MOV W10,#{int(expression)}")
        return "W10"

    def store(self, location, value, ordering):
        self.emit(f"{STORES[ordering]} {self.value(value)},{self.at(location)}")

    def write(self, location, value):
        self.store(location, value, "relaxed")

    def load(self, register, location, ordering):
        self.emit(f"{LOADS[ordering]} W{register},{self.at(location)}")

    def read(self, register, location):
        self.load(register, location, "relaxed")

    def let(self, register, value):
        self.emit(f"MOV W{register},{self.value(value)}")

    def fence(self, ordering):
        self.emit(FENCES[ordering])

    def swap(self, register, location, value, ordering):
        self.update(register, location, self.value(value), ordering, "SWP", None)

    def add(self, register, location, value, ordering):
        self.update(register, location, self.value(value), ordering, "LDADD", f"ADD W11,W{register},W10")

    def update(self, register, location, value, ordering, instruction, compute):
        ending, load, store = UPDATES[ordering]
        at = self.at(location)
        if self.has_lse:
            return self.emit(f"{instruction}{ending} {value},W{register},{at}")
        self.emit(f"{load} W{register},{at}")
        self.emit(*[compute] if compute else [])
        self.exclusive(store, "W11" if compute else value, at)

    def exclusive(self, store, value, at):
        """Stores, and notes the register that shows the failure."""
        status = 30 - sum(number == self.number for number, _ in self.successes)
        self.successes.append((self.number, status))
        self.emit(f"{store} W{status},{value},{at}")

    def cas(self, register, location, expected, value, ordering, on_failure):
        # There is one instruction for both outcomes.
        both = "acq_rel" if (ordering, on_failure) == ("release", "acquire") else ordering
        ending, load, store = UPDATES[both]
        expected, new, at = self.values[expected], self.value(value), self.at(location)
        if self.has_lse:
            self.emit(f"MOV W12,#{expected}", f"CAS{ending} W12,{new},{at}", f"CMP W12,#{expected}", f"CSET W{register},EQ")
            return
        label = self.label()
        self.emit(f"{load} W12,{at}", f"CMP W12,#{expected}", f"CSET W{register},EQ", f"B.NE {label}")
        self.exclusive(store, new, at)
        self.emit(f"{label}:")

    def label(self):
        self.labels += 1
        return f"L{self.labels}"

    def if_(self, register, comparison, value):
        label = self.label()
        self.emit(f"CMP W{register},#{value}", f"B.{'NE' if comparison == '==' else 'EQ'} {label}")
        self.open.append(label)

    def else_(self):
        end = self.label()
        self.emit(f"B {end}", f"{self.open.pop()}:")
        self.open.append(end)

    def end(self):
        self.emit(f"{self.open.pop()}:")

    def text(self):
        initial = " ".join(f"{name}={value};" for name, value in self.values.items())
        for number, (_, addresses) in enumerate(self.threads):
            initial += "".join(f" {number}:X{register}={location};" for location, register in addresses.items())
        columns = [code for code, _ in self.threads]
        rows = [[f"P{number}" for number in range(len(columns))]]
        rows += [[code[row] if row < len(code) else "" for code in columns] for row in range(max(map(len, columns)))]
        clauses = re.sub(r"\b(\d):r(\d+)", r"\1:X\2", self.clauses)
        if self.successes:
            succeeded = " /\\ ".join(f"{number}:X{status}=0" for number, status in self.successes)
            there = re.match(r"filter (.*)\n", clauses)
            clauses = f"filter ({there[1]} /\\ {succeeded})\n{clauses[there.end():]}" if there else f"filter ({succeeded})\n{clauses}"
        table = "\n".join(" | ".join(row) + " ;" for row in rows)
        return f"AArch64 {self.name}\n{{ {initial} }}\n{table}\n{clauses}\n"


sys.exit(main())
