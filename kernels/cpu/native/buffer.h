// Aligned memory that grows and is kept from step to step.
#pragma once
#include <cstdlib>

namespace palmette {

template <class T> struct Buffer {
  T* data = nullptr;
  size_t size = 0;
  // At least `count` of T; what was in it is lost where it grows.
  T* need(size_t count) {
    if (count > size) {
      std::free(data);
      size = count + count / 4;
      data = static_cast<T*>(std::aligned_alloc(64, (size * sizeof(T) + 127) / 64 * 64));
    }
    return data;
  }
  ~Buffer() { std::free(data); }
};

}  // namespace palmette
