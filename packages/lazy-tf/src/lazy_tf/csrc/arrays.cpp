#include "arrays.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include <cstring>

#include "tensorflow/c/eager/c_api_experimental.h"

namespace lazy_tf {

namespace {

constexpr int kDtypes = 64;
constexpr int kRanks = 64;
constexpr size_t kWorthSharing = 1024;  // bytes: less is copied

PyArray_Descr* numbers[kDtypes];

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

void drop_tensor(PyObject* capsule) { TF_DeleteTensor(static_cast<TF_Tensor*>(PyCapsule_GetPointer(capsule, nullptr))); }

void drop_array(void*, size_t, void* array) {
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(static_cast<PyObject*>(array));
  PyGILState_Release(state);
}

}  // namespace

bool use_numbers(PyObject* dtypes) {
  if (PyArray_ImportNumPyAPI() < 0) return false;
  PyObject *key, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(dtypes, &place, &key, &value)) {
    const long number = PyLong_AsLong(key);
    if (number < 0 || number >= kDtypes || !PyArray_DescrCheck(value)) {
      PyErr_SetString(PyExc_ValueError, "a dtype with a number that TensorFlow has not");
      return false;
    }
    Py_INCREF(value);
    numbers[number] = reinterpret_cast<PyArray_Descr*>(value);
  }
  return true;
}

bool is_number(int dtype) { return dtype >= 0 && dtype < kDtypes && numbers[dtype] != nullptr; }

Ref small_array(TFE_TensorHandle* handle, int dtype, TF_Status* status) {
  npy_intp dims[kSmall];
  const int rank = TFE_TensorHandleNumDims(handle, status);
  if (rank < 0 || rank > 8) return Ref();
  int64_t size = 1;
  for (int i = 0; i < rank; ++i) {
    dims[i] = TFE_TensorHandleDim(handle, i, status);
    size *= dims[i];
  }
  if (size > kSmall || TF_GetCode(status) != TF_OK) return Ref();
  TF_Tensor* tensor = TFE_TensorHandleResolve(handle, status);
  if (tensor == nullptr) return Ref();
  Py_INCREF(numbers[dtype]);
  Ref array(PyArray_NewFromDescr(&PyArray_Type, numbers[dtype], rank, dims, nullptr, nullptr, 0, nullptr));
  if (array) {
    std::memcpy(PyArray_DATA(as_array(array.get())), TF_TensorData(tensor), TF_TensorByteSize(tensor));
    PyArray_CLEARFLAGS(as_array(array.get()), NPY_ARRAY_WRITEABLE);
  }
  TF_DeleteTensor(tensor);
  return array;
}

Ref view_of(TFE_TensorHandle* handle, TF_Status* status) {
  TF_Tensor* tensor = TFE_TensorHandleResolve(handle, status);
  if (tensor == nullptr || TF_GetCode(status) != TF_OK) return Ref();
  const int dtype = TF_TensorType(tensor), rank = TF_NumDims(tensor);
  npy_intp dims[kRanks];
  if (!is_number(dtype) || rank > kRanks) {
    TF_DeleteTensor(tensor);
    PyErr_Format(PyExc_TypeError, "a tensor of TensorFlow's dtype %d and rank %d is no array", dtype, rank);
    return Ref();
  }
  for (int i = 0; i < rank; ++i) dims[i] = TF_Dim(tensor, i);
  Ref owner(PyCapsule_New(tensor, nullptr, drop_tensor));
  if (!owner) {
    TF_DeleteTensor(tensor);
    return Ref();
  }
  Py_INCREF(numbers[dtype]);
  void* data = TF_TensorData(tensor);
  Ref array(PyArray_NewFromDescr(&PyArray_Type, numbers[dtype], rank, dims, nullptr, data, NPY_ARRAY_CARRAY_RO, nullptr));
  if (!array || PyArray_SetBaseObject(as_array(array.get()), owner.release()) < 0) return Ref();
  return array;
}

TFE_TensorHandle* handle_over(PyObject* object, int dtype, TFE_Context* context, TF_Status* status) {
  if (!PyArray_Check(object)) {
    PyErr_Format(PyExc_TypeError, "expected an array, not %.100s", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  Ref whole(PyArray_FROM_OF(object, NPY_ARRAY_CARRAY_RO));
  if (!whole) return nullptr;
  PyArrayObject* array = as_array(whole.get());
  int64_t dims[kRanks];
  const int rank = PyArray_NDIM(array);
  for (int i = 0; i < rank; ++i) dims[i] = PyArray_DIM(array, i);
  const size_t bytes = PyArray_NBYTES(array);
  TF_Tensor* tensor;
  if (bytes < kWorthSharing) {
    tensor = TF_AllocateTensor(static_cast<TF_DataType>(dtype), dims, rank, bytes);
    if (bytes != 0) std::memcpy(TF_TensorData(tensor), PyArray_DATA(array), bytes);
  } else {  // TensorFlow copies memory that is not aligned as it wants
    void* data = PyArray_DATA(array);
    tensor = TF_NewTensor(static_cast<TF_DataType>(dtype), dims, rank, data, bytes, drop_array, whole.release());
  }
  TFE_TensorHandle* handle = TFE_NewTensorHandleFromTensor(context, tensor, status);
  TF_DeleteTensor(tensor);
  return handle;
}

Ref dims_of_array(PyObject* object) {
  PyArrayObject* array = as_array(object);
  Ref dims(PyTuple_New(PyArray_NDIM(array)));
  for (int i = 0; dims && i < PyArray_NDIM(array); ++i) PyTuple_SET_ITEM(dims.get(), i, PyLong_FromLongLong(PyArray_DIM(array, i)));
  return dims;
}

bool add_bits(PyObject* object, std::string* key) {
  if (!PyArray_Check(object) || !PyArray_IS_C_CONTIGUOUS(as_array(object))) return false;
  PyArrayObject* array = as_array(object);
  key->push_back(static_cast<char>(PyArray_NDIM(array)));
  key->append(reinterpret_cast<const char*>(PyArray_DIMS(array)), sizeof(npy_intp) * PyArray_NDIM(array));
  key->append(static_cast<const char*>(PyArray_DATA(array)), PyArray_NBYTES(array));
  return true;
}

bool is_scalar(PyObject* object) { return PyArray_NDIM(as_array(object)) == 0; }

}  // namespace lazy_tf
