// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Search for the parameters that a forward's result depends on.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <iterator>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ddp::libtorch::detail {

template <typename T, typename = void>
struct IsRange : std::false_type {};
template <typename T>
struct IsRange<T, std::void_t<decltype(std::begin(std::declval<const T&>()))>> : std::true_type {};
template <typename T, typename = void>
struct IsTuple : std::false_type {};
template <typename T>
struct IsTuple<T, std::void_t<decltype(std::tuple_size<T>::value)>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Appends the tensors in what a forward returned: a tensor, or tuples, pairs, optionals, vectors and maps of such.
// Returns false if it contains anything else.
template <typename Output>
bool append_tensors(const Output& output, std::vector<at::Tensor>& tensors) {
  if constexpr (std::is_convertible_v<const Output&, const at::Tensor&>) {
    tensors.push_back(output);
    return true;
  } else if constexpr (std::is_arithmetic_v<Output>) {
    return true;
  } else if constexpr (IsOptional<Output>::value) {
    return !output || append_tensors(*output, tensors);
  } else if constexpr (IsTuple<Output>::value) {
    return std::apply([&](const auto&... member) { return (append_tensors(member, tensors) & ...); }, output);
  } else if constexpr (IsRange<Output>::value) {
    bool all = true;
    for (const auto& member : output) all &= append_tensors(member, tensors);
    return all;
  } else {
    return false;
  }
}

// All nodes of the graph that a backward from these tensors would visit; a parameter's is its AccumulateGrad.
inline std::unordered_set<const torch::autograd::Node*> reachable(const std::vector<at::Tensor>& outputs) {
  using torch::autograd::Node;
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> next;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) next.push_back(node);
  };
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) visit(torch::autograd::impl::gradient_edge(output).function.get());
  }
  while (!next.empty()) {
    const Node* node = next.back();
    next.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  return seen;
}

}  // namespace ddp::libtorch::detail
