// Where the elements of NumPy's arrays lie: large ones begin at a cache line.
//
// NumPy takes what malloc gives, which begins 16 bytes into a line as often as not. Vector instructions then read across lines: a product
// of a matrix with a vector takes a tenth longer; and XLA, whose buffers begin at lines, copies such an array instead of taking it as it is.
// Source: NEP 49, data allocation strategies.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "state.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace lazy_numpy {
namespace {

constexpr size_t line = 64;
constexpr size_t smallest = 4096;         // below, what comes before the line would be much, and time is NumPy's own cache of blocks
constexpr size_t huge_from = 4u << 20;    // as NumPy does: pages of 2 MiB are asked for
constexpr uintptr_t seal = 0x6c617a796e70;

// Lies before the first element.
struct Header {
  void* raw;
  size_t size;
  uintptr_t mark;  // the last: where malloc keeps a size, so that no block of its own ever bears one
};
constexpr size_t extra = line + sizeof(Header);

PyDataMemAllocator plain;
bool huge = true;

Header* header(void* data) { return static_cast<Header*>(data) - 1; }

uintptr_t mark_of(void* data) { return reinterpret_cast<uintptr_t>(data) ^ seal; }

bool is_aligned_here(void* data) { return (reinterpret_cast<uintptr_t>(data) % line) == 0 && header(data)->mark == mark_of(data); }

void* place(void* raw, size_t size) {
  if (raw == nullptr) return nullptr;
  void* data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(raw) + extra - 1) / line * line);
  *header(data) = {raw, size, mark_of(data)};
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (huge && size >= huge_from) {
    const uintptr_t page = 4096, begin = (reinterpret_cast<uintptr_t>(raw) + page - 1) / page * page;
    madvise(reinterpret_cast<void*>(begin), reinterpret_cast<uintptr_t>(data) + size - begin, MADV_HUGEPAGE);  // a wish: no error matters
  }
#endif
  return data;
}

void* take(void*, size_t size) {
  if (size < smallest || size > SIZE_MAX - extra) return plain.malloc(plain.ctx, size);
  return place(plain.malloc(plain.ctx, size + extra), size);
}

void* take_cleared(void*, size_t count, size_t each) {
  if (each == 0 || count > (SIZE_MAX - extra) / each || count * each < smallest) return plain.calloc(plain.ctx, count, each);
  return place(plain.calloc(plain.ctx, 1, count * each + extra), count * each);
}

void give(void*, void* data, size_t size) {
  if (data == nullptr || !is_aligned_here(data)) return plain.free(plain.ctx, data, size);
  Header* of = header(data);
  of->mark = 0;
  plain.free(plain.ctx, of->raw, of->size + extra);
}

void* resize(void* context, void* data, size_t size) {
  if (data == nullptr || !is_aligned_here(data)) return plain.realloc(plain.ctx, data, size);
  void* moved = take(context, size);
  if (moved == nullptr) return nullptr;
  const size_t old = header(data)->size;
  std::memcpy(moved, data, old < size ? old : size);
  give(context, data, old);
  return moved;
}

PyDataMem_Handler handler{"lazy_numpy_aligned", 1, {nullptr, take, take_cleared, resize, give}};

}  // namespace

PyObject* align_memory(PyObject*, PyObject* use_huge_pages) {
  const int truth = PyObject_IsTrue(use_huge_pages);
  if (truth < 0) return nullptr;
  Owned current(PyDataMem_GetHandler());
  if (!current) return nullptr;
  auto* found = static_cast<PyDataMem_Handler*>(PyCapsule_GetPointer(current.get(), "mem_handler"));
  if (found == nullptr) return nullptr;
  if (std::strcmp(found->name, "default_allocator") != 0) Py_RETURN_FALSE;  // somebody has chosen another
  plain = found->allocator;
  huge = truth != 0;
  Owned capsule(PyCapsule_New(&handler, "mem_handler", nullptr));
  Owned before(capsule ? PyDataMem_SetHandler(capsule.get()) : nullptr);
  if (!before) return nullptr;
  Py_RETURN_TRUE;
}

}  // namespace lazy_numpy
