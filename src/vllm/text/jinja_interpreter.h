// Runs a parsed template once. Internal to the chat templates. One object a rendering, used by one
// thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vllm/text/jinja_parser.h"
#include "vllm/text/jinja_value.h"

namespace vllm::text::jinja {

// Seq::repr of a pair that groupby made: it has the attributes grouper and list.
inline constexpr std::string_view kGroup = "group";

// Variables of a loop body, macro or scope. The outermost variables are slots of the interpreter.
struct Frame {
  Frame* parent = nullptr;
  bool captured = false;  // a macro refers to it: it lives as long as the interpreter
  std::vector<std::pair<int, Value>> variables;
};

class Interpreter {
 public:
  Interpreter(const Template& t, std::chrono::system_clock::time_point now, Budget budget = {});
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Binds a variable of the outermost scope; nothing where the template never says the name.
  void Set(std::string_view name, Value value);
  // Throws Failure with line and column.
  std::shared_ptr<const Str> Run();

  // For filters, tests, methods and builtins.
  Budget& budget() { return budget_; }
  std::chrono::system_clock::time_point now() const { return now_; }
  Value Call(const Value& callee, Args& args);
  Value GetAttribute(const Value& object, std::string_view name);
  Value GetItem(const Value& object, const Value& key);
  Value MakeNamespace(Args& args);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Scope;

  Flow Exec(const Body& body, Frame* frame, StrBuilder& out);
  Flow ExecOne(const Stmt& s, Frame* frame, StrBuilder& out);
  Flow ExecFor(const Stmt& s, Frame* frame, StrBuilder& out);
  void ExecCallBlock(const Stmt& s, Frame* frame, StrBuilder& out);
  Value MakeMacro(const Stmt& s, Frame* frame);
  Value CallMacro(const Stmt& s, Frame* closure, Args& args);
  void Assign(const Target& t, Value value, Frame* frame);
  void Bind(int name, Value value, Frame* frame);
  Value Lookup(int name, Frame* frame) const;

  Value Eval(const Expr& e, Frame* frame);
  Value EvalContainer(const Expr& e, Frame* frame);
  Value EvalCompare(const Expr& e, Frame* frame);
  Value EvalCall(const Expr& e, Frame* frame);
  Value EvalFilter(const Expr& e, Frame* frame, Value input);
  Value EvalTest(const Expr& e, Frame* frame);
  Value EvalSlice(const Expr& e, Frame* frame);
  Value Filtered(const Expr* chain, Frame* frame, Value input);
  void EvalArguments(const Expr& e, size_t first, Frame* frame, Args& args);

  const Template& template_;
  std::chrono::system_clock::time_point now_;
  Budget budget_;
  std::vector<Value> globals_;  // by name index; missing: not bound
  std::vector<std::unique_ptr<Frame>> kept_;
  std::vector<std::shared_ptr<const Namespace>> namespaces_;
  int loop_name_, caller_name_, varargs_name_, kwargs_name_;
  int macro_depth_ = 0;
  int line_ = 0, column_ = 0;  // of what is being evaluated, for errors
};

// jinja_operators.cc
Value Arithmetic(Op op, const Value& a, const Value& b, Interpreter& in);
Value Negate(const Value& v, bool minus);
Value Slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Budget& budget);
Value Index(const Value& object, int64_t index, Budget& budget);  // missing: out of range

// jinja_methods.cc. A method of a Python type; null where the type has none of that name.
// `mutates`: it exists, and the sandbox forbids it.
using MethodFunction = Value (*)(Interpreter&, const Value& self, Args&);
MethodFunction FindMethod(const Value& self, std::string_view name, bool& mutates);

// jinja_builtins.cc: the global functions.
void BindBuiltins(Interpreter& in);

// jinja_format.cc: '...' % values, and '...'.format(...).
Value PercentFormat(Interpreter& in, const Str& format, const Value& values);
Value BraceFormat(Interpreter& in, const Str& format, Args& args);

// Arguments of a builtin by parameter name: missing where not given. TypeError for too many or
// unknown ones, and where one of the first `required` is missing.
std::vector<Value> BindArguments(Args& args, std::string_view function,
                                 std::initializer_list<std::string_view> names, size_t required);
// An argument that must be an integer.
int64_t AsInt(const Value& v, std::string_view what);

}  // namespace vllm::text::jinja
