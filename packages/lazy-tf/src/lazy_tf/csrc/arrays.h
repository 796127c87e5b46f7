// NumPy arrays to TensorFlow's CPU handles and back, without copies where the memory can be shared.
//
// The only file but arrays.cpp that would need NumPy's C interface; nobody else includes it.
#pragma once
#include <string>

#include "entry.h"
#include "reference.h"

namespace lazy_tf {

constexpr int kSmall = 64;  // as tensor.SMALL

bool use_numbers(PyObject* dtypes);  // a dict: NumPy dtype by TensorFlow's enum
bool is_number(int dtype);

// The contents of a small CPU handle as a new array. Null: with an exception, or without if it is not small or carries an error.
Ref small_array(TFE_TensorHandle* handle, int dtype, TF_Status* status);
// A read-only array over the memory of a CPU handle. Null with an exception, or without if the status is not OK.
Ref view_of(TFE_TensorHandle* handle, TF_Status* status);
// A CPU handle over the memory of an array that nobody writes to. Null with an exception, or without if the status is not OK.
TFE_TensorHandle* handle_over(PyObject* array, int dtype, TFE_Context* context, TF_Status* status);
// A tuple.
Ref dims_of_array(PyObject* array);
// Add an array's dimensions and contents to a key; false if that is not possible, without an exception.
bool add_bits(PyObject* array, std::string* key);
bool is_scalar(PyObject* array);

}  // namespace lazy_tf
