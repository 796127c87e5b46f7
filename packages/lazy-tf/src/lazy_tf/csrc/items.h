// Operations that were recorded, kept until the barrier so that they can be run natively instead.
#pragma once
#include <deque>
#include <memory>

#include "operations.h"

namespace lazy_tf {

// An operation that was recorded, so that it can be run natively: what went in, and the expressions that came out.
struct Item {
  struct In {
    Ref object;  // an expression, or an array that the host knew
    bool host = false, variable = false;
    int dtype = 0;
  };
  struct Out {
    Ref expr;
    int position;  // of the output, or of the variable among the inputs
    bool variable;
  };
  std::shared_ptr<Use> use;
  std::vector<In> inputs;
  std::vector<Out> outputs;
  int count = 0;
};

// A deque, because another thread may add to it while these are run.
using Items = std::deque<Item>;

// The values of a list of expressions: a list of arrays, or None if some cannot be computed. `known` gives arrays for some expressions.
PyObject* replay_items(const Items& recorded, PyObject* wanted, PyObject* known);

}  // namespace lazy_tf
