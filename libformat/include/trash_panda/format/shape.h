#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>

namespace trash_panda::format {

/// Numbers by dimension, row-major, outermost first; empty for a scalar.
///
/// A vector that keeps up to two of them in itself: a checkpoint may have a hundred thousand
/// tensors, nearly all of them vectors and matrices, and none of those shall cost an allocation.
class Shape {
 public:
  using value_type = std::uint64_t;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = value_type&;
  using const_reference = const value_type&;
  using iterator = value_type*;
  using const_iterator = const value_type*;
  using reverse_iterator = std::reverse_iterator<iterator>;

  Shape() = default;
  /// So many dimensions, all zero.
  explicit Shape(std::size_t count) { resize(count); }
  Shape(std::initializer_list<value_type> dimensions)
      : Shape(dimensions.begin(), dimensions.end()) {}
  Shape(const_iterator begin, const_iterator end) { append(begin, end); }
  Shape(const Shape& other) { append(other.begin(), other.end()); }
  Shape(Shape&& other) noexcept { take(other); }
  Shape& operator=(const Shape& other) {
    if (this != &other) {
      clear();
      append(other.begin(), other.end());
    }
    return *this;
  }
  Shape& operator=(Shape&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~Shape() { release(); }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] iterator begin() { return data(); }
  [[nodiscard]] iterator end() { return data() + size_; }
  [[nodiscard]] const_iterator begin() const { return data(); }
  [[nodiscard]] const_iterator end() const { return data() + size_; }
  [[nodiscard]] reverse_iterator rbegin() { return reverse_iterator(end()); }
  [[nodiscard]] reverse_iterator rend() { return reverse_iterator(begin()); }
  [[nodiscard]] value_type* data() { return is_inline() ? inline_.data() : heap_; }
  [[nodiscard]] const value_type* data() const { return is_inline() ? inline_.data() : heap_; }
  [[nodiscard]] value_type& operator[](std::size_t dimension) { return data()[dimension]; }
  [[nodiscard]] const value_type& operator[](std::size_t dimension) const {
    return data()[dimension];
  }
  [[nodiscard]] value_type& front() { return *begin(); }
  [[nodiscard]] const value_type& front() const { return *begin(); }
  [[nodiscard]] value_type& back() { return *(end() - 1); }
  [[nodiscard]] const value_type& back() const { return *(end() - 1); }

  void clear() { size_ = 0; }
  void push_back(value_type dimension) {
    if (size_ == capacity_) {
      grow(std::size_t{size_} + 1);
    }
    data()[size_++] = dimension;
  }
  /// New dimensions behind the others are `added`.
  void resize(std::size_t count, value_type added = 0);

  friend bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a, b); }
  friend std::strong_ordering operator<=>(const Shape& a, const Shape& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr std::uint32_t kInlineMax = 2;

  [[nodiscard]] bool is_inline() const { return capacity_ == kInlineMax; }
  void append(const_iterator begin, const_iterator end);
  void grow(std::size_t count);
  void release() {
    if (!is_inline()) {
      std::allocator<value_type>().deallocate(heap_, capacity_);
    }
  }
  /// Leaves `other` empty; what this one had is gone before.
  void take(Shape& other) {
    size_ = other.size_;
    capacity_ = other.capacity_;
    if (other.is_inline()) {
      inline_ = other.inline_;
    } else {
      heap_ = other.heap_;
    }
    other.size_ = 0;
    other.capacity_ = kInlineMax;
  }

  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = kInlineMax;  ///< More than kInlineMax: on the heap.
  union {
    std::array<value_type, kInlineMax> inline_ = {};
    value_type* heap_;
  };
};

/// "[4096, 1024]", "[]"; for messages, so more dimensions than any tensor has are cut.
[[nodiscard]] std::string to_string(const Shape& shape);

}  // namespace trash_panda::format
