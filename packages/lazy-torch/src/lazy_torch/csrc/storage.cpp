// Storages as values: geometries, the table, reading and writing through views, transfers, and the native ATen operations on metadata.
#include "common.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/conj.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

namespace lazytorch {

State& state() {
  static State* s = new State();  // never destroyed: tensors may outlive the interpreter
  return *s;
}

// ---------------------------------------------------------------- table

uint64_t hash_words(const uint64_t* words, size_t count) {
  uint64_t h = count;
  for (size_t i = 0; i < count; i++) h = mix(h, words[i]);
  return h;
}

Entry* Table::find(const Words& key) const {
  const uint64_t h = hash_words(key.data(), key.size());
  const size_t mask = slots_.size() - 1;
  for (size_t i = h & mask;; i = (i + 1) & mask) {
    Entry* e = slots_[i].second;
    if (!e) return nullptr;
    if (slots_[i].first == h && e->key.size() == key.size() && !memcmp(e->key.data(), key.data(), key.size() * 8)) return e;
  }
}

Entry* Table::insert(const Words& key, std::unique_ptr<Entry> entry) {
  if (Entry* found = find(key)) return found;
  if (2 * ++count_ > slots_.size()) {
    auto old = std::move(slots_);
    slots_.assign(old.size() * 2, {0, nullptr});
    for (auto& slot : old)
      if (slot.second) place(slot.second);
  }
  entry->key.assign(key.begin(), key.end());
  entry->hash = hash_words(key.data(), key.size());
  place(entry.get());
  return entry.release();
}

void Table::place(Entry* entry) {
  const size_t mask = slots_.size() - 1;
  size_t i = entry->hash & mask;
  while (slots_[i].second) i = (i + 1) & mask;
  slots_[i] = {entry->hash, entry};
}

void Table::clear() {
  for (auto& slot : slots_) delete slot.second;
  slots_.assign(1 << 12, {0, nullptr});
  count_ = 0;
}

// ---------------------------------------------------------------- geometries

static bool is_dense(IntArrayRef sizes, IntArrayRef strides) {
  c10::SmallVector<std::pair<int64_t, int64_t>, 6> dims;
  for (size_t i = 0; i < sizes.size(); i++) {
    if (sizes[i] == 0) return true;
    if (sizes[i] > 1) dims.emplace_back(strides[i], sizes[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

const Geom* intern_geom(ScalarType dtype, IntArrayRef sizes, IntArrayRef strides) {
  uint64_t h = mix((uint64_t)dtype, hash_words((const uint64_t*)sizes.data(), sizes.size()));
  h = mix(h, hash_words((const uint64_t*)strides.data(), strides.size()));
  auto& geoms = state().geoms;
  auto range = geoms.equal_range(h);
  for (auto it = range.first; it != range.second; ++it) {
    const Geom* g = it->second.get();
    if (g->dtype == dtype && sizes.equals(g->sizes) && strides.equals(g->strides)) return g;
  }
  auto made = std::make_unique<Geom>(Geom{dtype, sizes.vec(), strides.vec(), c10::multiply_integers(sizes), is_dense(sizes, strides)});
  return geoms.emplace(h, std::move(made))->second.get();
}

bool has_geom(const c10::TensorImpl* tensor, const Geom* geom) {
  const auto sizes = tensor->sizes();
  const size_t n = sizes.size();
  if (n != geom->sizes.size() || c10::typeMetaToScalarType(tensor->dtype()) != geom->dtype) return false;
  const int64_t *s = sizes.data(), *t = tensor->strides().data();
  for (size_t i = 0; i < n; i++)
    if (s[i] != geom->sizes[i] || (t[i] != geom->strides[i] && s[i] != 1 && geom->numel != 0)) return false;
  return true;
}

static const Geom* geom_of(const c10::TensorImpl* t) { return intern_geom(c10::typeMetaToScalarType(t->dtype()), t->sizes(), t->strides()); }

static const Geom* flat_geom(const Buffer* buffer, ScalarType dtype) {
  if (buffer->nbytes % c10::elementSize(dtype)) dtype = ScalarType::Byte;
  const int64_t n = buffer->nbytes / c10::elementSize(dtype), one = 1;
  return intern_geom(dtype, {n}, {one});
}

// ---------------------------------------------------------------- buffers

static const uintptr_t kTag = 1ull << 52;  // makes the address of a buffer one that faults when dereferenced
static void delete_buffer(void* p) { release(static_cast<Buffer*>(p)); }
static c10::DataPtr data_ptr_of(Buffer* b) { return {(void*)((uintptr_t)b | kTag), b, &delete_buffer, device()}; }

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    auto* b = new Buffer();
    b->nbytes = nbytes;
    return data_ptr_of(b);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "lazy: the memory of a lazy storage has no address; use copy_()"); }
};
static Allocator* allocator() {
  static auto* a = new Allocator();
  return a;
}

Buffer* buffer_of(const at::Tensor& tensor) {
  const auto& data = tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr();
  if (C10_LIKELY(data.get_deleter() == &delete_buffer)) return static_cast<Buffer*>(data.get_context());
  TORCH_CHECK((uintptr_t)data.get() & kTag, "lazy: a tensor on the lazy device without a lazy storage");  // a blob made from data_ptr()
  return (Buffer*)((uintptr_t)data.get() & ~kTag);
}

bool is_lazy(const at::Tensor& t) { return t.defined() && t.device().type() == kDeviceType; }

void retain(Buffer* b) { b->refs.fetch_add(1, std::memory_order_relaxed); }

static void unlink(Buffer* b) {
  auto& s = state();
  (b->prev ? b->prev->next : s.first) = b->next;
  (b->next ? b->next->prev : s.last) = b->prev;
  b->prev = b->next = nullptr;
  b->pending = false;
  s.live--;
}

static std::atomic<size_t> deferred_count{0};

void release(Buffer* b) {
  if (b->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (b->pending) {
    std::lock_guard<std::mutex> lock(state().mutex);
    unlink(b);
  }
  if (b->born == state().trace.load(std::memory_order_relaxed)) state().fresh.fetch_sub(1, std::memory_order_relaxed);
  delete b;
  if (C10_UNLIKELY(deferred_count.load(std::memory_order_relaxed)) && Py_IsInitialized() && PyGILState_Check()) drain();
}

void set_pending(Buffer* b, Node* node, const Geom* layout) {
  auto& s = state();
  b->array.reset();
  b->node = node;
  b->layout = layout;
  b->epoch = s.epoch;
  if (b->born == s.trace) b->born = 0, s.fresh--;
  if (b->pending) return;
  b->pending = true;
  b->prev = s.last;
  (s.last ? s.last->next : s.first) = b;
  s.last = b;
  s.live++;
}

void set_array(Buffer* b, ArrayPtr array, const Geom* layout) {
  if (b->pending) unlink(b);
  if (b->born == state().trace) b->born = 0, state().fresh--;
  b->node = nullptr;
  b->epoch = ~0ull;
  b->layout = layout;
  b->array = std::move(array);
}

at::Tensor make_bare_tensor(ScalarType dtype, Buffer* b) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), b->nbytes, data_ptr_of(b), allocator(), true);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                  c10::scalarTypeToTypeMeta(dtype));
}

at::Tensor make_tensor(const Geom* geom, Buffer* b) {
  auto t = make_bare_tensor(geom->dtype, b);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(geom->sizes, geom->strides);
  return t;
}

at::Tensor make_tensor(const Geom* geom, Node* node) {
  auto* b = new Buffer();
  b->nbytes = geom->nbytes();
  set_pending(b, node, geom);
  return make_tensor(geom, b);
}

// ---------------------------------------------------------------- reading and writing through views

static bool lookup(const Words& key, Node*& node) {
  Entry* e = state().table.find(key);
  if (!e) return false;
  node = e->node;
  set_producer(node, e);
  return true;
}

bool zeros(const Geom* geom, Node*& node, Missing& m) {
  m.key = {(uint64_t)Tag::ZEROS, (uint64_t)geom};
  if (lookup(m.key, node)) return true;
  m.tag = Tag::ZEROS;
  m.layout = geom;
  return false;
}

bool leaf(Buffer* b, Node*& node, Missing& m) {
  auto& s = state();
  if (b->epoch == s.epoch && b->node) {
    node = b->node;
    return true;
  }
  m.slot = s.leaves.size();
  m.key = {(uint64_t)Tag::LEAF, m.slot, (uint64_t)b->layout};
  if (!lookup(m.key, node)) {
    m.tag = Tag::LEAF;
    m.layout = b->layout;
    return false;
  }
  if (!b->array->object) b->array->layout = b->layout;
  s.leaves.push_back(b->array);
  b->node = node;
  b->epoch = s.epoch;
  return true;
}

// The value of a whole storage, in its layout.
static bool value_of(Buffer* b, Node*& node, Missing& m) {
  if (b->pending) {
    node = b->node;
    return true;
  }
  return b->array ? leaf(b, node, m) : zeros(b->layout, node, m);
}

// A layout for bytes that nobody has read as a value so far.
static void choose_layout(Buffer* b, const Geom* own, bool whole) {
  if (!b->layout) b->layout = whole ? own : flat_geom(b, own->dtype);
}

// Where a view of a part of a storage is read or written at other offsets in other traces, the offset is no part of the program but a number that
// is fed at run time.  `m.site` is what such a place is known by; the answer is the slot of the offset, or -1.
static int64_t moving_slot(Tag tag, Node* base, const Geom* layout, const Geom* view, int64_t offset, Missing& m) {
  m.site.clear();
  if (layout->dtype != view->dtype || c10::multiply_integers(view->sizes) == c10::multiply_integers(layout->sizes)) return -1;
  m.site = {(uint64_t)Tag::PLACE, (uint64_t)tag, base->skeleton, (uint64_t)layout, (uint64_t)view};
  State& s = state();
  if (!s.any_moving || !s.table.find(m.site)) return -1;
  s.planned_ints.push_back(offset);
  return s.ints.size() + s.planned_ints.size() - 1;
}

static bool strided_read(Node* base, const Geom* layout, const Geom* view, int64_t offset, Node*& node, Missing& m) {
  if (const int64_t slot = moving_slot(Tag::READ, base, layout, view, offset, m); C10_UNLIKELY(slot >= 0)) {
    m.key = {(uint64_t)Tag::READ_AT, (uint64_t)base, (uint64_t)layout, (uint64_t)view, (uint64_t)slot};
    if (lookup(m.key, node)) return true;
    m.tag = Tag::READ_AT, m.base = base, m.layout = layout, m.view = view, m.slot = slot;
    return false;
  }
  m.key = {(uint64_t)Tag::READ, (uint64_t)base, (uint64_t)layout, (uint64_t)view, (uint64_t)offset};
  if (lookup(m.key, node)) return true;
  m.tag = Tag::READ, m.base = base, m.layout = layout, m.view = view, m.offset = offset;
  return false;
}

static bool strided_write(Node* base, Node* update, const Geom* layout, const Geom* view, int64_t offset, Node*& node, Missing& m) {
  if (const int64_t slot = moving_slot(Tag::WRITE, base, layout, view, offset, m); C10_UNLIKELY(slot >= 0)) {
    m.key = {(uint64_t)Tag::WRITE_AT, (uint64_t)base, (uint64_t)update, (uint64_t)layout, (uint64_t)view, (uint64_t)slot};
    if (lookup(m.key, node)) return true;
    m.tag = Tag::WRITE_AT, m.base = base, m.update = update, m.layout = layout, m.view = view, m.slot = slot;
    return false;
  }
  m.key = {(uint64_t)Tag::WRITE, (uint64_t)base, (uint64_t)update, (uint64_t)layout, (uint64_t)view, (uint64_t)offset};
  if (lookup(m.key, node)) return true;
  m.tag = Tag::WRITE, m.base = base, m.update = update, m.layout = layout, m.view = view, m.offset = offset;
  return false;
}

bool read(const at::Tensor& tensor, Value& value, Missing& m) {
  auto* t = tensor.unsafeGetTensorImpl();
  Buffer* b = buffer_of(tensor);
  const int64_t offset = t->storage_offset();
  if (C10_LIKELY(b->layout && offset == 0 && has_geom(t, b->layout))) {
    value.geom = b->layout;
    return value_of(b, value.node, m);
  }
  const Geom* own = geom_of(t);
  value.geom = own;
  const bool whole = offset == 0 && own->dense && own->nbytes() == b->nbytes;
  choose_layout(b, own, whole);
  if (b->layout == own && whole) return value_of(b, value.node, m);
  Node* base;
  if (!value_of(b, base, m) || !strided_read(base, b->layout, own, offset, value.node, m)) return false;
  if (whole && own->dtype != b->layout->dtype) set_pending(b, value.node, own);  // the same bytes, from now on kept in the dtype that is used
  return true;
}

bool plan_write(const at::Tensor& tensor, Node* node, Writes& writes, Missing& m) {
  auto* t = tensor.unsafeGetTensorImpl();
  Buffer* b = buffer_of(tensor);
  const int64_t offset = t->storage_offset();
  if (t->numel() == 0) return true;
  const Geom* layout = b->layout;
  Node* base = nullptr;
  for (auto& w : writes)
    if (w.buffer == b) base = w.node, layout = w.layout;
  if (C10_LIKELY(layout && offset == 0 && has_geom(t, layout))) {
    writes.push_back({b, node, layout});
    return true;
  }
  const Geom* own = geom_of(t);
  if (offset == 0 && own->dense && own->nbytes() == b->nbytes) {
    writes.push_back({b, node, own});
    return true;
  }
  if (!layout) layout = b->layout = flat_geom(b, own->dtype);
  if (!base && !value_of(b, base, m)) return false;
  Node* result;
  if (!strided_write(base, node, layout, own, offset, result, m)) return false;
  writes.push_back({b, result, layout});
  return true;
}

void commit(const Writes& writes) {
  for (auto& w : writes) set_pending(w.buffer, w.node, w.layout);
}

// Make room; what is there stays, the rest reads as zeros.
static void grow(const c10::Storage& storage, size_t nbytes) {
  auto* b = static_cast<Buffer*>(storage.data_ptr().get_context());
  if (nbytes <= b->nbytes) return;
  with_tables([&](Missing& m) {
    if (!b->pending && !b->array) {
      b->layout = nullptr;
      b->nbytes = nbytes;
      return true;
    }
    if (!b->pending && b->array->host) {
      at::Tensor bytes = at::zeros({(int64_t)nbytes}, at::TensorOptions(at::kByte));
      memcpy(bytes.mutable_data_ptr(), b->array->host.data(), b->nbytes);
      set_array(b, c10::make_intrusive<Array>(bytes.storage()), nullptr);
      b->nbytes = nbytes;
      return true;
    }
    const Geom* layout = b->layout;
    const ScalarType dtype = nbytes % c10::elementSize(layout->dtype) ? ScalarType::Byte : layout->dtype;
    const int64_t before = b->nbytes / c10::elementSize(dtype), after = nbytes / c10::elementSize(dtype), one = 1;
    const Geom *old_flat = intern_geom(dtype, {before}, {one}), *new_flat = intern_geom(dtype, {after}, {one});
    Node *base, *flat, *blank, *result;
    if (!value_of(b, base, m) || !strided_read(base, layout, old_flat, 0, flat, m) || !zeros(new_flat, blank, m) ||
        !strided_write(blank, flat, new_flat, old_flat, 0, result, m))
      return false;
    set_pending(b, result, new_flat);
    b->nbytes = nbytes;
    return true;
  });
  storage.unsafeGetStorageImpl()->set_nbytes(nbytes);
}

void resize_for_overwrite(const at::Tensor& tensor, const Geom* geom) {
  auto* t = tensor.unsafeGetTensorImpl();
  Buffer* b = buffer_of(tensor);
  const size_t need = geom->nbytes() + t->storage_offset() * c10::elementSize(geom->dtype);
  if (need > b->nbytes) {
    if (t->storage_offset() == 0) {
      if (b->pending) unlink(b);
      b->array.reset();
      b->node = nullptr;
      b->layout = nullptr;
    }
    b->nbytes = need;
    t->unsafe_storage().unsafeGetStorageImpl()->set_nbytes(need);
  }
  t->set_sizes_and_strides(geom->sizes, geom->strides);
}

// ---------------------------------------------------------------- transfers

bool pull(const ArrayPtr& array) {
  Gil gil;
  if (array->host) return true;
  Ref host = call("host", Py_BuildValue("(O)", array->object));
  TORCH_CHECK(THPVariable_Check(host.p), "lazy: host() must return a tensor");
  at::Tensor base = THPVariable_Unpack(host.p);
  const Geom* layout = array->layout;
  const bool as_is = base.is_contiguous() && base.storage_offset() == 0 && IntArrayRef(layout->strides).equals(c10::contiguous_strides(layout->sizes));
  if (!as_is) {
    if (base.scalar_type() != layout->dtype) base = base.view(layout->dtype);
    auto laid = at::empty_strided(layout->sizes, layout->strides, base.options());
    laid.copy_(base);
    base = laid;
  }
  std::lock_guard<std::mutex> lock(state().mutex);
  array->host = base.storage();
  array->shared = as_is;
  return true;
}

PyObject* push(Array& array, const Geom* layout) {
  if (array.object) return array.object;
  const auto options = at::TensorOptions(layout->dtype);
  at::Tensor laid = alias(at::empty_strided(layout->sizes, layout->strides, options.device(c10::kMeta)), array.host);
  at::Tensor plain = laid.contiguous();
  Ref tensor(THPVariable_Wrap(plain));
  array.shared |= plain.storage().is_alias_of(array.host);
  array.object = call("lend", Py_BuildValue("(O)", tensor.p)).release();
  array.layout = layout;
  return array.object;
}

at::Tensor to_cpu(const at::Tensor& tensor) {
  auto* t = tensor.unsafeGetTensorImpl();
  if (t->numel() == 0) return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
  Buffer* b = buffer_of(tensor);
  std::vector<ArrayPtr> released;
  for (;;) {
    ArrayPtr array;
    {
      std::lock_guard<std::mutex> lock(state().mutex);
      if (!b->pending) {
        if (!b->array) return at::zeros(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));  // never written
        array = b->array;
        if (array->host) {
          note_read(b, released);
          return alias(tensor, array->host);
        }
      }
    }
    if (array) pull(array);
    else {
      Gil gil;
      flush("a host read", true);
    }
  }
}

ArrayPtr upload(const at::Tensor& cpu, IntArrayRef strides) {
  const auto dtype = cpu.scalar_type();
  TORCH_CHECK_TYPE(dtype <= ScalarType::ComplexDouble ? dtype != ScalarType::ComplexHalf
                                                      : dtype == ScalarType::Bool || dtype == ScalarType::BFloat16 || dtype == ScalarType::Float8_e5m2 ||
                                                            dtype == ScalarType::Float8_e4m3fn || dtype == ScalarType::UInt16 || dtype == ScalarType::UInt32 ||
                                                            dtype == ScalarType::UInt64,
                   dtype, " does not exist on the lazy device");
  at::Tensor bytes = at::empty_strided(cpu.sizes(), strides, at::TensorOptions(cpu.scalar_type()));
  at::AutoDispatchBelowADInplaceOrView guard;
  bytes.copy_(cpu);
  return c10::make_intrusive<Array>(bytes.storage());
}

static at::Tensor from_cpu(const at::Tensor& cpu) {
  const at::DimVector strides = c10::contiguous_strides(cpu.sizes());
  auto array = upload(cpu, strides);
  std::lock_guard<std::mutex> lock(state().mutex);
  const Geom* geom = intern_geom(cpu.scalar_type(), cpu.sizes(), strides);
  auto* b = new Buffer();
  b->nbytes = geom->nbytes();
  set_array(b, std::move(array), geom);
  return make_tensor(geom, b);
}

// Without the lazy conjugate and negative bits of `src`, but with the values that `self`, read with its own bits, must show.
static at::Tensor without_bits(const at::Tensor& self, const at::Tensor& src) {
  at::Tensor plain = src;
  if (plain.is_conj()) plain = at::conj(plain);
  if (plain.is_neg()) plain = at::_neg_view(plain);
  if (src.is_conj() != self.is_conj() && plain.is_complex()) plain = at::conj_physical(plain);
  if (src.is_neg() != self.is_neg()) plain = at::neg(plain);
  return plain;
}

static void upload_into(const at::Tensor& self, const at::Tensor& cpu) {
  auto* t = self.unsafeGetTensorImpl();
  Buffer* b = buffer_of(self);
  const bool whole = t->storage_offset() == 0 && self.nbytes() == b->nbytes && self.is_non_overlapping_and_dense();
  const at::DimVector contiguous = c10::contiguous_strides(cpu.sizes());
  if (!whole && state().immediate.load()) {
    ensure_bytes(self);
    at::Tensor part;
    {
      std::lock_guard<std::mutex> lock(state().mutex);
      make_writable(b, true);
      part = alias(self, b->array->host);
    }
    part.copy_(cpu);
    return;
  }
  ArrayPtr array = upload(cpu, whole ? self.strides() : IntArrayRef(contiguous));
  Buffer* piece = nullptr;
  with_tables([&](Missing& m) {
    const Geom* own = geom_of(t);
    if (whole) {
      set_array(b, array, own);
      return true;
    }
    if (!piece) {
      piece = new Buffer();
      piece->nbytes = own->nbytes();
      set_array(piece, array, intern_geom(own->dtype, own->sizes, c10::contiguous_strides(own->sizes)));
    }
    Node* node;
    Writes writes;
    if (!leaf(piece, node, m) || !plan_write(self, node, writes, m)) return false;
    commit(writes);
    return true;
  });
  if (piece) release(piece);
}

static at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool) {
  if (self.is_same(src)) return self;
  at::AutoDispatchBelowADInplaceOrView guard;
  if (!is_lazy(self)) {
    at::Tensor host = to_cpu(src);
    if (src.is_conj()) host = at::conj(host);
    if (src.is_neg()) host = at::_neg_view(host);
    return self.copy_(host);
  }
  if (is_lazy(src)) {
    copy_recorded(self, without_bits(self, src));
    return self;
  }
  TORCH_CHECK(src.device().is_cpu() && src.layout() == c10::kStrided, "lazy: cannot copy from a ", src.layout(), " tensor on ", src.device(),
              " to ", self.device(), "; convert it to a dense CPU tensor first");
  if (self.numel() == 0) {
    (void)src.expand(self.sizes());
    return self;
  }
  if (src.sizes().equals(self.sizes())) {
    upload_into(self, without_bits(self, src.to(self.scalar_type())));
  } else {
    copy_recorded(self, from_cpu(without_bits(self, src.to(self.scalar_type()))));
  }
  return self;
}

static at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  at::Tensor out = dst;
  out.copy_(src, non_blocking);
  return dst;
}
static at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  at::Tensor out = dst;
  if (!out.sizes().equals(src.sizes())) out.resize_(src.sizes());
  out.copy_(src);
  return dst;
}
static at::Scalar local_scalar_dense(const at::Tensor& self) { return to_cpu(self).item(); }

// ---------------------------------------------------------------- factories and metadata

static void check_options(std::optional<c10::Layout> layout, std::optional<c10::Device> dev, std::optional<bool> pin) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::kStrided) == c10::kStrided, "lazy: only strided tensors exist on the lazy device, not ", *layout);
  TORCH_CHECK(!dev || dev->index() <= 0, "lazy: there is one lazy device, lazy:0; got ", *dev);
  TORCH_CHECK(!pin.value_or(false), "lazy: only dense CPU tensors can be pinned");
}

static at::Tensor empty(c10::SymIntArrayRef size, std::optional<ScalarType> dtype, std::optional<c10::Layout> layout, std::optional<c10::Device> dev,
                        std::optional<bool> pin, std::optional<c10::MemoryFormat> format) {
  check_options(layout, dev, pin);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}
static at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<ScalarType> dtype,
                                std::optional<c10::Layout> layout, std::optional<c10::Device> dev, std::optional<bool> pin) {
  check_options(layout, dev, pin);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}
static at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  std::optional<int64_t> start;
  if (offset) start = offset->expect_int();
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
}
static at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size)); }
static at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

static const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<c10::MemoryFormat> format) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* t = self.unsafeGetTensorImpl();
  if (sizes.equals(t->sizes()) && !format) return self;
  grow(t->unsafe_storage(), (c10::multiply_integers(sizes) + t->storage_offset()) * self.itemsize());
  t->set_sizes_contiguous(sizes);
  if (format && *format != c10::MemoryFormat::Preserve) t->empty_tensor_restride(*format);
  return self;
}

static at::Tensor& set_storage(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  TORCH_CHECK(source.device().type() == kDeviceType, "lazy: set_() of a lazy tensor to a storage on ", source.device());
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto strides = C10_AS_INTARRAYREF_SLOW(stride);
  const at::DimVector contiguous = c10::contiguous_strides(sizes);
  if (strides.data() == nullptr || strides.size() != sizes.size()) strides = contiguous;
  const int64_t start = offset.expect_int();
  TORCH_CHECK(start >= 0, "Tensor: invalid storage offset ", start);
  auto* t = self.unsafeGetTensorImpl();
  size_t need = c10::multiply_integers(sizes) ? start + 1 : 0;
  for (size_t i = 0; need && i < sizes.size(); i++) need += (sizes[i] - 1) * strides[i];
  grow(source, need * self.itemsize());
  t->set_storage_keep_dtype(std::move(source));
  t->set_sizes_and_strides(sizes, strides, start);
  return self;
}
static at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const int64_t n = source.nbytes() / self.itemsize();
  return set_storage(self, std::move(source), 0, c10::SymIntArrayRef({n}), c10::SymIntArrayRef({c10::SymInt(1)}));
}
static at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(), source.sym_strides());
}
static at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, allocator()->allocate(0), allocator(), true);
  return set_storage(self, none, 0, c10::SymIntArrayRef({c10::SymInt(0)}), {});
}

// Operations on metadata only, for which the CPU kernels serve.
static void on_cpu_keys(const c10::OperatorHandle& op, torch::jit::Stack* stack) { op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack); }

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  auto* b = static_cast<Buffer*>(storage.data_ptr().get_context());
  if (nbytes > b->nbytes) return grow(storage, nbytes);
  if (nbytes == 0) {
    std::lock_guard<std::mutex> lock(state().mutex);
    if (b->pending) unlink(b);
    b->array.reset();
    b->node = nullptr;
    b->layout = nullptr;
    b->nbytes = 0;
  }
  storage.unsafeGetStorageImpl()->set_nbytes(nbytes);
}

void register_allocator() { c10::SetAllocator(kDeviceType, allocator()); }

// ---------------------------------------------------------------- what is released later

static std::mutex& deferred_mutex = *new std::mutex();  // neither is destroyed: tensors may outlive the interpreter
static std::vector<std::pair<PyObject*, c10::Storage>>& deferred = *new std::vector<std::pair<PyObject*, c10::Storage>>();

void Array::let_go() {
  if (!object && !shared) return;
  if (shared) view.reset();  // the memory may only be released under the GIL
  std::lock_guard<std::mutex> lock(deferred_mutex);
  deferred.emplace_back(object, shared ? std::move(host) : c10::Storage());
  deferred_count.store(deferred.size(), std::memory_order_relaxed);
  object = nullptr;
}

void drain() {
  if (!deferred_count.load(std::memory_order_relaxed)) return;
  std::vector<std::pair<PyObject*, c10::Storage>> now;
  {
    std::lock_guard<std::mutex> lock(deferred_mutex);
    now.swap(deferred);
    deferred_count.store(0, std::memory_order_relaxed);
  }
  for (auto& [object, host] : now) Py_XDECREF(object);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("copy_", copy_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  for (auto* name : {"unfold", "view_as_real", "view_as_complex", "view.dtype", "alias", "is_set_to"}) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_cpu_keys>());
}

}  // namespace lazytorch
