#include "operations.h"

#include <cstring>

#include "arrays.h"

namespace lazy_tf {

namespace {

constexpr size_t kUsesLimit = 4096;

// Never destroyed: when the process ends, Python objects must not be touched any more.
auto& known_operations = *new std::unordered_map<std::string, std::unique_ptr<Operation>>;
uint32_t next_use = 0;

PyObject* name_operand = PyUnicode_InternFromString("operand");
PyObject* name_shape = PyUnicode_InternFromString("shape");
PyObject* name_dims = PyUnicode_InternFromString("dims");
PyObject* name_dtype = PyUnicode_InternFromString("dtype");

bool read_integers(PyObject* tuple, std::vector<int>* into) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) into->push_back(static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(tuple, i))));
  return !PyErr_Occurred();
}

// Ask Python which inputs are static, and whether the use can be recorded without its handler.
bool describe(Use* use) {
  Ref answer(PyObject_CallOneArg(hooks.describe, use->signature.get()));
  PyObject *statics, *how;
  if (!answer || !PyArg_ParseTuple(answer.get(), "O!O", &PyTuple_Type, &statics, &how)) return false;
  if (!read_integers(statics, &use->statics)) return false;
  if (how == Py_None) return true;
  PyObject *target, *operands, *hosts, *outputs;
  int check;
  auto* tuple = &PyTuple_Type;
  if (!PyArg_ParseTuple(how, "OO!O!pO!", &target, tuple, &operands, tuple, &hosts, &check, tuple, &outputs)) return false;
  auto direct = std::make_shared<Direct>();
  direct->target = Ref::borrow(target);
  direct->check = check;
  if (!read_integers(operands, &direct->operands) || !read_integers(hosts, &direct->hosts) || !read_integers(outputs, &direct->outputs))
    return false;
  use->direct = std::move(direct);
  return true;
}

// The use of a signature, found by this key from now on; `make` gives its prototype if it is new.
template <class Make>
std::shared_ptr<Use> remember(Operation* operation, std::string key, Ref signature, Make make) {
  if (!signature) return nullptr;
  auto found = operation->distinct.find(signature.get());
  std::shared_ptr<Use> use;
  if (found != operation->distinct.end()) {
    use = found->second;
  } else {
    use = std::make_shared<Use>();
    use->id = ++next_use;
    use->operation = operation;
    use->signature = std::move(signature);
    use->prototype = make();
    if (!describe(use.get())) return nullptr;
    if (operation->distinct.size() >= kUsesLimit) operation->distinct.clear();
    operation->distinct.emplace(use->signature.get(), use);
  }
  if (operation->uses.size() >= kUsesLimit) operation->uses.clear();
  operation->uses.emplace(std::move(key), use);
  return use;
}

Ref signature_of_types(Operation* operation, const std::string& key) {
  Ref dtypes(PyTuple_New(key.size()));
  if (!dtypes) return Ref();
  for (size_t i = 0; i < key.size(); ++i) PyTuple_SET_ITEM(dtypes.get(), i, PyLong_FromLong(static_cast<unsigned char>(key[i])));
  return Ref(PyObject_CallFunctionObjArgs(hooks.by_dtypes, operation->info.get(), dtypes.get(), nullptr));
}

}  // namespace

Operation* operation_of(const char* name) {
  auto found = known_operations.find(name);
  if (found != known_operations.end()) return found->second.get();
  Ref answer(PyObject_CallFunction(hooks.resolve, "y", name));
  PyObject *info, *fast;
  int arity, follows, changes, place;
  if (!answer || !PyArg_ParseTuple(answer.get(), "OOippi", &info, &fast, &arity, &follows, &changes, &place)) return nullptr;
  auto made = std::make_unique<Operation>();
  made->name = name;
  made->info = Ref::borrow(info);
  if (fast != Py_None) made->fast = Ref::borrow(fast);
  made->arity = arity;
  made->follows = follows;
  made->changes = changes;
  made->place = static_cast<Place>(place);
  if (made->name == "_EagerConst") made->kind = Kind::kConstant;
  if (made->name == "Identity") made->kind = Kind::kIdentity;
  if (made->name == "ReadVariableOp") made->kind = Kind::kRead;
  if (made->name == "AssignAddVariableOp") made->kind = Kind::kAdd;
  if (made->name == "AssignSubVariableOp") made->kind = Kind::kSubtract;
  return known_operations.emplace(name, std::move(made)).first->second.get();
}

void forget_operations() {
  for (auto& known : known_operations) {
    known.second->uses.clear();
    known.second->distinct.clear();
  }
}

int dtype_of(PyObject* entry) {
  if (PyObject_TypeCheck(entry, entry_type)) return reinterpret_cast<Entry*>(entry)->dtype;
  Ref given(PyObject_GetAttr(entry, name_dtype));
  return given ? static_cast<int>(PyLong_AsLong(given.get())) : -1;
}

std::shared_ptr<Use> use_of(Operation* operation, const TFE_Op* op, const Inputs& inputs, TF_Status* status) {
  std::string key;
  if (operation->follows) {
    for (const Ref& input : inputs) {
      const int dtype = dtype_of(input.get());
      if (dtype < 0) return nullptr;
      key.push_back(static_cast<char>(dtype));
    }
  } else {
    TF_Buffer* buffer = TF_NewBuffer();
    TFE_OpAttrsSerialize(TFE_OpGetAttrs(op), buffer, status);
    key.assign(static_cast<const char*>(buffer->data), buffer->length);
    TF_DeleteBuffer(buffer);
  }
  auto found = operation->uses.find(key);
  if (found != operation->uses.end()) return found->second;
  Ref signature;
  if (operation->follows) {
    signature = signature_of_types(operation, key);
  } else {
    Ref blob(PyBytes_FromStringAndSize(key.data(), key.size()));
    if (blob) signature = Ref(PyObject_CallFunctionObjArgs(hooks.by_blob, operation->info.get(), blob.get(), nullptr));
  }
  return remember(operation, std::move(key), std::move(signature), [&] {
    TFE_Op* prototype = TFE_NewOp(context, operation->name.c_str(), status);
    if (prototype != nullptr) TFE_OpAddAttrs(prototype, TFE_OpGetAttrs(op));
    return prototype;
  });
}

std::shared_ptr<Use> use_of_type(Operation* operation, int inputs, int dtype, TF_Status* status) {
  std::string key(inputs, static_cast<char>(dtype));
  auto found = operation->uses.find(key);
  if (found != operation->uses.end()) return found->second;
  Ref signature = signature_of_types(operation, key);
  return remember(operation, std::move(key), std::move(signature), [&] {
    TFE_Op* prototype = TFE_NewOp(context, operation->name.c_str(), status);
    if (prototype != nullptr) TFE_OpSetAttrType(prototype, "T", static_cast<TF_DataType>(dtype));
    return prototype;
  });
}

Ref list_of(const Inputs& inputs) {
  Ref list(PyList_New(inputs.size()));
  for (size_t i = 0; list && i < inputs.size(); ++i) PyList_SET_ITEM(list.get(), i, Py_NewRef(inputs[i].get()));
  return list;
}

bool take_list(PyObject* answer, Inputs* outputs) {
  Ref fast(PySequence_Fast(answer, "a handler must return a list of entries"));
  if (!fast) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
    outputs->push_back(Ref::borrow(PySequence_Fast_GET_ITEM(fast.get(), i)));
  return true;
}

namespace {

// The attributes that the contents of `hosts` stand for; null with an exception, or without one if the host does not know them.
Ref attributes_of(Use* use, Direct* direct, const Inputs& inputs) {
  std::string key;
  for (int position : direct->hosts) {
    PyObject* host = as_tensor(inputs[position].get())->host;
    if (host == nullptr || !add_bits(host, &key)) return Ref();
  }
  auto found = direct->attributes.find(key);
  if (found != direct->attributes.end()) return Ref::borrow(found->second.get());
  Ref list = list_of(inputs);
  if (!list) return Ref();
  Ref made(PyObject_CallFunctionObjArgs(hooks.attributes, use->signature.get(), list.get(), nullptr));
  if (!made) return made;
  if (direct->attributes.size() >= kUsesLimit) direct->attributes.clear();
  direct->attributes.emplace(std::move(key), Ref::borrow(made.get()));
  return made;
}

Ref tensor_of_value(PyObject* value, int dtype) {
  Ref shape(PyObject_GetAttr(value, name_shape));
  if (!shape) return Ref();
  Ref dims(PyObject_GetAttr(shape.get(), name_dims));
  if (!dims) return Ref();
  return Ref(reinterpret_cast<PyObject*>(new_tensor(dtype, dims.get(), value, nullptr, false)));
}

}  // namespace

bool record_directly(Use* use, Direct* direct, const Inputs& inputs, Inputs* outputs) {
  bool all_foldable = !inputs.empty();
  for (const Ref& input : inputs) {
    if (!is_tensor(input.get())) return false;
    const Tensor* tensor = as_tensor(input.get());
    if (!tensor->foldable) all_foldable = false;
    if (direct->check && tensor->host != nullptr) return false;
  }
  if (all_foldable) return false;
  Ref attributes = attributes_of(use, direct, inputs);
  if (!attributes) return false;
  Ref operands(PyTuple_New(direct->operands.size()));
  if (!operands) return false;
  for (size_t i = 0; i < direct->operands.size(); ++i) {
    PyObject* input = inputs[direct->operands[i]].get();
    PyObject* value = as_tensor(input)->value;
    value = value != nullptr ? Py_NewRef(value) : PyObject_CallMethodNoArgs(input, name_operand);
    if (value == nullptr) return false;
    PyTuple_SET_ITEM(operands.get(), i, value);
  }
  PyObject* arguments[] = {direct->target.get(), operands.get(), attributes.get()};
  Ref result(PyObject_Vectorcall(hooks.record, arguments, 3, nullptr));
  if (!result) return false;
  const bool several = PyTuple_CheckExact(result.get());
  const size_t count = several ? PyTuple_GET_SIZE(result.get()) : 1;
  if (count != direct->outputs.size()) return false;
  for (size_t i = 0; i < count; ++i) {
    outputs->push_back(tensor_of_value(several ? PyTuple_GET_ITEM(result.get(), i) : result.get(), direct->outputs[i]));
    if (!outputs->back()) return false;
  }
  return true;
}

}  // namespace lazy_tf
