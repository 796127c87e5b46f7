// What is remembered of each operation and of each way in which it is used.
//
// Everything here is reached with the interpreter's lock held. A `Use` may be forgotten while another thread is in the middle of
// it, since Python code runs in between: hence shared pointers.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "device.h"

namespace lazy_tf {

using Inputs = std::vector<Ref>;

// How to record a use without running its handler.
struct Direct {
  Ref target;
  std::vector<int> operands;  // positions of the inputs that are operands
  std::vector<int> hosts;     // positions of the inputs whose contents are attributes
  std::vector<int> outputs;   // dtypes
  bool check = false;         // contents known to the host must be looked at first
  std::unordered_map<std::string, Ref> attributes;  // by the bits of `hosts`
};

struct Operation;

// An operation with certain attributes.
struct Use {
  uint32_t id;
  Operation* operation;
  Ref signature;
  TFE_Op* prototype = nullptr;  // carries the attributes
  std::vector<int> statics;     // positions of the inputs whose contents decide what is recorded
  bool reads = false;           // recording it reads something, so it runs at once, between two traces
  std::shared_ptr<Direct> direct;
};

enum class Kind { kOther, kConstant, kIdentity, kRead, kAdd, kSubtract };

// Where an operation runs when nothing is recorded.
enum class Place {
  kCpu,    // by TensorFlow's CPU kernel
  kHost,   // by its handler, which computes nothing
  kAsk,    // by its handler, which asks what the mode is
};

struct Operation {
  std::string name;
  Ref info;
  Ref fast;
  int arity = -1;
  bool follows = false;
  bool changes = false;  // variables among its inputs
  Place place = Place::kCpu;
  Kind kind = Kind::kOther;
  // By serialised attributes, whose order is random, or by the inputs' dtypes; and one for each signature.
  std::unordered_map<std::string, std::shared_ptr<Use>> uses;
  std::unordered_map<PyObject*, std::shared_ptr<Use>> distinct;
};

// All of these return null (or false) with an exception.
Operation* operation_of(const char* name);
std::shared_ptr<Use> use_of(Operation* operation, const TFE_Op* op, const Inputs& inputs, TF_Status* status);
// The use of an operation with one type attribute, `T`.
std::shared_ptr<Use> use_of_type(Operation* operation, int inputs, int dtype, TF_Status* status);
void forget_operations();  // after a reset of the context

Ref list_of(const Inputs& inputs);
// The dtype of an entry's contents, -1 with an exception.
int dtype_of(PyObject* entry);

// Record a use without its handler; false if that is not possible (with an exception where recording raised one).
bool record_directly(Use* use, Direct* direct, const Inputs& inputs, Inputs* outputs);
bool take_list(PyObject* answer, Inputs* outputs);

}  // namespace lazy_tf
