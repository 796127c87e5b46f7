// Functions, methods, attributes and NumPy's protocols on lazy arrays, run by NumPy at once: the short way of `immediate.dual`.
#include "calls.h"

#include <structmember.h>

namespace lazy_numpy {
namespace {

// One function in two forms: the Python one, which serves everything, and what the short way calls instead.
struct Callable {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *python, *native, *number, *complete;
  PyObject *dict, *weak;
  bool small;  // results are wrapped from `settings.small` elements on, and not from `settings.result`
  bool views;  // results that show an argument's memory are views like others
};

Callable* as_callable(PyObject* object) { return reinterpret_cast<Callable*>(object); }

const Slot& limit_of(const Callable* self) { return self->small ? state.small : state.result; }

// Whether a call failed that may succeed where an argument has memory that may be written to.
bool to_be_repeated(const Arguments& arguments) {
  if (!PyErr_ExceptionMatches(PyExc_ValueError) || !arguments.has_buffers()) return false;
  PyErr_Clear();
  return true;
}

PyObject* call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
  Callable* self = as_callable(object);
  if (short_way()) {
    const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
    const size_t total = count + (names != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0);
    Arguments arguments;
    if (arguments.add(args, total)) {
      PyObject* result = PyObject_Vectorcall(self->native, arguments.given(), count, names);
      if (result != nullptr || !to_be_repeated(arguments)) {
        auto number = [&] { return Py_NewRef(self->number); };
        return arguments.bring(result, self->native, number, limit_of(self), self->complete, self->views);
      }
    }
  }
  return PyObject_Vectorcall(self->python, args, flags, names);
}

// `__array_function__(self, function, types, args, kwargs)`.
PyObject* call_function(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
  Callable* self = as_callable(object);
  const bool usual = PyVectorcall_NARGS(flags) == 5 && names == nullptr && PyTuple_CheckExact(args[3]) && PyDict_CheckExact(args[4]);
  if (usual && short_way()) {
    PyObject *function = args[1], *given = args[3], *keywords = args[4];
    const auto count = static_cast<size_t>(PyTuple_GET_SIZE(given));
    Arguments arguments;
    bool fits = arguments.add(&PyTuple_GET_ITEM(given, 0), count);
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; fits && PyDict_Next(keywords, &at, &key, &value);) fits = !is_lazy(value) && operand(value) != nullptr;
    if (fits) {
      PyObject* result = PyObject_VectorcallDict(function, arguments.given(), count, PyDict_GET_SIZE(keywords) > 0 ? keywords : nullptr);
      if (result != nullptr || !to_be_repeated(arguments)) {
        auto number = [&]() -> PyObject* {
          Owned both(PyTuple_Pack(2, self->number, function));
          const Py_hash_t hash = both ? PyObject_Hash(both.get()) : -1;
          return hash == -1 ? nullptr : PyLong_FromSsize_t(hash);
        };
        return arguments.bring(result, function, number, state.result, self->complete, false);
      }
    }
  }
  return PyObject_Vectorcall(self->python, args, flags, names);
}

// `__array_ufunc__(self, ufunc, method, *inputs)`; `native` is a dict from the ufuncs that are served to the numbers that the policy knows
// them by: those of one lazy input, or of two inputs with the first or only the second lazy.
PyObject* call_ufunc(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
  Callable* self = as_callable(object);
  const Py_ssize_t count = PyVectorcall_NARGS(flags) - 3;
  const bool usual = (count == 1 || count == 2) && (names == nullptr || PyTuple_GET_SIZE(names) == 0);
  if (usual && short_way() && PyUnicode_CompareWithASCIIString(args[2], "__call__") == 0) {
    PyObject* ufunc = args[1];
    PyObject* numbers = PyDict_GetItemWithError(self->native, ufunc);
    if (numbers == nullptr && PyErr_Occurred()) return nullptr;
    PyObject* first = args[3];
    PyObject* second = count == 2 ? args[4] : nullptr;
    Arguments arguments;
    if (numbers != nullptr && PyTuple_GET_SIZE(numbers) == count && arguments.add(args + 3, static_cast<size_t>(count))) {
      PyObject* result = PyObject_Vectorcall(ufunc, arguments.given(), static_cast<size_t>(count), nullptr);
      const bool forward = second == nullptr || (is_lazy(first) && (is_lazy(second) || PyFloat_CheckExact(second)));
      const bool operators = forward || !is_lazy(first);
      auto number = [&]() -> PyObject* {
        if (operators) return Py_NewRef(PyTuple_GET_ITEM(numbers, forward ? 0 : 1));
        Owned all(PyTuple_Pack(3, self->number, ufunc, args[2]));
        const Py_hash_t hash = all ? PyObject_Hash(all.get()) : -1;
        return hash == -1 ? nullptr : PyLong_FromSsize_t(hash);
      };
      if (result == nullptr) return nullptr;
      if (!operators) return arguments.bring(result, ufunc, number, state.result, self->complete, false);
      Owned known(number());
      return finish(result, known.get());
    }
  }
  return PyObject_Vectorcall(self->python, args, flags, names);
}

// ------------------------------------------------------------------ their types

PyObject* make(PyTypeObject* type, PyObject* args, PyObject* keywords, vectorcallfunc vectorcall) {
  static const char* const kNames[] = {"python", "native", "number", "complete", "small", "views", nullptr};
  PyObject *python = nullptr, *native = nullptr, *number = nullptr, *complete = nullptr;
  int small = 0, views = 1;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOO|pp", const_cast<char**>(kNames), &python, &native, &number, &complete, &small,
                                   &views))
    return nullptr;
  if (vectorcall == call_ufunc && !PyDict_CheckExact(native)) {
    PyErr_SetString(PyExc_TypeError, "the ufuncs that are served come as a dict");
    return nullptr;
  }
  auto* self = reinterpret_cast<Callable*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = vectorcall;
  self->python = Py_NewRef(python);
  self->native = Py_NewRef(native);
  self->number = Py_NewRef(number);
  self->complete = Py_NewRef(complete);
  self->small = small != 0;
  self->views = views != 0;
  return reinterpret_cast<PyObject*>(self);
}

template <vectorcallfunc F>
PyObject* make_callable(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  return make(type, args, keywords, F);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Callable* self = as_callable(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->python);
  Py_VISIT(self->native);
  Py_VISIT(self->number);
  Py_VISIT(self->complete);
  Py_VISIT(self->dict);
  return 0;
}

int clear(PyObject* object) {
  Callable* self = as_callable(object);
  Py_CLEAR(self->python);
  Py_CLEAR(self->native);
  Py_CLEAR(self->number);
  Py_CLEAR(self->complete);
  Py_CLEAR(self->dict);
  return 0;
}

void deallocate(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (as_callable(object)->weak != nullptr) PyObject_ClearWeakRefs(object);
  clear(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* bind(PyObject* object, PyObject* to, PyObject*) {
  return to == nullptr || to == Py_None ? Py_NewRef(object) : PyMethod_New(object, to);
}

PyObject* represent(PyObject* object) { return PyObject_Repr(as_callable(object)->python); }

PyMemberDef callable_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Callable, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Callable, weak), READONLY, nullptr},
    {"python", T_OBJECT, offsetof(Callable, python), READONLY, "the function that serves every call"},
    {},
};

PyGetSetDef callable_attributes[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr}, {}};

template <vectorcallfunc F, bool Binds>
bool add_callable(PyObject* module, const char* name, const char* qualified) {
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(&make_callable<F>)},
      {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
      {Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(&clear)},
      {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
      {Py_tp_repr, reinterpret_cast<void*>(&represent)},
      {Py_tp_members, callable_members},
      {Py_tp_getset, callable_attributes},
      {Binds ? Py_tp_descr_get : 0, Binds ? reinterpret_cast<void*>(&bind) : nullptr},
      {0, nullptr},
  };
  unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE;
  if (Binds) flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
  PyType_Spec spec = {qualified, static_cast<int>(sizeof(Callable)), 0, flags, slots};
  Owned type(PyType_FromSpec(&spec));
  return type && PyModule_AddObjectRef(module, name, type.get()) == 0;
}

// ------------------------------------------------------------------ attributes

// An attribute that NumPy's array has: read there, unless the property has to be asked.
struct Attribute {
  PyObject_HEAD PyObject *property, *name;
  bool view;  // an array that shows the same memory
};

PyObject* make_attribute(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *property = nullptr, *name = nullptr;
  int view = 0;
  if (!PyArg_ParseTuple(args, "OUp", &property, &name, &view)) return nullptr;
  auto* self = reinterpret_cast<Attribute*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->property = Py_NewRef(property);
  self->name = Py_NewRef(name);
  self->view = view != 0;
  return reinterpret_cast<PyObject*>(self);
}

PyObject* read_attribute(PyObject* object, PyObject* of, PyObject* type) {
  auto* self = reinterpret_cast<Attribute*>(object);
  if (of == nullptr || of == Py_None) return Py_NewRef(object);
  PyArrayObject* x = is_lazy(of) && short_way() ? shown(of) : nullptr;
  if (x != nullptr) {
    if (!self->view) return PyObject_GetAttr(reinterpret_cast<PyObject*>(x), self->name);
    Arguments arguments;
    arguments.add(of);
    Owned result(PyObject_GetAttr(arguments.given()[0], self->name));
    if (!result) return nullptr;
    PyObject* const shows = arguments.shown_by(reinterpret_cast<PyArrayObject*>(result.get()));
    const bool small = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(result.get())) <= state.small.number(state.settings);
    if (shows != nullptr && small && is_own(of)) return result.release();
    if (shows != nullptr) return view(of, result.release());
  }
  return Py_TYPE(self->property)->tp_descr_get(self->property, of, type);
}

int write_attribute(PyObject* object, PyObject* of, PyObject* value) {
  auto* self = reinterpret_cast<Attribute*>(object);
  return Py_TYPE(self->property)->tp_descr_set(self->property, of, value);
}

int traverse_attribute(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(reinterpret_cast<Attribute*>(object)->property);
  return 0;
}

int clear_attribute(PyObject* object) {
  Py_CLEAR(reinterpret_cast<Attribute*>(object)->property);
  Py_CLEAR(reinterpret_cast<Attribute*>(object)->name);
  return 0;
}

void deallocate_attribute(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear_attribute(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* documentation(PyObject* object, void*) {
  return PyObject_GetAttrString(reinterpret_cast<Attribute*>(object)->property, "__doc__");
}

PyGetSetDef attribute_attributes[] = {{"__doc__", documentation, nullptr, nullptr, nullptr}, {}};

bool add_attribute(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(&make_attribute)},
      {Py_tp_descr_get, reinterpret_cast<void*>(&read_attribute)},
      {Py_tp_descr_set, reinterpret_cast<void*>(&write_attribute)},
      {Py_tp_traverse, reinterpret_cast<void*>(&traverse_attribute)},
      {Py_tp_clear, reinterpret_cast<void*>(&clear_attribute)},
      {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate_attribute)},
      {Py_tp_getset, attribute_attributes},
      {0, nullptr},
  };
  const unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE;
  PyType_Spec spec = {"lazy_numpy._native.Attribute", static_cast<int>(sizeof(Attribute)), 0, flags, slots};
  Owned type(PyType_FromSpec(&spec));
  return type && PyModule_AddObjectRef(module, "Attribute", type.get()) == 0;
}

}  // namespace

bool add_calls(PyObject* module) {
  return add_callable<call, false>(module, "Function", "lazy_numpy._native.Function") &&
         add_callable<call, true>(module, "Method", "lazy_numpy._native.Method") &&
         add_callable<call_function, true>(module, "ArrayFunction", "lazy_numpy._native.ArrayFunction") &&
         add_callable<call_ufunc, true>(module, "ArrayUfunc", "lazy_numpy._native.ArrayUfunc") && add_attribute(module);
}

}  // namespace lazy_numpy
