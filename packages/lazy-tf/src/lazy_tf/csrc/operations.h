// What is remembered of each operation and of each way in which it is used.
//
// Everything here is reached with the interpreter's lock held. A `Use` may be forgotten while another thread is in the middle of
// it, since Python code runs in between: hence shared pointers.
#pragma once
#include <Python.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace lazy_tf {

// A reference that is dropped with its holder.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* stolen) : object_(stolen) {}
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref& operator=(Ref&& other) noexcept {
    PyObject* old = object_;
    object_ = other.release();
    Py_XDECREF(old);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  PyObject* get() const { return object_; }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// How to record a use without running its handler.
struct Direct {
  Ref target;
  std::vector<int> operands;   // positions of the inputs that are operands
  std::vector<int> hosts;      // positions of the inputs whose contents are attributes
  std::vector<int> outputs;    // dtypes
  bool check = false;          // contents known to the host must be looked at first
  std::unordered_map<std::string, Ref> attributes;  // by the bits of `hosts`
};

// An operation with certain attributes.
struct Use {
  Ref signature;
  bool asked = false;  // whether `direct` says all that there is to say
  std::shared_ptr<Direct> direct;
};

enum class Kind { kOther, kConstant, kIdentity, kRead };

struct Operation {
  Ref info;
  Ref fast;
  int arity = -1;
  bool follows = false;
  Kind kind = Kind::kOther;
  std::unordered_map<std::string, std::shared_ptr<Use>> uses;  // by serialised attributes, or by the inputs' dtypes
};

constexpr size_t kUsesLimit = 4096;

}  // namespace lazy_tf
