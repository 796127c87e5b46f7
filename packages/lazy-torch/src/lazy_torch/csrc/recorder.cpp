// The recorder: one boxed kernel for every ATen operation.  A hit (known operation, input expressions and arguments) is served from the table without
// Python; a miss asks lazy_torch.tensor once.  Everything is planned first, under the mutex and without effects, and then committed.
#include "operation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/AutogradState.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>

#include <chrono>
#include <unordered_set>

namespace lazytorch {

namespace {

// ---------------------------------------------------------------- operations

std::vector<std::unique_ptr<Op>>& operations() {
  static auto* ops = new std::vector<std::unique_ptr<Op>>();
  return *ops;
}
Op* copy_op = nullptr;

Op* make_op(const c10::OperatorHandle& handle) {
  static const std::unordered_set<std::string> overwriting = {"copy_", "fill_", "zero_", "uniform_", "normal_", "random_", "exponential_", "cauchy_", "geometric_", "log_normal_"};
  auto op = std::make_unique<Op>(handle, (uint32_t)operations().size());
  const auto& schema = handle.schema();
  op->name = c10::toString(handle.operator_name()).substr(6);
  const std::string base = op->name.substr(0, op->name.find('.'));
  op->nargs = schema.arguments().size();
  op->nrets = schema.returns().size();
  for (auto& a : schema.arguments()) {
    ArgSpec spec;
    spec.write = a.alias_info() && a.alias_info()->isWrite();
    spec.write_only = spec.write && (a.kwarg_only() || (op->args.empty() && overwriting.count(base)) || op->name == "bernoulli_.float");
    auto type = strip_optional(a.real_type());
    if (auto* list = type->castRaw<c10::ListType>()) spec.number = list->getElementType()->kind() == c10::TypeKind::NumberType;
    spec.number |= type->kind() == c10::TypeKind::NumberType;
    if (type->kind() == c10::TypeKind::ScalarTypeType) spec.kind = ArgSpec::DTYPE;
    if (type->kind() == c10::TypeKind::LayoutType || type->kind() == c10::TypeKind::MemoryFormatType || type->kind() == c10::TypeKind::DeviceObjType ||
        type->kind() == c10::TypeKind::GeneratorType || a.name() == "pin_memory")
      spec.kind = ArgSpec::DROP;
    if (type->kind() == c10::TypeKind::GeneratorType) op->generator = op->args.size();
    op->args.push_back(spec);
  }
  for (auto& r : schema.returns()) {
    int alias = -1;
    if (r.alias_info())
      for (int i = 0; i < op->nargs; i++) {
        auto* info = schema.arguments()[i].alias_info();
        if (info && info->isWrite() && info->beforeSets() == r.alias_info()->beforeSets()) alias = i;
      }
    op->alias.push_back(alias);
  }
  op->composite = handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  op->cpu_indices = base.find("index") != std::string::npos;
  op->is_copy = op->name == "copy_";
  op->is_clone = base == "clone";
  op->is_zero = base == "zero_" || base == "_foreach_zero_";
  op->own = own_kernel(op->name);
  op->on_cpu = op->own || handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  op->seeded = handle.hasTag(at::Tag::nondeterministic_seeded) && base != "_fused_sdp_choice";
  for (int i = 0; i < op->nargs; i++) {
    const auto& name = schema.arguments()[i].name();
    if (name == "dropout_p" || name == "dropout") op->dropout = i;
    if (base == "native_batch_norm" && (name == "running_mean" || name == "running_var")) op->args[i].write = true;  // though the schema does not say so
  }
  if (op->is_copy) op->mode = RECORD;
  operations().push_back(std::move(op));
  return operations().back().get();
}

int classify(Op& op) {
  Gil gil;
  Ref answer = call("classify", Py_BuildValue("(sO)", op.name.c_str(), op.composite ? Py_True : Py_False));
  int mode, random;
  PyObject *fixed, *lift, *writes;
  if (!PyArg_ParseTuple(answer.p, "ipO!O!O!", &mode, &random, &PyTuple_Type, &fixed, &PyTuple_Type, &lift, &PyTuple_Type, &writes)) throw_python_error();
  auto each = [](PyObject* t, auto f) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t); i++) f(PyLong_AsLong(PyTuple_GET_ITEM(t, i)));
  };
  std::lock_guard<std::mutex> lock(state().mutex);
  each(fixed, [&](long i) { op.args[i].fixed = true; });
  each(lift, [&](long i) { op.args[i].number = true; });
  each(writes, [&](long i) { op.args[i].write = true; });
  op.random = random;
  op.mode = mode;
  return mode;
}

// ---------------------------------------------------------------- planning

// In the parts of an operation that torch composes of others.
thread_local int nested = 0;
// The numbers of the operation that is being recorded were others at other times.
thread_local bool varying = false;

// Whether an operation is not recorded though it is known: its trace runs faster natively, as far as is known so far, or as was decided.
enum class Leave { NO, SO_FAR, DECIDED };

struct Plan {
  Words key;
  c10::SmallVector<Item, 8> items;
  c10::SmallVector<uint32_t, 8> node_words;  // where nodes stand in the key
  c10::SmallVector<Number, 2> numbers;
  c10::SmallVector<const at::Tensor*, 4> written;
  RandomState* random = nullptr;
  OpEntry* entry = nullptr;
  Words site;
  bool lifted = false;
  Leave leave = Leave::NO;
  void clear() {
    key.clear(), items.clear(), node_words.clear(), numbers.clear(), written.clear(), site.clear();
    random = nullptr, entry = nullptr, lifted = false, leave = Leave::NO;
  }
};

uint64_t bits_of(double d) {
  uint64_t x;
  memcpy(&x, &d, 8);
  return x;
}

void add_number(Plan& p, const ArgSpec& spec, uint64_t tag, char type, uint64_t b0, uint64_t b1, bool wrapped, ScalarType dtype) {
  p.key.push_back(tag);
  Number n{(uint32_t)p.key.size(), type == 'c' ? 2u : 1u, type, spec.fixed || type == 'b' || type == 'c', wrapped, dtype, {b0, b1}};
  p.key.push_back(b0);
  if (type == 'c') p.key.push_back(b1);
  p.items.push_back({nullptr, (int)p.numbers.size(), nullptr});
  p.numbers.push_back(n);
}

bool add_scalar(Plan& p, const ArgSpec& spec, const IValue& v) {
  if (v.isInt()) add_number(p, spec, 8, 'i', v.toInt(), 0, true, ScalarType::Long);
  else if (v.isDouble()) add_number(p, spec, 9, 'f', bits_of(v.toDouble()), 0, true, ScalarType::Double);
  else if (v.isBool()) add_number(p, spec, 10, 'b', v.toBool(), 0, true, ScalarType::Bool);
  else if (v.isComplexDouble()) add_number(p, spec, 11, 'c', bits_of(v.toComplexDouble().real()), bits_of(v.toComplexDouble().imag()), true, ScalarType::ComplexDouble);
  else return false;
  return true;
}

// A zero-dim CPU tensor takes part as a number, as on other devices.
void add_cpu_tensor(Plan& p, const Op& op, int arg, const at::Tensor& t) {
  const ArgSpec& spec = op.args[arg];
  if (!t.device().is_cpu() || t.dim() != 0 || spec.write || t.layout() != c10::kStrided) device_mismatch(op, arg, t);
  const ScalarType dtype = t.scalar_type();
  const bool wrapped = t.unsafeGetTensorImpl()->is_wrapped_number();
  const uint64_t tag = 12 | (uint64_t)wrapped << 8 | (uint64_t)dtype << 16;
  if (dtype == ScalarType::Double) return add_number(p, spec, tag, 'f', bits_of(*static_cast<const double*>(t.const_data_ptr())), 0, wrapped, dtype);
  if (dtype == ScalarType::Long) return add_number(p, spec, tag, 'i', *static_cast<const int64_t*>(t.const_data_ptr()), 0, wrapped, dtype);
  const at::Scalar s = t.item();
  if (s.isBoolean()) add_number(p, spec, tag, 'b', s.toBool(), 0, wrapped, dtype);
  else if (s.isFloatingPoint()) add_number(p, spec, tag, 'f', bits_of(s.toDouble()), 0, wrapped, dtype);
  else if (s.isComplex()) add_number(p, spec, tag, 'c', bits_of(s.toComplexDouble().real()), bits_of(s.toComplexDouble().imag()), wrapped, dtype);
  else add_number(p, spec, tag, 'i', s.toLong(), 0, wrapped, dtype);
}

bool add_tensor(Plan& p, Op& op, int arg, const at::Tensor& t, Missing& m) {
  const ArgSpec& spec = op.args[arg];
  if (C10_UNLIKELY(t.device().type() != kDeviceType)) return add_cpu_tensor(p, op, arg, t), true;
  if (spec.write) p.written.push_back(&t);
  Value value;
  if (spec.write_only) {
    value.geom = intern_geom(t.scalar_type(), t.sizes(), t.strides());
    value.node = nullptr;
    p.key.push_back((uint64_t)value.geom);
    p.key.push_back(1);
    if (!zeros(value.geom, value.node, m)) return false;
    p.items.push_back({value.node, -1, value.geom});
    return true;
  }
  if (!read(t, value, m)) return false;
  p.key.push_back((uint64_t)value.geom);
  p.node_words.push_back(p.key.size());
  p.key.push_back((uint64_t)value.node);
  p.items.push_back({value.node, -1, value.geom});
  return true;
}

bool add_list(Plan& p, Op& op, int arg, const IValue& v, Missing& m) {
  const auto items = v.toListRef();
  const ArgSpec& spec = op.args[arg];
  p.key.push_back((uint64_t)items.size() << 8 | 13);
  for (const IValue& x : items) {
    if (x.isTensor() && x.toTensor().defined()) {
      if (!add_tensor(p, op, arg, x.toTensor(), m)) return false;
    } else if (x.isNone() || x.isTensor()) {
      p.key.push_back(7);
    } else if (spec.number && add_scalar(p, spec, x)) {
    } else if (x.isInt()) {
      p.key.push_back(x.toInt());
    } else if (x.isDouble()) {
      p.key.push_back(bits_of(x.toDouble()));
    } else if (x.isBool()) {
      p.key.push_back(x.toBool());
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(false, "lazy: aten::", op.name, " has a list argument of a kind that is not supported: ", x.tagKind());
    }
  }
  return true;
}

bool add_argument(Plan& p, Op& op, int i, const IValue& v, Missing& m) {
  const ArgSpec& spec = op.args[i];
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    if (t.defined()) return add_tensor(p, op, i, t, m);
    p.key.push_back(6);
  } else if (v.isNone()) {
    p.key.push_back(7);
  } else if (spec.number && add_scalar(p, spec, v)) {
  } else if (v.isInt()) {
    p.key.push_back(8), p.key.push_back(v.toInt());
  } else if (v.isDouble()) {
    p.key.push_back(9), p.key.push_back(bits_of(v.toDouble()));
  } else if (v.isBool()) {
    p.key.push_back(10 | (uint64_t)v.toBool() << 8);
  } else if (v.isList()) {
    return add_list(p, op, i, v, m);
  } else if (v.isDevice()) {
    TORCH_CHECK(v.toDevice().type() != kDeviceType || v.toDevice().index() <= 0, "lazy: there is one lazy device, lazy:0; got ", v.toDevice());
    p.key.push_back(14);
  } else if (v.isString()) {
    const auto text = v.toStringView();
    p.key.push_back((uint64_t)text.size() << 8 | 15);
    for (size_t at = 0; at < text.size(); at += 8) {
      uint64_t word = 0;
      memcpy(&word, text.data() + at, std::min<size_t>(8, text.size() - at));
      p.key.push_back(word);
    }
  } else if (v.isGenerator()) {
    p.key.push_back(16);
  } else if (v.isComplexDouble()) {
    p.key.push_back(17), p.key.push_back(bits_of(v.toComplexDouble().real())), p.key.push_back(bits_of(v.toComplexDouble().imag()));
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "lazy: argument ", i, " of aten::", op.name, " is of a kind that is not supported: ", v.tagKind());
  }
  return true;
}

// The key without the bits of numbers that may be fed at run time, and with skeletons in place of nodes, which feeding another number does not
// change (or without nodes: what meta inference depends on).
void site_key(const Plan& p, bool nodes, Words& out) {
  out.clear();
  out.push_back((uint64_t)(nodes ? Tag::SITE : Tag::META));
  size_t number = 0, node = 0;
  for (uint32_t w = 1; w < p.key.size();) {
    while (number < p.numbers.size() && (p.numbers[number].fixed || p.numbers[number].word < w)) number++;
    if (number < p.numbers.size() && p.numbers[number].word == w) {
      w += p.numbers[number++].count;
      continue;
    }
    if (node < p.node_words.size() && p.node_words[node] == w) {
      if (nodes) out.push_back(reinterpret_cast<const Node*>(p.key[w])->skeleton);
      node++, w++;
      continue;
    }
    out.push_back(p.key[w++]);
  }
}

void plan_numbers(Plan& p, Op& op) {
  bool any = false;
  for (auto& n : p.numbers) any |= !n.fixed;
  if (!any || !op.any_lifted.load(std::memory_order_relaxed)) return;
  site_key(p, true, p.site);
  if (!state().table.find(p.site)) return;
  p.lifted = true;
  State& s = state();
  for (auto& n : p.numbers) {
    if (n.fixed) continue;
    if (n.type == 'f') {
      n.slot = s.floats.size() + s.planned_floats.size();
      double d;
      memcpy(&d, &n.bits[0], 8);
      s.planned_floats.push_back(d);
    } else {
      n.slot = s.ints.size() + s.planned_ints.size();
      s.planned_ints.push_back((int64_t)n.bits[0]);
    }
    p.key[n.word - 1] |= 1ull << 40;
    p.key[n.word] = n.slot;
  }
}

bool plan(Plan& p, Op& op, const IValue* a, Missing& m) {
  p.clear();
  p.key.push_back((uint64_t)Tag::OP);
  p.key.push_back(op.id | (uint64_t)c10::typeMetaToScalarType(c10::get_default_dtype()) << 32);  // factories and integer division read it
  for (int i = 0; i < op.nargs; i++)
    if (!add_argument(p, op, i, a[i], m)) return false;
  if (op.random) {
    static const IValue none;
    p.random = random_state(op.generator >= 0 ? a[op.generator] : none);
    if (p.random->fresh) upload_seed(p.random);
    Node* node = p.random->buffer->node;
    if (!p.random->buffer->pending && !leaf(p.random->buffer, node, m)) return false;
    p.node_words.push_back(p.key.size());
    p.key.push_back((uint64_t)node);
    p.items.push_back({node, -1, p.random->buffer->layout});
  }
  if (!p.numbers.empty()) plan_numbers(p, op);
  p.entry = static_cast<OpEntry*>(state().table.find(p.key));
  if (!p.entry) m.tag = Tag::OP;
  return p.entry;
}

// Everything that an operation gives, or false and what is missing.  Mutex held.
bool attempt(Plan& p, Op& op, const IValue* a, c10::SmallVectorImpl<IValue>& results, Missing& m) {
  if (!plan(p, op, a, m)) return false;
  OpEntry& e = *p.entry;
  if (C10_UNLIKELY(e.unsupported)) return true;
  if (C10_UNLIKELY(&e == state().timed.first)) note_round(state().timed);
  if (C10_UNLIKELY(e.immediate || e.skips != 0 || (e.waits == state().programs.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < e.wait_until)) &&
      !nested && state().tier.load(std::memory_order_relaxed) == State::AUTO && !state().examine) {
    p.leave = !e.immediate && e.skips != 0 ? Leave::SO_FAR : Leave::DECIDED;  // of what so far runs natively more may be worth learning
    if (e.skips != 0) e.skips--;
    m.tag = Tag::OP;
    return false;
  }
  Writes writes;
  for (size_t i = 0; i < e.writes.size(); i++) {
    if (!e.writes[i].node) continue;
    const at::Tensor& t = *p.written[i];
    if (C10_UNLIKELY(!t.sizes().equals(e.writes[i].geom->sizes))) resize_for_overwrite(t, e.writes[i].geom);
    if (!plan_write(t, e.writes[i].node, writes, m)) return false;
  }
  State& s = state();
  for (auto& o : e.outputs) set_producer(o.node, &e);
  for (auto& o : e.writes) set_producer(o.node, &e);
  set_producer(e.next_state, &e);
  for (auto& r : e.returns) {
    switch (r.kind) {
      case Return::ARGUMENT: results.push_back(a[r.index]); break;
      case Return::OTHER: results.push_back(r.other); break;
      case Return::TENSOR: {
        const Output& o = e.outputs[r.index];
        results.push_back(o.node ? make_tensor(o.geom, o.node) : at::Tensor());
        break;
      }
      case Return::LIST: {
        c10::List<at::Tensor> list;
        list.reserve(r.count);
        for (int i = 0; i < r.count; i++) list.push_back(make_tensor(e.outputs[r.index + i].geom, e.outputs[r.index + i].node));
        results.emplace_back(std::move(list));
      }
    }
  }
  commit(writes);
  if (p.random) set_pending(p.random->buffer, e.next_state, p.random->buffer->layout);
  s.recorded++;
  s.log.push_back(op.id);
  if (s.tier.load(std::memory_order_relaxed) == State::AUTO) {
    s.followed.push_back(&e);
    if (!nested) s.prefix = mix(s.prefix, e.signature);
  }
  if (C10_UNLIKELY(s.log.size() >= s.cut_at) && !s.due.load(std::memory_order_relaxed)) s.due.store(2);
  return true;
}

// ---------------------------------------------------------------- misses

IValue to_meta(const IValue& v) {
  auto one = [](const at::Tensor& t) -> at::Tensor {
    if (!t.defined() || !is_lazy(t)) return t;
    return at::empty_strided(t.sizes(), t.strides(), at::TensorOptions(t.scalar_type()).device(c10::kMeta));
  };
  if (v.isTensor()) return one(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const IValue& t : v.toListRef()) list.push_back(one(t.toTensor()));
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& t : v.toListRef()) t.isTensor() && t.toTensor().defined() ? list.push_back(one(t.toTensor())) : list.push_back(std::nullopt);
    return list;
  }
  if (v.isDevice()) return at::Device(c10::kMeta);
  if (v.isGenerator()) return IValue();
  return v;
}

struct MetaEntry final : Entry {
  bool known = false;
  std::vector<Return> returns;       // index and count into `geoms`
  std::vector<const Geom*> geoms;    // null: undefined
  std::vector<const Geom*> written;  // of each written tensor afterwards
};

const Geom* geom_for_output(const at::Tensor& t) {
  const at::DimVector contiguous = c10::contiguous_strides(t.sizes());
  const Geom* g = intern_geom(t.scalar_type(), t.sizes(), t.strides());
  return g->dense ? g : intern_geom(t.scalar_type(), t.sizes(), contiguous);
}

// Torch's own shape function: its error messages, and the sizes, strides and dtypes of the results.
MetaEntry* infer(Op& op, const IValue* a, const Plan& p) {
  Words key;
  site_key(p, false, key);
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    if (auto* found = state().table.find(key)) return static_cast<MetaEntry*>(found);
  }
  auto e = std::make_unique<MetaEntry>();
  Stack s;
  for (int i = 0; i < op.nargs; i++) s.push_back(to_meta(a[i]));
  std::vector<at::Tensor> written;
  for (int i = 0; i < op.nargs; i++) {
    if (!op.args[i].write) continue;
    if (s[i].isTensor() && s[i].toTensor().defined()) written.push_back(s[i].toTensor());
    if (s[i].isTensorList()) for (const IValue& t : s[i].toListRef()) written.push_back(t.toTensor());
  }
  try {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.handle.callBoxed(s);
    e->known = true;
  } catch (const c10::NotImplementedError&) {
  } catch (python_error& error) {
    error.restore();
    // An AttributeError is a mistake in torch's Python shape function (None for an optional bias of an LSTM cell), never the caller's.
    if (!PyErr_ExceptionMatches(PyExc_NotImplementedError) && !PyErr_ExceptionMatches(PyExc_AttributeError)) throw_python_error();
    PyErr_Clear();
  } catch (pybind11::error_already_set& error) {
    if (!error.matches(PyExc_NotImplementedError) && !error.matches(PyExc_AttributeError)) throw;
  }
  std::lock_guard<std::mutex> lock(state().mutex);
  for (auto& t : written) e->written.push_back(intern_geom(t.scalar_type(), t.sizes(), t.strides()));
  if (e->known) {
    for (int r = 0; r < op.nrets; r++) {
      Return made{Return::TENSOR, (int)e->geoms.size(), 1, IValue()};
      if (op.alias[r] >= 0) {
        made.kind = Return::ARGUMENT, made.index = op.alias[r];
      } else if (s[r].isTensor()) {
        e->geoms.push_back(s[r].toTensor().defined() ? geom_for_output(s[r].toTensor()) : nullptr);
      } else if (s[r].isTensorList()) {
        made.kind = Return::LIST, made.count = s[r].toListRef().size();
        for (const IValue& t : s[r].toListRef()) e->geoms.push_back(geom_for_output(t.toTensor()));
      } else {
        made.kind = Return::OTHER, made.other = s[r];
      }
      e->returns.push_back(std::move(made));
    }
  }
  return static_cast<MetaEntry*>(state().table.insert(key, std::move(e)));
}

PyObject* number_object(const Number& n) {
  double d, d1;
  memcpy(&d, &n.bits[0], 8);
  memcpy(&d1, &n.bits[1], 8);
  PyObject* number = n.type == 'i' ? PyLong_FromLongLong((int64_t)n.bits[0]) : n.type == 'f' ? PyFloat_FromDouble(d)
                   : n.type == 'b' ? PyBool_FromLong(n.bits[0]) : PyComplex_FromDoubles(d, d1);
  const char kind[2] = {n.type, 0};
  if (n.slot >= 0) {
    Py_DECREF(number);
    return call("scalar_leaf", Py_BuildValue("(sLi)", kind, (long long)n.slot, n.wrapped ? -1 : (int)n.dtype)).release();
  }
  return n.wrapped ? number : call("constant", Py_BuildValue("(Ni)", number, (int)n.dtype)).release();
}

PyObject* item_object(const Plan& p, size_t& cursor) {
  const Item& item = p.items[cursor++];
  if (item.number >= 0) return number_object(p.numbers[item.number]);
  Py_INCREF(item.node->expr);
  return item.node->expr;
}

PyObject* argument_object(const Op& op, int i, const IValue& v, const Plan& p, size_t& cursor) {
  const ArgSpec& spec = op.args[i];
  if (v.isNone() || spec.kind == ArgSpec::DROP || (v.isTensor() && !v.toTensor().defined())) Py_RETURN_NONE;
  if (spec.kind == ArgSpec::DTYPE) return call("dtype", Py_BuildValue("(L)", (long long)v.toInt())).release();
  if (v.isTensor() || (spec.number && !v.isList())) return item_object(p, cursor);
  if (v.isInt()) return PyLong_FromLongLong(v.toInt());
  if (v.isDouble()) return PyFloat_FromDouble(v.toDouble());
  if (v.isBool()) return PyBool_FromLong(v.toBool());
  if (v.isComplexDouble()) return PyComplex_FromDoubles(v.toComplexDouble().real(), v.toComplexDouble().imag());
  if (v.isString()) return PyUnicode_FromStringAndSize(v.toStringRef().data(), v.toStringRef().size());
  const auto items = v.toListRef();
  Ref tuple(PyTuple_New(items.size()));
  for (size_t k = 0; k < items.size(); k++) {
    const IValue& x = items[k];
    PyObject* o;
    if (x.isNone() || (x.isTensor() && !x.toTensor().defined())) o = Py_NewRef(Py_None);
    else if (x.isTensor() || spec.number) o = item_object(p, cursor);
    else o = x.isInt() ? PyLong_FromLongLong(x.toInt()) : x.isDouble() ? PyFloat_FromDouble(x.toDouble()) : PyBool_FromLong(x.toBool());
    PyTuple_SET_ITEM(tuple.p, k, o);
  }
  return tuple.release();
}

PyObject* geom_or_none(const Geom* g) { return g ? geom_object(g, 0) : Py_NewRef(Py_None); }

// Whether numbers at this place change from trace to trace: then they are fed at run time from now on.
bool lift(Plan& p, Op& op) {
  bool any = false;
  for (auto& n : p.numbers) any |= !n.fixed;
  if (!any || p.lifted) return false;
  Words site, coarse;
  site_key(p, true, site);
  site_key(p, false, coarse);
  std::string values;
  for (auto& n : p.numbers) if (!n.fixed) values.append((const char*)n.bits, 16);
  if (!varying) {
    Ref answer = call("should_lift", Py_BuildValue("(y#y#y#)", (const char*)site.data(), (Py_ssize_t)(site.size() * 8), (const char*)coarse.data(),
                                                   (Py_ssize_t)(coarse.size() * 8), values.data(), (Py_ssize_t)values.size()));
    if (!PyObject_IsTrue(answer.p)) return false;
  }
  std::lock_guard<std::mutex> lock(state().mutex);
  state().table.insert(site, std::make_unique<Entry>());
  op.any_lifted = true;
  return true;
}

Output output_of(PyObject* expr, const Geom* geom) {  // GIL held, mutex not held
  if (expr == Py_None) return {nullptr, nullptr};
  PyObject* dims = nullptr;
  int code = 0;
  Ref described = geom ? Ref(nullptr) : call("describe", Py_BuildValue("(O)", expr));
  if (!geom && !PyArg_ParseTuple(described.p, "O!i", &PyTuple_Type, &dims, &code)) throw_python_error();
  at::DimVector sizes;
  for (Py_ssize_t i = 0; dims && i < PyTuple_GET_SIZE(dims); i++) sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(dims, i)));
  std::lock_guard<std::mutex> lock(state().mutex);
  if (!geom) geom = intern_geom((ScalarType)code, sizes, c10::contiguous_strides(sizes));
  return {intern_node(expr), geom};
}

// What native execution needs of a call, without holding its tensors.
void keep_call(OpEntry& e, const Op& op, const IValue* a, const Plan& p) {
  e.numbers.assign(p.numbers.begin(), p.numbers.end());
  for (auto& item : p.items) e.items.push_back(item);
  size_t cursor = 0;
  auto is_item = [&](const IValue& x) { return x.isTensor() && x.toTensor().defined(); };
  auto take = [&](const ArgSpec& spec) {
    if (e.items[cursor].number < 0 && spec.write_only) e.items[cursor].node = nullptr;
    return e.items[cursor++].number >= 0;
  };
  for (int i = 0; i < op.nargs; i++) {
    const IValue& v = a[i];
    const ArgSpec& spec = op.args[i];
    Argument made;
    if (is_item(v)) {
      made.kind = Argument::ITEM;
      made.value = take(spec) ? v : IValue(at::Tensor());
    } else if (v.isTensorList() || v.isOptionalTensorList()) {
      made.kind = v.isTensorList() ? Argument::TENSORS : Argument::OPTIONAL_TENSORS;
      c10::List<at::Tensor> literals;
      for (const IValue& x : v.toListRef()) {
        made.present.push_back(is_item(x));
        literals.push_back(is_item(x) && take(spec) ? x.toTensor() : at::Tensor());
      }
      made.value = std::move(literals);
    } else if (v.isList() && spec.number) {
      made.kind = Argument::NUMBERS;
      made.value = v;
      cursor += v.toListRef().size();
    } else if (spec.number && (v.isInt() || v.isDouble() || v.isBool() || v.isComplexDouble())) {
      made.kind = Argument::ITEM;
      made.value = v;
      cursor++;
    } else if (v.isDevice()) {
      made.value = at::Device(at::kCPU);
    } else if (!v.isGenerator()) {
      made.value = v;
    }
    e.arguments.push_back(std::move(made));
  }
}

void resolve_op(Op& op, const IValue* a, Plan& p) {  // GIL and the trace's lock held
  if (lift(p, op)) return;
  MetaEntry* meta = infer(op, a, p);
  Ref args(PyTuple_New(op.nargs));
  size_t cursor = 0;
  for (int i = 0; i < op.nargs; i++) PyTuple_SET_ITEM(args.p, i, argument_object(op, i, a[i], p, cursor));
  Ref state_expr(op.random ? item_object(p, cursor) : Py_NewRef(Py_None));
  Ref geoms(meta->known ? PyList_New(0) : Py_NewRef(Py_None)), written(PyList_New(0));
  if (meta->known)
    for (auto* g : meta->geoms) PyList_Append(geoms.p, Ref(geom_or_none(g)).p);
  for (auto* g : meta->written) PyList_Append(written.p, Ref(geom_or_none(g)).p);
  Ref answer = call("miss", Py_BuildValue("(sOOOO)", op.name.c_str(), args.p, state_expr.p, geoms.p, written.p));
  auto e = std::make_unique<OpEntry>();
  e->op = &op;
  e->signature = signature(op, a);
  keep_call(*e, op, a, p);
  if (answer.p == Py_None) {
    e->unsupported = true;
  } else {
    PyObject *returns, *writes, *next;  // [expr | None | [expr]], [expr | None], expr | None
    if (!PyArg_ParseTuple(answer.p, "O!O!O", &PyList_Type, &returns, &PyList_Type, &writes, &next)) throw_python_error();
    Py_ssize_t at = 0;
    for (int r = 0; r < op.nrets; r++) {
      Return made{Return::TENSOR, (int)e->outputs.size(), 1, IValue()};
      if (op.alias[r] >= 0) {
        made.kind = Return::ARGUMENT, made.index = op.alias[r];
      } else if (meta->known && meta->returns[r].kind == Return::OTHER) {
        made = meta->returns[r];
      } else {
        TORCH_CHECK(at < PyList_GET_SIZE(returns), "lazy: the builder of aten::", op.name, " returned too little");
        PyObject* x = PyList_GET_ITEM(returns, at++);
        const bool list = PyList_Check(x);
        made.kind = list ? Return::LIST : Return::TENSOR;
        made.count = list ? PyList_GET_SIZE(x) : 1;
        for (int i = 0; i < made.count; i++) e->outputs.push_back(output_of(list ? PyList_GET_ITEM(x, i) : x, meta->known ? meta->geoms[e->outputs.size()] : nullptr));
      }
      e->returns.push_back(std::move(made));
    }
    for (size_t i = 0; i < p.written.size(); i++) e->writes.push_back(output_of(PyList_GET_ITEM(writes, i), meta->known ? meta->written[i] : nullptr));
    if (op.random) e->next_state = output_of(next, p.random->buffer->layout).node;
  }
  std::lock_guard<std::mutex> lock(state().mutex);
  state().misses++;
  state().table.insert(p.key, std::move(e));
}

// False where the builder cannot express these arguments.
bool record(Op& op, Stack* stack) {
  IValue* a = stack->data() + stack->size() - op.nargs;
  Plan p;
  c10::SmallVector<IValue, 4> results;
  with_tables([&](Missing& m) { return attempt(p, op, a, results, m); },
              [&](const Missing& m) { m.tag == Tag::OP ? resolve_op(op, a, p) : resolve(m); });
  if (C10_UNLIKELY(p.entry->unsupported)) return false;
  torch::jit::drop(*stack, op.nargs);
  for (auto& r : results) stack->push_back(std::move(r));
  return true;
}

enum class Found { YES, NO, UNSUPPORTED };

// Record an operation if the tables know everything about it; where it is not recorded `leave` says whether it is known nevertheless.
Found record_known(Op& op, Stack* stack, Leave& leave) {
  State& s = state();
  IValue* a = stack->data() + stack->size() - op.nargs;
  Plan p;
  c10::SmallVector<IValue, 4> results;
  for (;;) {
    Missing missing;
    {
      std::lock_guard<std::mutex> lock(s.mutex);
      if (C10_LIKELY(!s.in_barrier)) {
        auto once = [&](Missing& m) { return attempt(p, op, a, results, m); };
        if (!try_planned(once, missing)) {
          leave = p.leave;
          return Found::NO;
        }
        break;
      }
    }
    Gil gil;
    TraceLock wait;  // for another thread's barrier
    drain();
    std::lock_guard<std::mutex> lock(s.mutex);
    TORCH_CHECK(!s.in_barrier, "lazy: an operation was recorded while a barrier runs on the same thread, as by a finaliser or a callback");
  }
  if (C10_UNLIKELY(p.entry->unsupported)) return Found::UNSUPPORTED;
  torch::jit::drop(*stack, op.nargs);
  for (auto& r : results) stack->push_back(std::move(r));
  return Found::YES;
}

// ---------------------------------------------------------------- kernels

// The composed operations that have been recorded, by the prefix that ends with them.
std::unordered_set<uint64_t>& learned() {
  static auto* set = new std::unordered_set<uint64_t>();
  return *set;
}
// So often must a trace have begun alike, natively, before more of it is recorded.
constexpr int kSightsToLearn = 2;

// Have the Python part imported, in the background, once the program has run for some time.
void wake() {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point begin = Clock::now();
  static std::atomic<bool> asked{false};
  if (asked.load(std::memory_order_relaxed)) return;
  if (std::chrono::duration<double>(Clock::now() - begin).count() < state().wake_after.load(std::memory_order_relaxed)) return;
  if (asked.exchange(true)) return;
  Gil gil;
  Ref module(PyImport_ImportModule("lazy_torch.awake"));
  if (!module.p) throw_python_error();
  Ref done(PyObject_CallMethod(module.p, "start", nullptr));
  if (!done.p) throw_python_error();
}

void upload_cpu_indices(const Op& op, Stack* stack) {
  for (int i = 0; i < op.nargs; i++) {
    IValue& v = *(stack->end() - op.nargs + i);
    if (!v.isOptionalTensorList()) continue;
    bool any = false;
    for (const IValue& t : v.toListRef()) any |= t.isTensor() && t.toTensor().defined() && t.toTensor().device().is_cpu();
    if (!any) continue;
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& t : v.toListRef()) {
      if (!t.isTensor() || !t.toTensor().defined()) list.push_back(std::nullopt);
      else list.push_back(t.toTensor().to(device()));
    }
    v = std::move(list);
  }
}

// Products and the like are handed tensors whose conjugation or negation is still to be carried out.
void resolve_bits(const Op& op, Stack* stack) {
  for (int i = 0; i < op.nargs; i++) {
    IValue& v = *(stack->end() - op.nargs + i);
    if (!v.isTensor() || op.args[i].write) continue;
    const at::Tensor& t = v.toTensor();
    if (C10_UNLIKELY(t.defined() && (t.is_conj() || t.is_neg()))) v = t.resolve_conj().resolve_neg();
  }
}

// torch hands some products what they write with its bits as well: the operation works on a copy without them, which is then written back.
template <class Run>
bool through_copies(const Op& op, Stack* stack, const Run& run) {
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (int i = 0; i < op.nargs; i++) {
    IValue& v = *(stack->end() - op.nargs + i);
    if (!op.args[i].write || !v.isTensor()) continue;
    const at::Tensor t = v.toTensor();
    if (C10_LIKELY(!t.defined() || !(t.is_conj() || t.is_neg()))) continue;
    copies.emplace_back(t, t.resolve_conj().resolve_neg());
    v = copies.back().second;
  }
  if (C10_LIKELY(copies.empty())) return false;
  const size_t below = stack->size() - op.nargs;
  run();
  for (auto& [written, copy] : copies) {
    written.copy_(copy);
    for (size_t i = below; i < stack->size(); i++)
      if ((*stack)[i].isTensor() && (*stack)[i].toTensor().is_same(copy)) (*stack)[i] = written;
  }
  return true;
}

void check_devices(const c10::OperatorHandle& op, const Stack& stack) {
  const auto& args = op.schema().arguments();
  for (size_t i = 0; i < args.size(); i++) {
    const IValue& v = stack[stack.size() - args.size() + i];
    if (v.isTensor() && v.toTensor().defined() && !is_lazy(v.toTensor()))
      TORCH_CHECK(v.toTensor().device().is_cpu() && v.toTensor().dim() == 0, "Expected all tensors to be on the same device, but found at least two devices, ",
                  device(), " and ", v.toTensor().device(), "! (when checking argument '", args[i].name(), "' in ", op.operator_name().name, ")");
  }
}

// The CPU kernel on host copies: counted and named.
void run_on_cpu(const c10::OperatorHandle& op, Stack* stack, const char* reason) {
  check_devices(op, *stack);
  {
    Gil gil;
    call("note_fallback", Py_BuildValue("(ss)", c10::toString(op.operator_name()).c_str(), reason));
  }
  const auto& args = op.schema().arguments();
  for (size_t i = 0; i < args.size(); i++) {
    IValue& v = *(stack->end() - args.size() + i);
    if (strip_optional(args[i].type())->kind() == c10::TypeKind::GeneratorType) v = at::detail::createCPUGenerator(draw_seed(v));
  }
  at::native::cpu_fallback(op, stack);
}

void fallback(const c10::OperatorHandle& op, Stack* stack) { run_on_cpu(op, stack, "no kernel on the lazy device"); }

// A barrier is due: after an optimizer's step (1), or where the log is long (2).
void cut(int kind) {
  State& s = state();
  std::vector<ArrayPtr> released;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    if (kind == 1 && s.immediate.load() && !s.first) return boundary(released);
    if (kind == 2 && s.immediate.load() && !s.awake.load()) {  // deciding where to cut takes the Python part, which is being imported
      s.cut_at = 2 * s.log.size();
      s.due.store(0);
    }
  }
  if (!s.due.load()) return wake();
  Gil gil;
  call("cut", Py_BuildValue("(i)", kind));
}

// From here to the end of the trace operations run natively, as they come; `decided` says that this is known to be better, `in_vain` that what was
// recorded before is not the whole trace, and that this is not about to be learned.
void diverge(bool decided = false, bool in_vain = false) {
  State& s = state();
  bool pending;
  std::vector<ArrayPtr> released;  // who writes to one of them need not copy it
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    forget_leaves(released);
    pending = s.first;
    s.immediate = true;
    s.watched = s.watched && !decided;
  }
  if (!pending) return;
  const auto begin = std::chrono::steady_clock::now();
  run_pending();
  s.spent += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  if (!in_vain) return;
  std::lock_guard<std::mutex> lock(s.mutex);
  note_in_vain();
}

bool may_learn() {
  if (!state().awake.load()) return wake(), false;
  Gil gil;
  return PyObject_IsTrue(call("may_learn", PyTuple_New(0)).p);
}

constexpr std::chrono::milliseconds kLearnAgainAfter{50};
// Learning goes on later: until then traces that begin like this one run natively from the start.
void wait_for_another_time() {
  std::lock_guard<std::mutex> lock(state().mutex);
  postpone(kLearnAgainAfter);
}

struct Varying {
  explicit Varying(bool they_do) { varying = they_do; }
  ~Varying() { varying = false; }
};
struct Nested {
  Nested() { nested++; }
  ~Nested() { nested--; }
};

struct Kernel final : c10::OperatorKernel {
  Op& op;
  explicit Kernel(Op* o) : op(*o) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, Stack* stack) {
    if (C10_UNLIKELY(through_copies(op, stack, [&] { run(handle, stack); }))) return;
    run(handle, stack);
  }
  void run(const c10::OperatorHandle& handle, Stack* stack) {
    State& s = state();
    one_thread();
    if (C10_UNLIKELY(s.due.load(std::memory_order_relaxed)) && !op.is_zero && !nested) cut(s.due.load());
    if (C10_UNLIKELY(op.cpu_indices)) upload_cpu_indices(op, stack);
    const bool lazy_bits = op.is_clone && ((stack->end() - op.nargs)->toTensor().is_conj() || (stack->end() - op.nargs)->toTensor().is_neg());
    if (C10_UNLIKELY(lazy_bits)) return handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
    resolve_bits(op, stack);
    if (!s.immediate.load(std::memory_order_relaxed)) {
      if (nested || s.tier.load(std::memory_order_relaxed) == State::COMPILED) return run_recorded(handle, stack);
      if (follow(handle, stack)) return;
    }
    if (!run_immediately(op, stack)) run_once_recorded(handle, stack);
  }

 private:
  // Record, asking Python for whatever is not known yet.
  void run_recorded(const c10::OperatorHandle& handle, Stack* stack) {
    int mode = op.mode.load(std::memory_order_relaxed);
    if (C10_UNLIKELY(mode == UNKNOWN)) mode = classify(op);
    if (mode == RECORD && record(op, stack)) return;
    if (op.composite) return handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
    run_on_cpu(handle, stack, mode == RECORD ? "these arguments are not supported" : "no lowering");
  }

  // Record what is known, or worth knowing; otherwise leave the recorded path, and return false.
  bool follow(const c10::OperatorHandle& handle, Stack* stack) {
    State& s = state();
    const int mode = op.mode.load(std::memory_order_relaxed);
    Leave leave = s.tier.load(std::memory_order_relaxed) == State::NATIVE ? Leave::DECIDED : Leave::NO;
    bool wanted = false;
    if (C10_LIKELY(mode == RECORD && leave == Leave::NO)) {
      switch (record_known(op, stack, leave)) {
        case Found::YES: return true;
        case Found::NO: break;
        case Found::UNSUPPORTED: return compose(handle, stack, "these arguments are not supported"), true;
      }
    }
    if (leave == Leave::NO) {
      uint64_t next;
      bool known;
      {
        std::lock_guard<std::mutex> lock(s.mutex);
        next = mix(s.prefix, signature(op, stack->data() + stack->size() - op.nargs));
        known = learned().count(next);
      }
      wanted = !known && times_seen(next) >= kSightsToLearn;
      if (known || (wanted && may_learn())) {
        const auto begin = std::chrono::steady_clock::now();
        const int now = mode == UNKNOWN ? classify(op) : mode;
        if (now == RECORD) {
          Varying these(numbers_vary(next));
          run_recorded(handle, stack);
        } else {
          compose(handle, stack, "no lowering");
          std::lock_guard<std::mutex> lock(s.mutex);
          learned().insert(next);
          s.prefix = next;
        }
        if (!known) {
          s.watched_in_vain = 0;
          s.learning_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        }
        return true;
      }
      if (wanted) wait_for_another_time();
    }
    diverge(leave == Leave::DECIDED, leave == Leave::NO && !wanted);
    return false;
  }

  void compose(const c10::OperatorHandle& handle, Stack* stack, const char* reason) {
    if (!op.composite) return run_on_cpu(handle, stack, reason);
    Nested parts;
    handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
  }

  // In the midst of native execution: what only recording can do is recorded, and run at once.
  void run_once_recorded(const c10::OperatorHandle& handle, Stack* stack) {
    State& s = state();
    if (op.composite) return handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
    s.immediate = false;
    {
      Nested alone;
      run_recorded(handle, stack);
    }
    diverge();
  }
};

// ---------------------------------------------------------------- registration

// Composed of other operations by torch, and never worth a lowering of their own; they stay as they are.
const std::unordered_set<std::string> kLeft = {
    "_to_copy", "contiguous", "empty_like", "new_empty", "new_empty_strided", "empty_permuted", "lift", "lift_fresh", "detach", "detach_", "is_same_size",
    "_has_compatible_shallow_copy_type", "_has_same_storage_numel", "_pin_memory", "pin_memory", "is_pinned", "_lazy_clone", "resize_as_", "set_data",
    "record_stream", "rename_", "data", "_backward", "retain_grad", "requires_grad_", "_version", "output_nr", "is_leaf", "item", "to_dense", "_to_dense",
    "coalesce", "values", "indices", "_values", "_indices", "is_set_to", "_resize_output_", "resize", "copy", "_copy_from", "_copy_from_and_resize", "set"};
const char* const kForeign[] = {"sparse", "quantize", "mkldnn", "nested", "cudnn", "_fw_primal", "_make_dual", "cuda", "miopen", "xnn", "fbgemm", "mps"};

bool wanted(const c10::OperatorName& name, const c10::OperatorHandle& op) {
  using K = c10::DispatchKey;
  if (name.name.rfind("aten::", 0) != 0 || !op.hasSchema()) return false;
  const std::string base = name.name.substr(6);
  if (kLeft.count(base)) return false;
  for (auto* word : kForeign)
    if (base.find(word) != std::string::npos) return false;
  if (op.hasKernelForDispatchKey(K::CompositeImplicitAutograd) || op.hasKernelForDispatchKey(K::PrivateUse1)) return false;
  // The fused cells of LSTM and GRU have no CPU kernel, and torch picks them for devices like this one.
  if (!op.hasKernelForDispatchKey(K::CPU) && !op.hasKernelForDispatchKey(K::CompositeExplicitAutograd) &&
      !op.hasKernelForDispatchKey(K::CompositeExplicitAutogradNonFunctional) && base.rfind("_thnn_fused_", 0) != 0)
    return false;
  if (op.hasTag(at::Tag::inplace_view)) return false;
  bool tensors = false;
  for (auto& a : op.schema().arguments()) {
    const std::string type = a.type()->str();
    tensors |= type.find("Tensor") != std::string::npos || type.find("Device") != std::string::npos;
    if (type.find("Storage") != std::string::npos || type.find("Stream") != std::string::npos) return false;
  }
  for (auto& r : op.schema().returns())
    if (r.alias_info() && !r.alias_info()->isWrite()) return false;  // a view
  return tensors;
}

}  // namespace

void copy_recorded(const at::Tensor& self, const at::Tensor& src) {
  static auto* kernel = new Kernel(copy_op);
  Stack stack{self, src, false};
  kernel->run(copy_op->handle, &stack);
}

void device_mismatch(const Op& op, int arg, const at::Tensor& t) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", device(), " and ", t.device(),
              "! (when checking argument '", op.handle.schema().arguments()[arg].name(), "' in aten::", op.name, ")");
}

void register_operations() {
  static std::vector<c10::RegistrationHandleRAII> registrations;
  auto& dispatcher = c10::Dispatcher::singleton();
  copy_op = make_op(*dispatcher.findSchema({"aten::copy_", ""}));
  for (auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findSchema(name);
    if (!op || !wanted(name, *op)) continue;
    Op& made = *make_op(*op);
    auto boxed = c10::BoxedKernel::makeFromFunctor(std::make_unique<Kernel>(&made));
    auto kernel = direct_kernel(made, boxed).value_or(c10::KernelFunction::makeFromBoxedKernel(boxed));
    registrations.push_back(dispatcher.registerImpl(name, c10::DispatchKey::PrivateUse1, std::move(kernel), std::nullopt, nullptr, "lazy_torch"));
  }
}

void no_sparse(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.operator_name().name, ": sparse tensors do not exist on the lazy device; use .to_dense() before moving a tensor there");
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&no_sparse>()); }
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace lazytorch
