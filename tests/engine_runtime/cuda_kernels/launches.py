"""Makes C++ of a CUDA source: kernel<<<blocks, threads, shared, stream>>>(arguments) becomes a call of hosted::Launch.

Usage: launches.py SOURCE.cu RESULT.cc
"""
import pathlib
import sys

PAIRS = {"(": ")", "[": "]", "{": "}"}


def closing(text, at):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in PAIRS) - (text[place] in PAIRS.values())
        if depth == 0:
            return place
    raise ValueError("a bracket is not closed")


def split(text):
    """The parts between the commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in PAIRS) - (letter in PAIRS.values())
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def kernel_before(text, end):
    """Where the kernel's name begins, which may have template arguments."""
    place = end
    while text[place - 1].isspace():
        place -= 1
    if text[place - 1] == ">":
        place = text.rindex("<", 0, place)
    while text[place - 1].isalnum() or text[place - 1] == "_":
        place -= 1
    return place


def hosted(text):
    while "<<<" in text:
        at = text.index("<<<")
        end = text.index(">>>", at)
        begin = kernel_before(text, at)
        arguments = text.index("(", end)
        last = closing(text, arguments)
        blocks, threads, _, _ = split(text[at + 3:end])
        call = text[begin:at].strip() + text[arguments:last + 1]
        text = f"{text[:begin]}::hosted::Launch({blocks}, {threads}, [&] {{ {call}; }}){text[last + 1:]}"
    return text


pathlib.Path(sys.argv[2]).write_text(hosted(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), encoding="utf-8")
