// Python's operators on lazy arrays, run by NumPy at once: the short way of `operators.py`.
#include <array>

#include "state.h"

namespace lazy_numpy {
namespace {

// The Python functions that serve what the short way does not, and the numbers by which the policy knows the calls.
struct Python {
  PyObject *function = nullptr, *number = nullptr;
};

struct Operator {
  const char* name;
  binaryfunc operate;
  bool may_reuse;  // Python sees to results in the memory of temporaries (`temporaries`)
  Python forward, reflected;
};

PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }

std::array<Operator, 13> operators{{{"add", PyNumber_Add, true, {}, {}},
                                    {"sub", PyNumber_Subtract, true, {}, {}},
                                    {"mul", PyNumber_Multiply, true, {}, {}},
                                    {"truediv", PyNumber_TrueDivide, true, {}, {}},
                                    {"floordiv", PyNumber_FloorDivide, false, {}, {}},
                                    {"mod", PyNumber_Remainder, false, {}, {}},
                                    {"pow", power, true, {}, {}},
                                    {"matmul", PyNumber_MatrixMultiply, false, {}, {}},
                                    {"and", PyNumber_And, false, {}, {}},
                                    {"or", PyNumber_Or, false, {}, {}},
                                    {"xor", PyNumber_Xor, false, {}, {}},
                                    {"lshift", PyNumber_Lshift, false, {}, {}},
                                    {"rshift", PyNumber_Rshift, false, {}, {}}}};

struct InPlace {
  const char* name;
  binaryfunc operate;
  Python python;
};

std::array<InPlace, 12> in_place{{{"iadd", PyNumber_InPlaceAdd, {}},
                                  {"isub", PyNumber_InPlaceSubtract, {}},
                                  {"imul", PyNumber_InPlaceMultiply, {}},
                                  {"itruediv", PyNumber_InPlaceTrueDivide, {}},
                                  {"ifloordiv", PyNumber_InPlaceFloorDivide, {}},
                                  {"imod", PyNumber_InPlaceRemainder, {}},
                                  {"imatmul", PyNumber_InPlaceMatrixMultiply, {}},
                                  {"iand", PyNumber_InPlaceAnd, {}},
                                  {"ior", PyNumber_InPlaceOr, {}},
                                  {"ixor", PyNumber_InPlaceXor, {}},
                                  {"ilshift", PyNumber_InPlaceLshift, {}},
                                  {"irshift", PyNumber_InPlaceRshift, {}}}};

struct Unary {
  const char* name;
  unaryfunc operate;
  Python python;
};

std::array<Unary, 4> unary{
    {{"neg", PyNumber_Negative, {}}, {"pos", PyNumber_Positive, {}}, {"abs", PyNumber_Absolute, {}}, {"invert", PyNumber_Invert, {}}}};

struct Compare {
  const char* name;
  Python python;
};

std::array<Compare, 6> compare{{{"lt", {}}, {"le", {}}, {"eq", {}}, {"ne", {}}, {"gt", {}}, {"ge", {}}}};
static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5, "the order of `compare`");

// Called as Python's own slot calls a method, so that it counts the same references.
PyObject* call(const Python& python, PyObject* self, PyObject* other) {
  PyObject* stack[] = {self, other};
  return PyObject_Vectorcall(python.function, stack, 2, nullptr);
}

template <size_t K>
PyObject* binary_slot(PyObject* a, PyObject* b) {
  const Operator& chosen = operators[K];
  const bool left = is_lazy(a);
  if (short_way()) {
    PyArrayObject *x = nullptr, *y = nullptr;
    PyObject* first = operand(a, x);
    PyObject* second = first != nullptr ? operand(b, y) : nullptr;
    if (second != nullptr && !(chosen.may_reuse && (may_be_temporary(a, x) || may_be_temporary(b, y)))) {
      Owned one = owned(first), two = owned(second);  // NumPy must not take what it sees for temporaries
      return finish(chosen.operate(first, second), (left ? chosen.forward : chosen.reflected).number);
    }
  }
  return left || PyObject_TypeCheck(a, state.array) ? call(chosen.forward, a, b) : call(chosen.reflected, b, a);
}

PyObject* power_slot(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus == Py_None) return binary_slot<6>(a, b);
  Py_RETURN_NOTIMPLEMENTED;
}

template <size_t K>
PyObject* in_place_slot(PyObject* self, PyObject* other) {
  const InPlace& chosen = in_place[K];
  if (short_way() && is_own(self)) {
    Owned x = owned(operand(self));
    Owned y = owned(x ? operand(other) : nullptr);
    if (y) {
      Owned result(chosen.operate(x.get(), y.get()));
      if (!result) return nullptr;
      const bool large = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(x.get())) > state.result.number(state.settings);
      if (large && !tell(chosen.python.number, x.get())) return nullptr;
      return result == x ? Py_NewRef(self) : result.release();
    }
  }
  return call(chosen.python, self, other);
}

template <size_t K>
PyObject* unary_slot(PyObject* self) {
  const Unary& chosen = unary[K];
  if (short_way()) {
    Owned x = owned(operand(self));
    if (x) return finish(chosen.operate(x.get()), chosen.python.number);
  }
  return PyObject_CallOneArg(chosen.python.function, self);
}

PyObject* compare_slot(PyObject* self, PyObject* other, int operation) {
  const Compare& chosen = compare[operation];
  if (short_way()) {
    Owned x = owned(operand(self));
    Owned y = owned(x ? operand(other) : nullptr);
    if (y) return finish(PyObject_RichCompare(x.get(), y.get(), operation), chosen.python.number);
  }
  return call(chosen.python, self, other);
}

bool find(PyObject* table, const char* name, Python& python) {
  PyObject* found = PyDict_GetItemString(table, name);
  if (found == nullptr || !PyTuple_Check(found) || PyTuple_GET_SIZE(found) != 2) {
    PyErr_Format(PyExc_TypeError, "no function and number for the operator %s", name);
    return false;
  }
  Py_XSETREF(python.function, Py_NewRef(PyTuple_GET_ITEM(found, 0)));
  Py_XSETREF(python.number, Py_NewRef(PyTuple_GET_ITEM(found, 1)));
  return true;
}

}  // namespace

bool install_operators(PyObject* table) {
  for (Operator& each : operators) {
    char reflected[16];
    PyOS_snprintf(reflected, sizeof reflected, "r%s", each.name);
    if (!find(table, each.name, each.forward) || !find(table, reflected, each.reflected)) return false;
  }
  for (InPlace& each : in_place)
    if (!find(table, each.name, each.python)) return false;
  for (Unary& each : unary)
    if (!find(table, each.name, each.python)) return false;
  for (Compare& each : compare)
    if (!find(table, each.name, each.python)) return false;
  PyNumberMethods& to = reinterpret_cast<PyHeapTypeObject*>(state.array)->as_number;
  to.nb_add = binary_slot<0>;
  to.nb_subtract = binary_slot<1>;
  to.nb_multiply = binary_slot<2>;
  to.nb_true_divide = binary_slot<3>;
  to.nb_floor_divide = binary_slot<4>;
  to.nb_remainder = binary_slot<5>;
  to.nb_power = power_slot;
  to.nb_matrix_multiply = binary_slot<7>;
  to.nb_and = binary_slot<8>;
  to.nb_or = binary_slot<9>;
  to.nb_xor = binary_slot<10>;
  to.nb_lshift = binary_slot<11>;
  to.nb_rshift = binary_slot<12>;
  to.nb_inplace_add = in_place_slot<0>;
  to.nb_inplace_subtract = in_place_slot<1>;
  to.nb_inplace_multiply = in_place_slot<2>;
  to.nb_inplace_true_divide = in_place_slot<3>;
  to.nb_inplace_floor_divide = in_place_slot<4>;
  to.nb_inplace_remainder = in_place_slot<5>;
  to.nb_inplace_matrix_multiply = in_place_slot<6>;
  to.nb_inplace_and = in_place_slot<7>;
  to.nb_inplace_or = in_place_slot<8>;
  to.nb_inplace_xor = in_place_slot<9>;
  to.nb_inplace_lshift = in_place_slot<10>;
  to.nb_inplace_rshift = in_place_slot<11>;
  to.nb_negative = unary_slot<0>;
  to.nb_positive = unary_slot<1>;
  to.nb_absolute = unary_slot<2>;
  to.nb_invert = unary_slot<3>;
  state.array->tp_richcompare = compare_slot;
  PyType_Modified(state.array);
  return true;
}

}  // namespace lazy_numpy
