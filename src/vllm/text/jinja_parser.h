// The syntax tree of a template and its parser. Internal to the chat templates. A parsed tree is
// immutable.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vllm/text/jinja_value.h"

namespace vllm::text::jinja {

using FilterFunction = Value (*)(Interpreter&, Args&);  // positional[0] is the value filtered
using TestFunction = bool (*)(Interpreter&, Args&);

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Op : uint8_t {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,
  kNot,
  kNeg,
  kPos,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kConcat,
  kAnd,
  kOr,
  kCompare,
  kCond,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

enum class Comparison : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr {
  Op op = Op::kConst;
  int line = 0, column = 0;
  int depth = 1;     // of the tree below, itself included
  int name = -1;     // kName: index into Template::names
  std::string text;  // kAttribute, kFilter, kTest: the name
  Value value;       // kConst
  // Operands. kDict: keys and values in turn; kCompare: one more than comparisons; kCond: test,
  // then[, else]; kItem: object, key; kSlice: object, start, stop, step (null: not given); kCall:
  // callee and positional arguments; kFilter, kTest: the value (null in a filter block) and
  // positional arguments.
  std::vector<ExprPtr> operands;
  std::vector<Comparison> comparisons;
  std::vector<std::pair<std::string, ExprPtr>> named;  // keyword arguments
  ExprPtr star, star_star;                             // *args, **kwargs
  FilterFunction filter = nullptr;                     // null: unknown, an error when evaluated
  TestFunction test = nullptr;
};

struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple } kind = Kind::kName;
  int name = -1;
  std::string attribute;  // kAttribute: name.attribute = ...
  std::vector<Target> items;
  int line = 0, column = 0;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Signature {
  std::vector<int> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
};

struct Stmt {
  enum class Kind : uint8_t {
    kData,
    kPrint,
    kIf,
    kFor,
    kSet,
    kSetBlock,
    kMacro,
    kCallBlock,
    kFilterBlock,
    kWith,
    kScope,
    kBreak,
    kContinue,
  } kind = Kind::kData;
  int line = 0, column = 0;
  std::string data;   // kData
  ExprPtr expr;       // kPrint, kSet: value; kFor: iterable; kCallBlock: the call; kFilterBlock,
                      // kSetBlock: filters or null
  ExprPtr condition;  // kFor: the filter, or null
  Target target;      // kFor, kSet, kSetBlock
  std::vector<std::pair<ExprPtr, Body>> branches;    // kIf
  std::vector<std::pair<Target, ExprPtr>> bindings;  // kWith
  Body body, otherwise;                              // otherwise: else of kIf and kFor
  Signature signature;                               // kMacro, kCallBlock
  int name = -1;                                     // kMacro
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;  // of a macro's body
};

class Template {
 public:
  Body body;
  std::vector<std::string> names;  // every name of the template, interned
  std::vector<std::string>
      strings;  // every string literal, for questions like "does it know this role?"

  int NameIndex(std::string_view name) const;  // -1: the template never says it
};

// Throws Failure with line and column: TemplateSyntaxError (kCorrupt), or kUnsupported for include,
// import, extends.
std::unique_ptr<Template> ParseTemplate(std::string_view source);

// Null where there is none of that name.
FilterFunction FindFilter(std::string_view name);
TestFunction FindTest(std::string_view name);

}  // namespace vllm::text::jinja
