#!/usr/bin/env python3
"""The limits find units that are too large, by the right count, and exceptions that nobody needs.

Usage: planted_limits.py SOURCE_FOLDER
"""
import sys

from planted import LIMITS, SOURCE, found, run

sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "scripts" / "checks"))
import cpp_units  # noqa: E402  pylint: disable=wrong-import-position,import-error

DOCUMENTS = {
    "CONTRIBUTING.md": "Files of at most 400 lines, functions of at most 60, classes of 25 methods and 20 fields, "
                       "folders of at most 25 files\n",
    ".clang-tidy": "  - {key: readability-function-size.LineThreshold, value: '60'}\n",
}
FIELDS = "class A {\n" + "".join(f"  int a{n} = 0;\n" for n in range(20)) + "%s};\n"
METHODS = "class A {\n" + "".join(f"  void F{n}();\n" for n in range(25)) + "%s};\n"
FUNCTION = "void F() {\n" + "  G();\n" * 59 + "%s}\n"
# Every field's name has "field" in it and every method's "Method": what is counted is what the names say.
HARD = r"""
#define BEGIN {
namespace heddle {
template <typename T, int N = (1 < 2)>
class HEDDLE_CAPABILITY("mutex") Hard final : public Base<T, (N > 1)>, private Other {
 public:
  explicit Hard(int a) : field_a_(a), field_b_{a, {1, 2}} { Use(a); }
  explicit HardMethod(int b) noexcept;
  Hard(const Hard&) = delete;
  Hard& operator=(const Hard&) = delete;
  ~Hard() override { if (x) { y(); } }
  bool operator()(int a) const { return a < 1; }  // Method
  friend bool operator==(const Hard&, const Hard&) = default;
  [[nodiscard]] std::function<void(int)> MethodA() const HEDDLE_REQUIRES(mutex_);
  auto MethodB(std::map<int, std::vector<int>> a = {}) -> std::pair<int, int>;
  virtual Status MethodC() = 0;
  static int MethodD(int a) { const char c = '{'; return c + R"x(})x"[0] + "}"[0] + 1'000; }
  template <typename U>
    requires std::same_as<U, T>
  void MethodE(U&& value) { auto l = [&](int n) { return n; }; l(value); }
  using Alias = std::function<void(int)>;
  enum class Kind : uint8_t { kOne, kTwo };
  struct Inner {
    int field_c = 0;
    void MethodOfInner();
  };
  static constexpr int kConstant = 3;
  static_assert(sizeof(int) == 4);
 private:
  int field_a_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::vector<int> field_b_{1, 2};
  std::function<Status(int, std::span<const int>)> field_d_ = [](int, auto) { return Status(); };
  std::array<std::atomic<int>, (N > 4)> field_e_;
  void (*field_f_)(int) = nullptr;
  struct { int field_g; } field_h_;
  Inner field_i_, field_j_;
  alignas(64) mutable std::atomic<bool> field_k_ = false;
};
}  // namespace heddle
"""


def files(**more):
    def path(name):
        return "scripts/limits.toml" if name == "limits" else name + ".h"
    return {**DOCUMENTS, **{path(name): text for name, text in more.items()}}


def fields():
    yield from found("limits", files(a=FIELDS % ""), [], clean=True)
    yield from found("limits", files(a=FIELDS % "  int b;\n"), [("a.h:1", "21 fields: A; at most 20")])


def methods():
    yield from found("limits", files(a=METHODS % ""), [], clean=True)
    one_more = METHODS % " private:\n  int G() const;\n"
    yield from found("limits", files(a=one_more), [("a.h:1", "26 methods: A; at most 25")])


def function():
    yield from found("limits", files(a=FUNCTION % ""), [], clean=True)
    yield from found("limits", files(a=FUNCTION % "  G();\n"), [("a.h:1", "61 lines: F; at most 60")])


def file_and_folder():
    yield from found("limits", files(a="\n" * 400), [], clean=True)
    yield from found("limits", files(a="\n" * 401), [("a.h:1", "401 lines")])
    many = {f"b/{n}.txt": "" for n in range(25)}
    yield from found("limits", {**files(a=""), **many, "b/c/d.txt": ""}, [], clean=True)
    yield from found("limits", {**files(a=""), **many, "b/d.txt": ""}, [("b:1", "26 files of its own")])


def exceptions():
    excepted = LIMITS + '[[exception]]\nrule = "class_fields"\npath = "a.h"\nname = "A"\nreason = "%s"\n'
    reason = "plain data: a field a key"
    yield from found("limits", files(a=FIELDS % "int b;\n", limits=excepted % reason), [], clean=True)
    yield from found("limits", files(a=FIELDS % "", limits=excepted % reason),
                     [("scripts/limits.toml:12", "a.h A keeps the limit class_fields")])
    yield from found("limits", files(a=FIELDS % "int b;\n", limits=excepted % ""),
                     [("scripts/limits.toml:12", "without a sentence that says why")])
    yield from found("limits", files(b=FIELDS % "int b;\n", limits=excepted % reason),
                     [("b.h:1", "21 fields"), ("scripts/limits.toml:12", "needs no exception")])


def numbers():
    other = {**files(a=""), "CONTRIBUTING.md": DOCUMENTS["CONTRIBUTING.md"].replace("60", "80")}
    yield from found("limits", other, [("CONTRIBUTING.md:1", "function_lines is 60 in scripts/limits.toml, 80 here")])
    other = {**files(a=""), ".clang-tidy": "Checks: '*'\n"}
    yield from found("limits", other, [(".clang-tidy:1", "does not say the limit function_lines, 60")])


def hard_code():
    scan = cpp_units.Scan(HARD)
    sizes = {unit.name: (unit.fields, unit.methods) for unit in scan.classes}
    # Constructors, destructor and the call operator are methods, too.
    expected = {"Hard": (9, 9), "Hard::Inner": (1, 1), "Hard::(unnamed)": (1, 0)}
    if sizes != expected:
        yield f"{sizes}, expected {expected}"


run([fields, methods, function, file_and_folder, exceptions, numbers, hard_code])
