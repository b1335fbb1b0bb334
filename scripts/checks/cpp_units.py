"""Classes and functions of C++ sources by a scan of tokens: no compiler, so that the whole tree takes seconds.

It requires that macros hide no braces. tests/lint/planted_limits.py has the hard cases.
"""
import dataclasses
import re

TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^(\s]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9a-zA-Z]|[0-9a-zA-Z_.])*)
  | (?P<sign>::|->|<<=|<=>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|.)
""", re.VERBOSE | re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
CLASS_KEYS = {"class", "struct", "union"}
ACCESS = {"public", "private", "protected"}
AFTER_REQUIRES = CLASS_KEYS | {"auto", "void", "bool", "template"}
CLOSES = {"(": ")", "[": "]", "{": "}"}
# A member that begins with one of them is neither a field nor a method of the class.
NO_MEMBER = {"using", "typedef", "friend", "static_assert", "enum", "template_parameter"}


@dataclasses.dataclass
class Class:
    name: str
    line: int
    fields: int = 0
    methods: int = 0


@dataclasses.dataclass
class Function:
    name: str
    line: int
    lines: int  # Lines between those of the body's opening and closing brace, as clang-tidy counts them.


class Token:
    __slots__ = ("text", "line", "kind")

    def __init__(self, text, line, kind):
        self.text, self.line, self.kind = text, line, kind


def tokens_of(text):
    # Both branches of conditional code count; lines of directives stay, so that line numbers are right.
    text = DIRECTIVE.sub(lambda found: "\n" * found.group().count("\n"), text)
    tokens, line = [], 1
    for found in TOKEN.finditer(text):
        if found.lastgroup != "skip" and not found.group("skip"):
            kind = "word" if found.group("word") else "number" if found.group("number") else (
                "text" if found.group("string") or found.group("char") or found.group("raw") else "sign")
            tokens.append(Token(found.group(), line, kind))
        line += found.group().count("\n")
    return tokens


def matching(tokens, at):
    """The index of the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(tokens)):
        text = tokens[index].text
        if text in CLOSES:
            depth += 1
        elif text in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return index
    raise ValueError(f"line {tokens[at].line}: no end of '{tokens[at].text}'")


def skip_angles(tokens, at):
    """The index after the '>' that closes the '<' at `at`, or `at + 1` when it is an operator."""
    depth, index = 0, at
    while index < len(tokens):
        text = tokens[index].text
        if text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return index + 1
        elif text in CLOSES:
            index = matching(tokens, index)
        elif text in (";", "}", ")", "]", "{"):
            return at + 1
        index += 1
    return at + 1


def is_annotation(token):
    return token.kind == "word" and (re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", token.text) or token.text == "alignas")


def simplified(tokens):
    """A declaration's tokens without attributes, annotations and template arguments; brackets are one '()' or '{}'."""
    out, index = [], 0
    while index < len(tokens):
        token = tokens[index]
        if token.text == "[" and index + 1 < len(tokens) and tokens[index + 1].text == "[":
            index = matching(tokens, index) + 1
        elif is_annotation(token) and index + 1 < len(tokens) and tokens[index + 1].text == "(":
            index = matching(tokens, index + 1) + 1
        elif token.text == "operator":
            index += 1
            name = ""
            while index < len(tokens) and not (tokens[index].text == "(" and name):
                name += tokens[index].text
                index += 1
                if name == "(":
                    name = "()"
                    index += 1
            out.append(Token("operator" + name, token.line, "word"))
        elif token.text == "<" and out and (out[-1].kind == "word"):
            index = skip_angles(tokens, index)
        elif token.text in CLOSES:
            end = matching(tokens, index)
            out.append(Token(token.text + CLOSES[token.text], token.line, "sign"))
            index = end + 1
        else:
            out.append(token)
            index += 1
    return out


def strip_template(tokens):
    index = 0
    while index < len(tokens) and tokens[index].text == "template":
        index = skip_angles(tokens, index + 1)
        if index < len(tokens) and tokens[index].text == "requires":
            index += 1
            while index < len(tokens) and tokens[index].text not in AFTER_REQUIRES:
                index = skip_angles(tokens, index) if tokens[index].text == "<" else index + 1
    return tokens[index:]


def is_function(declaration):
    """Whether the simplified tokens declare a function: parentheses before any initializer."""
    for index, token in enumerate(declaration):
        if token.text in ("=", "{}", ":"):
            return False
        if token.text == "()":
            before = declaration[index - 1] if index else None
            # In `void (*hook)(int)` and `decltype(x) a` the first parentheses are no parameters.
            if before is None or before.text in ("decltype", "noexcept", "alignas", "explicit"):
                continue
            following = declaration[index + 1] if index + 1 < len(declaration) else None
            return not (following is not None and following.text == "()" and not before.text.startswith("operator"))
    return False


def function_name(declaration):
    for index, token in enumerate(declaration):
        if token.text == "()" and index and declaration[index - 1].text not in ("decltype", "noexcept", "explicit"):
            first = index - 1
            while first >= 2 and declaration[first - 1].text in ("::", "~") and first >= 1:
                first -= 2 if declaration[first - 1].text == "::" else 1
            return "".join(part.text for part in declaration[max(0, first):index])
    return "?"


def test_name(head):
    """"Suite.Name" of GoogleTest's macros."""
    words = [token.text for token in head]
    if len(words) >= 6 and words[0] in ("TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P") and words[3] == ",":
        return f"{words[2]}.{words[4]}"
    return ""


class Scan:
    def __init__(self, text):
        self.tokens = tokens_of(text)
        self.classes, self.functions = [], []
        self.scope(0, len(self.tokens), None, "")

    def scope(self, at, end, owner, prefix):
        """Declarations of a namespace or, with `owner`, of a class, between two indices."""
        begin = at
        while at < end:
            text = self.tokens[at].text
            if text == ";":
                self.declaration(begin, at, owner)
                begin = at + 1
            elif owner is not None and text == ":" and at == begin + 1 and self.tokens[begin].text in ACCESS:
                begin = at + 1
            elif text in ("(", "["):
                at = matching(self.tokens, at)
            elif text == "<" and at > begin and self.tokens[at - 1].text == "template":
                at = skip_angles(self.tokens, at) - 1
            elif text == "{":
                close = matching(self.tokens, at)
                if self.braces(begin, at, close, owner, prefix):
                    begin = close + 1
                at = close
            at += 1

    def braces(self, begin, at, close, owner, prefix):
        """Handles the braces at `at`; returns whether the declaration ends with them."""
        head = strip_template(self.tokens[begin:at])
        words = [token.text for token in head]
        if "namespace" in words[:2] or words[:1] == ["extern"] and len(words) == 2:
            self.scope(at + 1, close, None, prefix)
            return True
        if words[:1] == ["enum"]:
            return False  # Its declaration ends with ';'.
        plain = simplified(head)
        key = next((index for index, token in enumerate(plain) if token.text in CLASS_KEYS), None)
        if key is not None and not is_function(plain):
            self.class_body(plain, key, at, close, prefix)
            return False
        if self.begins_body(head, plain):
            name = test_name(head) or prefix + function_name(plain)
            lines = self.tokens[close].line - self.tokens[at].line
            self.functions.append(Function(name, self.tokens[begin].line, lines))
            if owner is not None:
                owner.methods += not any(token.text == "friend" for token in head)
            self.inner(at + 1, close, prefix)
            return True
        return False  # An initializer.

    @staticmethod
    def begins_body(head, plain):
        if not is_function(plain):
            return False
        # In a constructor's initializer list, braces after a name are the member's; after ')' or '}' they are the body.
        return all(token.text != ":" for token in plain) or head[-1].text in (")", "}")

    def class_body(self, plain, key, at, close, prefix):
        names = []
        for token in plain[key + 1:]:
            if token.text == ":":
                break
            if token.kind == "word" and token.text != "final" and not is_annotation(token):
                names.append(token.text)
        unit = Class(prefix + "::".join(names) if names else prefix + "(unnamed)", plain[key].line)
        self.classes.append(unit)
        self.scope(at + 1, close, unit, unit.name + "::")

    def inner(self, at, end, prefix):
        """Classes that a function's body defines."""
        while at < end:
            if self.tokens[at].text in CLASS_KEYS and self.tokens[at - 1].text in (";", "{", "}"):
                brace = at
                while brace < end and self.tokens[brace].text not in ("{", ";", "(", "="):
                    brace += 1
                if brace < end and self.tokens[brace].text == "{":
                    close = matching(self.tokens, brace)
                    self.class_body(simplified(self.tokens[at:brace]), 0, brace, close, prefix)
                    at = close
            at += 1

    def declaration(self, begin, end, owner):
        if owner is None or begin == end:
            return
        head = strip_template(self.tokens[begin:end])
        while len(head) > 2 and head[0].text in ACCESS and head[1].text == ":":
            head = head[2:]
        words = [token.text for token in head]
        if not words or words[0] in NO_MEMBER or "friend" in words[:2]:
            return
        plain = simplified(head)
        if plain and plain[0].text in CLASS_KEYS:
            body = next((index for index, token in enumerate(plain) if token.text == "{}"), None)
            # `struct A {…} a;` declares a field, `struct A {…};` and `struct A;` do not; `struct A a;` does.
            names = [token for token in plain[1:] if token.kind == "word"]
            owner.fields += len(plain) > body + 1 if body is not None else len(names) > 1
            return
        if is_function(plain):
            owner.methods += words[-1] not in ("default", "delete")
        elif "static" not in words[:3] and "constexpr" not in words[:3]:
            owner.fields += 1 + sum(token.text == "," for token in plain)
