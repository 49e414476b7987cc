// Values of the template language: Python's, as far as templates can see them. Internal to the chat
// templates.
//
// Containers are immutable once built (the sandbox of transformers refuses append, pop, update,
// ...), so values share structure and cannot form cycles; a namespace is the one mutable object,
// and the interpreter owns those. Inside the engine an error is a thrown Failure; ChatTemplate
// turns it into a Result.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace vllm::text::jinja {

class Interpreter;
class Value;

// Thrown inside the engine only. `type` is Python's name of it: UndefinedError, TypeError,
// TemplateError, ...
struct Failure {
  std::string type;
  std::string message;
  base::Code code = base::Code::kInvalidArgument;
  int line = 0, column = 0;  // 0: not known yet
};
[[noreturn]] void Fail(std::string type, std::string message);

// What one rendering may use. A step is about one expression or 64 bytes looked at; bytes count
// everything ever built in the rendering, so they bound memory from above.
struct Budget {
  uint64_t steps = 5'000'000;  // about half a second
  uint64_t bytes = uint64_t{256} << 20;
  size_t string_bytes = size_t{64} << 20;  // of one string
  size_t stack_bytes = size_t{1} << 20;    // of the thread's stack, below stack_base
  const char* stack_base = nullptr;

  void Step(uint64_t n = 1) {
    if (n > steps) OutOfSteps();
    steps -= n;
  }
  void Charge(uint64_t n) {
    if (n > bytes) OutOfBytes();
    bytes -= n;
  }
  void CheckStack() const {
    const char* here = static_cast<const char*>(__builtin_frame_address(0));
    if (stack_base - here > static_cast<ptrdiff_t>(stack_bytes)) OutOfStack();
  }
  [[noreturn]] static void OutOfSteps();
  [[noreturn]] static void OutOfBytes();
  [[noreturn]] static void OutOfStack();
};

enum class Kind : uint8_t {
  kMissing,  // no value at all: an argument not given, a name not bound
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kView,
  kGenerator,  // objects of class Seq
  kDict,
  kNamespace,
  kFunction,
  kLoop,
};

struct Object {
  virtual ~Object() = default;
  int depth =
      0;  // of what it holds; bounded, so that freeing and printing cannot exhaust the stack
};

// Bytes [begin, end) of a string that came out of the request; sorted, disjoint, not touching.
struct Span {
  size_t begin, end;
};

struct Str : Object {
  std::string text;  // UTF-8
  std::vector<Span> request;
  bool ascii = true;
  bool markup = false;  // result of |safe or |escape: + escapes what is joined to it

  bool AllRequest() const {
    return request.size() == 1 && request[0].begin == 0 && request[0].end == text.size() &&
           !text.empty();
  }
};

class Value {
 public:
  Value() = default;  // kMissing
  static Value Undefined(std::string message, std::string type = "UndefinedError");
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool b) {
    Value v(Kind::kBool);
    v.int_ = b;
    return v;
  }
  static Value Int(int64_t i) {
    Value v(Kind::kInt);
    v.int_ = i;
    return v;
  }
  static Value Wide(__int128 i);  // kInt where it fits, else kBigInt
  static Value Float(double d) {
    Value v(Kind::kFloat);
    v.float_ = d;
    return v;
  }
  static Value String(std::string text, bool request = false);
  static Value Of(std::shared_ptr<const Str> s) { return Value(Kind::kString, std::move(s)); }
  static Value Object(Kind kind, std::shared_ptr<const jinja::Object> o) {
    return Value(kind, std::move(o));
  }

  Kind kind() const { return kind_; }
  bool Is(Kind k) const { return kind_ == k; }
  bool missing() const { return kind_ == Kind::kMissing; }
  bool undefined() const { return kind_ == Kind::kUndefined; }
  bool none() const { return kind_ == Kind::kNone; }
  bool string() const { return kind_ == Kind::kString; }
  bool integer() const {
    return kind_ == Kind::kInt || kind_ == Kind::kBigInt || kind_ == Kind::kBool;
  }
  bool number() const { return integer() || kind_ == Kind::kFloat; }
  bool sequence() const { return kind_ >= Kind::kList && kind_ <= Kind::kGenerator; }

  // REQUIRES: the kind named.
  bool bool_value() const { return int_ != 0; }
  int64_t int_value() const { return int_; }
  double float_value() const { return float_; }
  __int128 wide() const;    // integer()
  double AsDouble() const;  // number()
  const Str& str() const { return *static_cast<const Str*>(object_.get()); }
  std::string_view text() const { return str().text; }
  std::shared_ptr<const Str> shared_str() const {
    return std::static_pointer_cast<const Str>(object_);
  }
  template <typename T>
  const T& as() const {
    return *static_cast<const T*>(object_.get());
  }
  template <typename T>
  std::shared_ptr<const T> shared() const {
    return std::static_pointer_cast<const T>(object_);
  }
  const jinja::Object* identity() const { return object_.get(); }

 private:
  explicit Value(Kind k) : kind_(k) {}
  Value(Kind k, std::shared_ptr<const jinja::Object> o) : kind_(k), object_(std::move(o)) {}

  Kind kind_ = Kind::kMissing;
  union {
    int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<const jinja::Object> object_;
};

struct UndefinedInfo : Object {
  std::string message, type;
};
struct BigInt : Object {
  __int128 value = 0;
};

struct Seq : Object {
  std::vector<Value> items;
  std::string repr;               // ranges: all of it; views: what stands before the list
  mutable bool consumed = false;  // generators give their items once
};

struct Dict : Object {
  std::vector<std::pair<Value, Value>> items;
  std::unordered_map<std::string_view, uint32_t> index;  // of string keys, once there are many

  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(Value key, Value value);  // while building; an existing key keeps its place
};

struct Namespace : Object {
  mutable std::vector<std::pair<std::string, Value>> attributes;
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Function : Object {
  std::string name;
  std::string repr;
  std::function<Value(Interpreter&, Args&)> call;
  std::function<Value(std::string_view)> attribute;  // may be empty
};

// Builds a string, keeping track of what came out of the request.
class StrBuilder {
 public:
  explicit StrBuilder(Budget& budget) : budget_(&budget) {}
  void Append(std::string_view text, bool request = false);
  void Append(const Str& s) { AppendSlice(s, 0, s.text.size()); }
  void AppendSlice(const Str& s, size_t begin, size_t end);
  size_t size() const { return text_.size(); }
  Budget& budget() { return *budget_; }
  const std::string& text() const { return text_; }
  Value Take();
  std::shared_ptr<const Str> TakeStr();

 private:
  Budget* budget_;
  std::string text_;
  std::vector<Span> request_;
};

// Containers; an error where values nest deeper than 200.
Value MakeSeq(Kind kind, std::vector<Value> items, Budget& budget, std::string repr = {});
Value MakeDict(std::shared_ptr<Dict> dict, Budget& budget);
// Sets `depth` to one more than the deepest of these and its old value.
void Deepen(Object& holder, const Value& held);
Value MakeFunction(std::string name, std::function<Value(Interpreter&, Args&)> call);

// JSON into values. With `request` every string in it is marked as request text.
Value FromJson(const boost::json::value& v, bool request, Budget& budget);

// Python's views of a value.
bool Truthy(const Value& v);
bool Equal(const Value& a, const Value& b);
bool Less(const Value& a, const Value& b,
          std::string_view op = "<");  // TypeError where Python has no order
bool Contains(const Value& container, const Value& item, Budget& budget);
bool Hashable(const Value& v);
const char* TypeName(const Value& v);              // "str", "dict", ...
std::string ObjectRepr(const Value& v);            // "dict object", as in jinja's messages
void AppendStr(const Value& v, StrBuilder& out);   // str(v)
void AppendRepr(const Value& v, StrBuilder& out);  // repr(v)
Value ToStr(const Value& v, Budget& budget);
std::string FloatRepr(double d);
std::string IntText(__int128 i);
[[noreturn]] void FailUndefined(const Value& v);

// The items that iteration gives: of strings their characters, of dicts their keys. TypeError for
// others.
std::shared_ptr<const Seq> Items(const Value& v, Budget& budget);
bool Iterable(const Value& v);
int64_t Length(const Value& v);  // len(v); TypeError where there is none

// json.dumps(v). `indent` empty pointer: one line.
struct JsonStyle {
  bool ascii = false, sort_keys = false;
  const std::string* indent = nullptr;
  std::string item_separator = ", ", key_separator = ": ";
};
void AppendJson(const Value& v, const JsonStyle& style, StrBuilder& out, int level = 0);

}  // namespace vllm::text::jinja
