"""Finds the places of one source file where a small fault can be planted.

A site is a half-open range of bytes of the source, the text that replaces it when the fault is on, and whether the
range is an expression or a statement. libclang gives types and ranges; expansions in a macro's body are left out.
"""
import ctypes
import re

from clang import cindex
from clang.cindex import CursorKind as Kind
from clang.cindex import TypeKind

VERSION = 4  # Raised when the kinds of sites change; it is in the name of the cache's folder.

COMPARISONS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",),
               "!=": ("==",)}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/"}
COMPOUND = {"+=": "-=", "-=": "+=", "*=": "+=", "/=": "*="}
FUNCTIONS = {Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION,
             Kind.FUNCTION_TEMPLATE}
SCOPES = {Kind.NAMESPACE, Kind.CLASS_DECL, Kind.STRUCT_DECL, Kind.CLASS_TEMPLATE, Kind.UNEXPOSED_DECL,
          Kind.LINKAGE_SPEC}
NUMBERS = {TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG, TypeKind.LONGLONG, TypeKind.ULONGLONG,
           TypeKind.SHORT, TypeKind.USHORT, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.SCHAR, TypeKind.UCHAR}
# Text for people, or memory reserved in advance: no fault there changes what a test may require.
SILENT = re.compile(r"^(Log(Debug|Info|Warning|Error|Line)|format|format_to|\w+Error|CheckFailed|IgnoreError)$")
NOT_DROPPED = re.compile(r"^(?:[\w.\->:]*\b(?:reserve|shrink_to_fit|IgnoreError)\(|HEDDLE_CHECK|static_cast<void>"
                         r"|\(void\)|Log[A-Z]|assert)")
COMMUTES = {"min", "max", "swap", "gcd", "lcm", "equal", "hypot", "iter_swap", "is_permutation"}
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)


def one_line(text):
    """The text without comments and line breaks, so that planting moves no line."""
    text = TEXT.sub(lambda m: " " if m[0].startswith("/") else m[0], text)
    return re.sub(r"\s+", " ", text).strip()


def ends_in_exit(cursor):
    """True where the statement leaves its block: return, continue, break, or a block that ends in one."""
    if cursor.kind in (Kind.RETURN_STMT, Kind.CONTINUE_STMT, Kind.BREAK_STMT):
        return True
    children = list(cursor.get_children())
    return cursor.kind == Kind.COMPOUND_STMT and bool(children) and ends_in_exit(children[-1])


class Finder:
    """Walks the functions of one file; `sites` are dictionaries that survive JSON."""

    def __init__(self, path, arguments):
        with open(path, "rb") as file:
            self.source = file.read()
        unit = cindex.Index.create().parse(path, args=arguments)
        serious = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        if serious:
            place = serious[0].location
            raise RuntimeError(f"{path}: clang: {serious[0].spelling} at {place.file}:{place.line}")
        self.path = path
        self.sites = []
        for cursor in unit.cursor.get_children():
            if cursor.location.file and cursor.location.file.name == path:
                self.functions(cursor)

    def offset(self, location):
        """A location's offset in the file: in a macro's argument that of the argument, else that of the macro."""
        results = (ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint())  # File, line, column, offset.
        cindex.conf.lib.clang_getFileLocation(location, *map(ctypes.byref, results))
        return results[3].value

    def range(self, cursor):
        return self.offset(cursor.extent.start), self.offset(cursor.extent.end)

    def text(self, start, end):
        return self.source[start:end].decode(errors="replace")  # A window of bytes may cut a character.

    def add(self, kind, form, start, end, replacement, after=None):
        text = self.text(start, end)
        if "\n#" in text or "HEDDLE_ASSIGN" in text or "co_" in text:
            return
        # g++ 12 compiles `(c ? a : b) = {…}` to code that assigns to neither or crashes, even without a fault.
        if form == "expression" and re.match(rb"\s*=\s*\{", self.source[end:end + 40]):
            return
        line = self.source.count(b"\n", 0, start) + 1
        last = self.source.count(b"\n", 0, end) + 1
        self.sites.append({"kind": kind, "form": form, "start": start, "end": end, "line": line, "last_line": last,
                           "replacement": one_line(replacement), "before": one_line(text),
                           "after": one_line(replacement) if after is None else after})

    def functions(self, cursor):
        if cursor.kind in FUNCTIONS:
            body = [c for c in cursor.get_children() if c.kind == Kind.COMPOUND_STMT]
            if body:
                head = self.text(self.range(cursor)[0], self.range(body[-1])[0])
                if not re.search(r"\bconst(expr|eval)\b", head):
                    self.walk(body[-1])
            return
        for child in cursor.get_children() if cursor.kind in SCOPES else ():
            self.functions(child)

    def walk(self, cursor):
        children = list(cursor.get_children())
        kind = cursor.kind
        if kind == Kind.STATIC_ASSERT or kind in (Kind.TYPE_REF, Kind.TEMPLATE_REF, Kind.ENUM_DECL):
            return
        start, end = self.range(cursor)
        if self.text(start, start + 12).startswith("HEDDLE_CHECK"):
            return
        if kind == Kind.VAR_DECL:
            head = self.text(start, end).split("=")[0]
            if "constexpr" in head:
                return
            if cursor.type.kind == TypeKind.CONSTANTARRAY:
                children = [c for c in children if c.kind != Kind.INTEGER_LITERAL]
        elif kind == Kind.CASE_STMT:
            children = children[1:]
        elif kind == Kind.COMPOUND_STMT:
            for child in children:
                self.statement(child)
        elif kind == Kind.IF_STMT:
            self.if_statement(cursor, children, start)
        elif kind == Kind.CONDITIONAL_OPERATOR and children:
            self.negate(children[0])
        elif kind == Kind.CALL_EXPR:
            if SILENT.match(cursor.spelling):
                return
            self.call(cursor, children, start, end)
        elif kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR):
            self.binary(cursor, children, start, end)
        elif kind in (Kind.INTEGER_LITERAL, Kind.FLOATING_LITERAL, Kind.CXX_BOOL_LITERAL_EXPR):
            self.literal(kind, start, end)
        for child in children:
            self.walk(child)

    def if_statement(self, cursor, children, start):
        if not re.match(r"if \((?!.*;)", self.text(start, start + 200).split("\n")[0]):
            return  # An `if constexpr`, an `if` in a macro, or one with a declaration.
        if len(children) >= 2 and children[0].kind.is_expression():
            self.negate(children[0])

    def negate(self, condition):
        start, end = self.range(condition)
        text = self.text(start, end)
        if end > start and not text.startswith("HEDDLE_"):
            self.add("negate", "expression", start, end, f"!({text})")

    def statement(self, cursor):
        """A statement of a block that can be left out: a call, an assignment, a check that leaves."""
        start, end = self.range(cursor)
        text = self.text(start, end)
        if cursor.kind == Kind.IF_STMT:
            children = list(cursor.get_children())
            has_else = re.search(r"\belse\b", TEXT.sub("", text))
            if text.startswith("if (") and ends_in_exit(children[-1]) and not has_else:
                self.add("drop check", "statement", start, end, "", after="")
            return
        macro = re.match(r"HEDDLE_RETURN_IF_ERROR\((.*)\)$", text, re.S)
        if macro:
            semicolon = self.semicolon(end)
            if semicolon:
                self.add("drop check", "statement", start, semicolon, f"(void)({macro[1]});")
                self.add("drop statement", "statement", start, semicolon, "", after="")
            return
        if not cursor.kind.is_expression() or NOT_DROPPED.match(text) or text.startswith("HEDDLE_"):
            return
        semicolon = self.semicolon(end)
        if semicolon:
            self.add("drop statement", "statement", start, semicolon, "", after="")

    def semicolon(self, end):
        match = re.compile(rb"\s*;").match(self.source, end)
        return match.end() if match else None

    def binary(self, cursor, children, start, end):
        if len(children) != 2:
            return
        left, right = self.range(children[0]), self.range(children[1])
        if not start <= left[0] <= left[1] <= right[0] <= right[1] <= end:
            return
        operator = one_line(self.text(left[1], right[0]))
        a, b = self.text(*left), self.text(*right)
        for other in COMPARISONS.get(operator, ()):
            self.operator("comparison", start, end, a, other, b)
        if operator in ("&&", "||"):
            other = "||" if operator == "&&" else "&&"
            self.operator("logic", start, end, a, other, b)
            # A bool as the whole is: beside an optional, the whole would become one, and always true.
            for kept in (a, b):
                self.add("logic", "expression", start, end, f"static_cast<bool>({kept})", after=one_line(kept))
        swaps = {**ARITHMETIC, **COMPOUND}
        if operator in swaps and cursor.type.get_canonical().kind in NUMBERS:
            self.operator("arithmetic", start, end, a, swaps[operator], b)

    def operator(self, kind, start, end, left, operator, right):
        self.add(kind, "expression", start, end, f"({left}) {operator} ({right})",
                 after=f"{one_line(left)} {operator} {one_line(right)}")

    def literal(self, kind, start, end):
        text = self.text(start, end)
        if text in ("true", "false"):
            self.add("constant", "expression", start, end, "false" if text == "true" else "true")
            return
        before, after = self.source[start - 1:start], self.source[end:end + 1]
        if before == b"<" or (before in (b" ", b"<", b",") and after == b">"):
            return  # A template's argument.
        match = re.fullmatch(r"(\d+)([uUlL]*)", text)
        if kind == Kind.INTEGER_LITERAL and match and int(match[1]) < 100:
            number = int(match[1])
            self.add("constant", "expression", start, end, f"{number + 1}{match[2]}")
            if number > 0:
                self.add("constant", "expression", start, end, f"{number - 1}{match[2]}")
        elif kind == Kind.FLOATING_LITERAL and re.fullmatch(r"[\d.e+-]+f?", text):
            number = float(text.rstrip("f"))
            self.add("constant", "expression", start, end, f"({text} + 1)" if number < 1000 else f"({text} * 2)")

    def call(self, cursor, children, start, end):
        name = cursor.spelling
        if name.startswith("operator") and len(children) == 3:
            left, right = self.range(children[0]), self.range(children[2])
            if start <= left[0] <= left[1] <= right[0] <= right[1] <= end:
                operator = one_line(self.text(left[1], right[0]))
                a, b = self.text(*left), self.text(*right)
                for other in COMPARISONS.get(operator, ()):
                    self.operator("comparison", start, end, a, other, b)
            return
        text = self.text(start, end)
        if name in ("min", "max"):
            match = re.match(r"std::(min|max)\b", text)
            if match:
                other = "std::max" if name == "min" else "std::min"
                self.add("minimum", "expression", start, end, other + text[len("std::min"):])
            return
        if name in COMMUTES or not text.endswith(")"):
            return
        arguments = [a for a in cursor.get_arguments() if a is not None]
        for first, second in zip(arguments, arguments[1:]):
            self.swap(first, second, start, end)

    def swap(self, first, second, start, end):
        a, b = self.range(first), self.range(second)
        if not start < a[0] < a[1] <= b[0] < b[1] < end:
            return
        if not re.fullmatch(rb"\s*,\s*", self.source[a[1]:b[0]]):
            return
        types = [re.sub(r"\bconst\b|&", "", x.type.get_canonical().spelling).strip() for x in (first, second)]
        if types[0] != types[1] or not types[0] or self.text(*a) == self.text(*b) or "lambda" in types[0]:
            return
        parts = ((start, a[0]), b, (a[1], b[0]), a, (b[1], end))
        self.add("swap", "expression", start, end, "".join(self.text(*part) for part in parts))


def find(path, arguments):
    """The sites of one file, in source order; each range and replacement once."""
    seen, sites = set(), []
    for site in Finder(path, arguments).sites:
        key = (site["start"], site["end"], site["replacement"])
        if key not in seen and site["end"] > site["start"]:
            seen.add(key)
            sites.append(site)
    return sorted(sites, key=lambda s: (s["start"], -s["end"], s["replacement"]))
