#include "entry.h"

#include <structmember.h>

#include <cstddef>

namespace lazy_tf {

PyTypeObject* entry_type = nullptr;
PyTypeObject* tensor_type = nullptr;
PyTypeObject* tensor_class = nullptr;

namespace {

void drop_sizes(Entry* self) {
  if (self->sizes != self->inline_sizes) PyMem_Free(self->sizes);
  self->sizes = self->inline_sizes;
}

bool reserve(Entry* self, Py_ssize_t rank) {
  int64_t* sizes = self->inline_sizes;
  if (rank > kInlineRank) {
    sizes = static_cast<int64_t*>(PyMem_Malloc(sizeof(int64_t) * rank));
    if (sizes == nullptr) {
      PyErr_NoMemory();
      return false;
    }
  }
  if (self->sizes != nullptr) drop_sizes(self);
  self->sizes = sizes;
  self->rank = static_cast<int>(rank);
  return true;
}

bool set_dims(Entry* self, PyObject* dims) {
  if (!PyTuple_Check(dims)) {
    PyErr_Format(PyExc_TypeError, "dims must be a tuple, not %.100s", Py_TYPE(dims)->tp_name);
    return false;
  }
  if (!reserve(self, PyTuple_GET_SIZE(dims))) return false;
  for (int i = 0; i < self->rank; ++i) {
    self->sizes[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(dims, i));
    if (self->sizes[i] == -1 && PyErr_Occurred()) return false;
  }
  Py_XSETREF(self->dims, Py_NewRef(dims));
  return true;
}

void entry_dealloc(PyObject* object) {
  Entry* self = reinterpret_cast<Entry*>(object);
  PyTypeObject* type = Py_TYPE(object);
  Py_CLEAR(self->dims);
  if (self->sizes != nullptr) drop_sizes(self);
  type->tp_free(object);
  Py_DECREF(type);
}

int entry_init(PyObject* object, PyObject* args, PyObject* kwargs) {
  Entry* self = reinterpret_cast<Entry*>(object);
  static const char* names[] = {"dtype", "dims", nullptr};
  PyObject* dims;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iO", const_cast<char**>(names), &self->dtype, &dims)) return -1;
  self->handle_dtype = self->dtype;
  return set_dims(self, dims) ? 0 : -1;
}

PyObject* get_dims(PyObject* object, void*) { return dims_of(reinterpret_cast<Entry*>(object)); }

PyGetSetDef entry_properties[] = {
    {"dims", get_dims, nullptr, "the dimensions", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef entry_members[] = {
    {"dtype", T_INT, offsetof(Entry, dtype), 0, "TensorFlow's enum"},
    {"handle_dtype", T_INT, offsetof(Entry, handle_dtype), 0, "the dtype of a handle that stands for this"},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot entry_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(entry_dealloc)},
    {Py_tp_init, reinterpret_cast<void*>(entry_init)},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_members, entry_members},
    {Py_tp_getset, entry_properties},
    {Py_tp_doc, const_cast<char*>("What a handle on the lazy device may stand for: a dtype and dimensions.")},
    {0, nullptr},
};

PyType_Spec entry_spec = {"lazy_tf._native.Entry", sizeof(Entry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, entry_slots};

void tensor_dealloc(PyObject* object) {
  Tensor* self = as_tensor(object);
  Py_CLEAR(self->value);
  Py_CLEAR(self->host);
  if (self->cpu != nullptr) TFE_DeleteTensorHandle(self->cpu);
  Py_CLEAR(self->statics);
  Py_CLEAR(self->bits);
  entry_dealloc(object);
}

PyObject* kept(PyObject* object) {
  if (object == nullptr || object == Py_None) return nullptr;
  Py_INCREF(object);
  return object;
}

int tensor_init(PyObject* object, PyObject* args, PyObject* kwargs) {
  Tensor* self = as_tensor(object);
  static const char* names[] = {"dtype", "dims", "value", "host", "foldable", nullptr};
  PyObject *dims, *value, *host = nullptr;
  int foldable = 0;
  auto** keywords = const_cast<char**>(names);
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iOO|Op", keywords, &self->entry.dtype, &dims, &value, &host, &foldable)) return -1;
  self->entry.handle_dtype = self->entry.dtype;
  if (!set_dims(&self->entry, dims)) return -1;
  Py_XSETREF(self->value, kept(value));
  Py_XSETREF(self->host, kept(host));
  self->foldable = static_cast<char>(foldable);
  return 0;
}

template <PyObject* Tensor::*Field>
PyObject* get_object(PyObject* object, void*) {
  PyObject* held = as_tensor(object)->*Field;
  if (held == nullptr) held = Py_None;
  Py_INCREF(held);
  return held;
}

template <PyObject* Tensor::*Field>
int set_object(PyObject* object, PyObject* given, void*) {
  Py_XSETREF(as_tensor(object)->*Field, kept(given));
  return 0;
}

PyObject* get_cpu(PyObject* object, void*) {
  TFE_TensorHandle* handle = as_tensor(object)->cpu;
  return handle != nullptr ? PyLong_FromVoidPtr(handle) : Py_NewRef(Py_None);
}

PyGetSetDef tensor_properties[] = {
    {"cpu", get_cpu, nullptr, "the address of a CPU handle with the contents, or None", nullptr},
    {"value", get_object<&Tensor::value>, set_object<&Tensor::value>, "a lazy_core value or constant, or None", nullptr},
    {"host", get_object<&Tensor::host>, set_object<&Tensor::host>, "the contents where the host knows them, or None", nullptr},
    {"_static", get_object<&Tensor::statics>, set_object<&Tensor::statics>, "the contents as tuples, once asked for", nullptr},
    {"_bits", get_object<&Tensor::bits>, set_object<&Tensor::bits>, "a key of the contents, once asked for", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef tensor_members[] = {
    {"foldable", T_BOOL, offsetof(Tensor, foldable), 0, "whether the host may compute with the contents"},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot tensor_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(tensor_dealloc)},
    {Py_tp_init, reinterpret_cast<void*>(tensor_init)},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_members, tensor_members},
    {Py_tp_getset, tensor_properties},
    {Py_tp_doc, const_cast<char*>("An entry of numbers: the base of lazy_tf.tensor.Tensor.")},
    {0, nullptr},
};

PyType_Spec tensor_spec = {"lazy_tf._native.Tensor", sizeof(Tensor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, tensor_slots};

}  // namespace

bool make_types(PyObject* module) {
  entry_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&entry_spec));
  if (entry_type == nullptr) return false;
  tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&tensor_spec, reinterpret_cast<PyObject*>(entry_type)));
  if (tensor_type == nullptr) return false;
  Py_INCREF(entry_type);
  Py_INCREF(tensor_type);
  return PyModule_AddObject(module, "Entry", reinterpret_cast<PyObject*>(entry_type)) == 0 &&
         PyModule_AddObject(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type)) == 0;
}

PyObject* dims_of(Entry* entry) {
  if (entry->dims == nullptr) {
    PyObject* made = PyTuple_New(entry->rank);
    if (made == nullptr) return nullptr;
    for (int i = 0; i < entry->rank; ++i) PyTuple_SET_ITEM(made, i, PyLong_FromLongLong(entry->sizes[i]));
    entry->dims = made;
  }
  return Py_NewRef(entry->dims);
}

Tensor* new_cpu_tensor(TFE_TensorHandle* handle, TF_Status* status) {
  PyObject* object = tensor_class->tp_alloc(tensor_class, 0);
  if (object == nullptr) return nullptr;
  Tensor* self = as_tensor(object);
  self->cpu = handle;
  self->entry.dtype = self->entry.handle_dtype = TFE_TensorHandleDataType(handle);
  if (!reserve(&self->entry, TFE_TensorHandleNumDims(handle, status))) {
    Py_DECREF(object);
    return nullptr;
  }
  for (int i = 0; i < self->entry.rank; ++i) self->entry.sizes[i] = TFE_TensorHandleDim(handle, i, status);
  return self;
}

Tensor* new_tensor(int dtype, PyObject* dims, PyObject* value, PyObject* host, bool foldable) {
  PyObject* object = tensor_class->tp_alloc(tensor_class, 0);
  if (object == nullptr) return nullptr;
  Tensor* self = as_tensor(object);
  self->entry.dtype = self->entry.handle_dtype = dtype;
  if (!set_dims(&self->entry, dims)) {
    Py_DECREF(object);
    return nullptr;
  }
  self->value = kept(value);
  self->host = kept(host);
  self->foldable = foldable;
  return self;
}

}  // namespace lazy_tf
