// Attention, scans, random bits and nonzero in terms of products, reductions and shapes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/stablehlo_decompose.h"

namespace neuron::ir::hlo {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// log(e^x + e^y); equal infinities stay.
Op* LogAddExp(Builder& b, Op* x, Op* y) {
  const DType dtype = x->type.dtype;
  Op* difference = b.Unary(OpCode::kAbs, b.Sub(x, y));
  Op* rest = b.Unary(OpCode::kLog1p, b.Unary(OpCode::kExp, b.Unary(OpCode::kNegate, difference)));
  Op* same = b.Broadcast(b.Const(dtype, std::log(2.0)), x->type.dims);
  return b.Add(b.Max(x, y), b.Select(b.Compare("EQ", x, y), same, rest));
}

// A product of matrices [B, G, m, k] and [B, G, k, n], the contracted dimension of each given.
Op* MatMul(Builder& b, Op* x, int64_t x_dim, Op* y, int64_t y_dim, DType dtype) {
  const Dims& p = x->type.dims;
  const Dims& q = y->type.dims;
  const Dims dims{p[0], p[1], p[static_cast<size_t>(5 - x_dim)], q[static_cast<size_t>(5 - y_dim)]};
  return b.graph().Add(OpCode::kDotGeneral, {dtype, dims}, {x, y},
                       {{"lhs_batch", Dims{0, 1}},
                        {"rhs_batch", Dims{0, 1}},
                        {"lhs_contract", Dims{x_dim}},
                        {"rhs_contract", Dims{y_dim}}});
}

// One attention: q [B,H,L,E] beside k [B,Hk,S,E] and v [B,Hk,S,Ev]. Inside, the H / Hk heads that
// share a k are rows of one matrix: [B, Hk, (H / Hk) L, ..].
struct AttentionParts {
  Builder& b;
  const Op& op;
  DType wide;
  Op *q, *k, *v, *bias = nullptr, *random = nullptr;
  int64_t batch, heads, length, keys;

  AttentionParts(Builder& builder, const Op& from, const std::vector<Op*>& x, size_t first)
      : b(builder), op(from), q(x[first]), k(x[first + 1]), v(x[first + 2]) {
    const bool drops = op.Has("dropout");
    if (drops) random = x.back();
    if (x.size() - (drops ? 1 : 0) == first + 4) bias = x[first + 3];
    batch = q->type.dims[0], heads = q->type.dims[1], length = q->type.dims[2];
    keys = k->type.dims[2];
    wide = q->type.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  }

  Op* Grouped(Op* x) {  // [B,H,L,n] -> [B,Hk,(H/Hk)L,n]
    const int64_t groups = k->type.dims[1];
    return b.Reshape(
        x, {batch, groups, heads / std::max<int64_t>(1, groups) * length, x->type.dims[3]});
  }
  Op* Ungrouped(Op* x) { return b.Reshape(x, {batch, heads, length, x->type.dims[3]}); }
  Dims scores() const { return {batch, heads, length, keys}; }
  Op* Fill(double value) { return b.Broadcast(b.Const(wide, value), scores()); }

  // q k^T * scale + bias, -inf where a key is masked.
  Op* Scores() {
    Op* s = Ungrouped(MatMul(b, Grouped(q), 3, k, 3, wide));
    s = b.Mul(s, b.Const(wide, op.Double("scale")));
    if (bias != nullptr && bias->type.dtype == DType::kBool) {
      s = b.Select(b.Broadcast(bias, scores()), s, Fill(-kInfinity));
    } else if (bias != nullptr) {
      s = b.Add(s, b.Broadcast(b.Convert(bias, wide), scores()));
    }
    if (op.Int("is_causal") == 1) {
      Op* row = b.Iota(DType::kI32, scores(), 2);
      Op* column = b.Iota(DType::kI32, scores(), 3);
      s = b.Select(b.Compare("GE", row, column), s, Fill(-kInfinity));
    }
    return s;
  }

  // 1 / (1 - dropout) for keys that are kept, 0 for the others; null without dropout. Row r's key j
  // is word j % 4 of counter offset + r * ceil(S / 4) + j / 4.
  Op* Keep() {
    if (random == nullptr) return nullptr;
    const double p = op.Double("dropout");
    const int64_t rows = batch * heads * length, counters = (keys + 3) / 4;
    const auto part = [&](int64_t i) { return b.Reshape(b.Slice(random, 0, i, i + 1), {}); };
    std::vector<Op*> words;
    for (int64_t word = 0; word < 4; ++word) {
      Op* bits = b.graph().Add(OpCode::kRngBits, {DType::kU32, {rows * counters}},
                               {part(0), part(1)}, {{"word", word}});
      words.push_back(b.Reshape(bits, {rows, counters, 1}));
    }
    Op* bits = b.Reshape(b.Concatenate(words, 2), {rows, counters * 4});
    bits = b.Reshape(b.Slice(bits, 1, 0, keys), scores());
    const auto threshold = static_cast<int64_t>(std::min(p * 0x1p32, 0x1p32 - 1));
    Op* kept = b.Compare("GE", bits, b.ConstInt(DType::kU32, threshold));
    return b.Select(kept, Fill(p < 1 ? 1 / (1 - p) : 0), Fill(0));
  }
};

Op* Forward(AttentionParts parts) {
  Builder& b = parts.b;
  Op* s = parts.Scores();
  Op* max = b.Reduce(s, "maximum", {3}, true);
  // A row that keeps nothing: its exponentials are 0, and so is its result.
  Op* empty = b.Compare("EQ", max, b.Const(parts.wide, -kInfinity));
  Op* e = b.Unary(OpCode::kExp, b.Sub(s, b.Select(empty, b.Const(parts.wide, 0), max)));
  Op* total = b.Reduce(e, "add", {3}, true);
  if (parts.op.code == OpCode::kAttentionLse) {
    Op* lse = b.Add(max, b.Unary(OpCode::kLog, total));
    return b.Convert(b.Reshape(lse, parts.op.type.dims), DType::kF32);
  }
  if (Op* keep = parts.Keep()) e = b.Mul(e, keep);
  Op* weights = b.Convert(e, parts.v->type.dtype);
  Op* sum = parts.Ungrouped(MatMul(b, parts.Grouped(weights), 3, parts.v, 2, parts.wide));
  Op* none = b.Compare("EQ", total, b.Const(parts.wide, 0));
  Op* out = b.Select(none, b.Const(parts.wide, 0), b.Div(sum, total));
  return b.Convert(out, parts.op.type.dtype);
}

// With P the probabilities, F the factors of dropout and D the row sums of grad * result:
// dS = P * (grad v^T * F - D) * scale.
Op* Gradient(AttentionParts parts, Op* grad, Op* result, Op* lse) {
  Builder& b = parts.b;
  const std::string& of = parts.op.String("of");
  const DType wide = parts.wide, narrow = parts.q->type.dtype;
  Op* s = parts.Scores();
  Op* row = b.Reshape(b.Convert(lse, wide), {parts.batch, parts.heads, parts.length, 1});
  Op* empty = b.Compare("EQ", row, b.Const(wide, -kInfinity));
  Op* p = b.Unary(OpCode::kExp, b.Sub(s, b.Select(empty, b.Const(wide, 0), row)));
  Op* keep = parts.Keep();
  Op* grouped = parts.Grouped(grad);
  if (of == "v") {
    Op* weights = b.Convert(keep != nullptr ? b.Mul(p, keep) : p, narrow);
    return b.Convert(MatMul(b, parts.Grouped(weights), 2, grouped, 2, wide), parts.op.type.dtype);
  }
  Op* dp = parts.Ungrouped(MatMul(b, grouped, 3, parts.v, 3, wide));
  if (keep != nullptr) dp = b.Mul(dp, keep);
  Op* delta = b.Reduce(b.Mul(b.Convert(grad, wide), b.Convert(result, wide)), "add", {3}, true);
  Op* ds = b.Mul(b.Mul(p, b.Sub(dp, delta)), b.Const(wide, parts.op.Double("scale")));
  Op* narrowed = parts.Grouped(b.Convert(ds, narrow));
  Op* out = of == "q" ? parts.Ungrouped(MatMul(b, narrowed, 3, parts.k, 2, wide))
                      : MatMul(b, narrowed, 2, parts.Grouped(parts.q), 2, wide);
  return b.Convert(out, parts.op.type.dtype);
}

}  // namespace

Op* DecomposeAttention(Builder& b, const Op& op, const std::vector<Op*>& x) {
  if (op.code != OpCode::kAttentionGrad) return Forward({b, op, x, 0});
  return Gradient({b, op, x, 3}, x[0], x[1], x[2]);
}

// Each step combines every element with the one `step` before it: after log2(n) steps with all.
Op* DecomposeCumulative(Builder& b, const Op& op, Op* x) {
  const std::string& kind = op.String("kind");
  const auto dim = static_cast<size_t>(op.Int("dim"));
  const bool half = op.type.dtype == DType::kF16 || op.type.dtype == DType::kBF16;
  Op* out = half ? b.Convert(x, DType::kF32) : x;
  const DType dtype = out->type.dtype;
  Op* identity = kind == "multiply"  ? b.Const(dtype, 1)
                 : kind == "add"     ? b.Const(dtype, 0)
                 : kind == "minimum" ? b.Limit(dtype, true)
                                     : b.Limit(dtype, false);
  const int64_t size = op.type.dims[dim];
  for (int64_t step = 1; step < size; step *= 2) {
    Dims low(op.type.dims.size(), 0), high = low;
    low[dim] = step;
    high[dim] = -step;
    Op* before = b.Pad(out, identity, low, high);
    out = kind == "add"        ? b.Add(before, out)
          : kind == "multiply" ? b.Mul(before, out)
          : kind == "maximum"  ? b.Max(before, out)
          : kind == "minimum"  ? b.Min(before, out)
                               : LogAddExp(b, before, out);
  }
  return b.Convert(out, op.type.dtype);
}

namespace {

constexpr DType kWord = DType::kU32;

// The upper 32 bits of x * y, from products of 16-bit halves: no 64-bit numbers are needed.
Op* MultiplyHigh(Builder& b, Op* x, uint32_t y) {
  const auto number = [&](int64_t n) { return b.ConstInt(kWord, n); };
  const auto low = [&](Op* v) { return b.Binary(OpCode::kAnd, v, number(0xFFFF)); };
  const auto high = [&](Op* v) { return b.Binary(OpCode::kShiftRightLogical, v, number(16)); };
  Op* y_low = number(y & 0xFFFF);
  Op* y_high = number(y >> 16);
  Op* x_low = low(x);
  Op* x_high = high(x);
  Op* t = b.Add(b.Mul(x_high, y_low), high(b.Mul(x_low, y_low)));
  Op* u = b.Add(b.Mul(x_low, y_high), low(t));
  return b.Add(b.Add(b.Mul(x_high, y_high), high(t)), high(u));
}

}  // namespace

// J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011: Philox 4x32-10.
Op* DecomposeRng(Builder& b, const Op& op, const std::vector<Op*>& x) {
  const int64_t count = op.type.NumElements();
  if (count > std::numeric_limits<uint32_t>::max()) {
    NEURON_THROW(kUnsupported,
                 "StableHLO's form of rng_bits counts elements in 32 bits: ", ToString(op));
  }
  const Dims dims{count};
  const auto low = [&](Op* v) { return b.Convert(v, kWord); };
  const auto high = [&](Op* v) {
    return b.Convert(b.Binary(OpCode::kShiftRightLogical, v, b.ConstInt(v->type.dtype, 32)), kWord);
  };
  const auto spread = [&](Op* v) { return b.Broadcast(v, dims); };
  Op* first = spread(low(x[1]));
  Op* c0 = b.Add(first, b.Iota(kWord, dims, 0));
  Op* carry = b.Convert(b.Compare("LT", c0, first), kWord);
  Op* zero = spread(b.ConstInt(kWord, 0));
  Op* c[4] = {c0, b.Add(spread(high(x[1])), carry), zero, zero};
  Op* key0 = low(x[0]);
  Op* key1 = high(x[0]);
  const auto mix = [&](Op* p, Op* q, Op* key) {
    return b.Binary(OpCode::kXor, b.Binary(OpCode::kXor, p, q), spread(key));
  };
  constexpr uint32_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    Op* high0 = MultiplyHigh(b, c[0], kMul0);
    Op* low0 = b.Mul(c[0], b.ConstInt(kWord, kMul0));
    Op* high1 = MultiplyHigh(b, c[2], kMul1);
    Op* low1 = b.Mul(c[2], b.ConstInt(kWord, kMul1));
    Op* next[4] = {mix(high1, c[1], key0), low1, mix(high0, c[3], key1), low0};
    std::copy(next, next + 4, c);
    key0 = b.Add(key0, b.ConstInt(kWord, 0x9E3779B9));
    key1 = b.Add(key1, b.ConstInt(kWord, 0xBB67AE85));
  }
  return b.Reshape(c[op.Int("word")], op.type.dims);
}

// The positions in order, those of zeros behind all others; then the first n.
Op* DecomposeNonzero(Builder& b, const Op& op, Op* x) {
  const Dims dims = x->type.dims;
  const int64_t count = x->type.NumElements(), wanted = op.type.dims[0];
  if (dims.empty() || wanted == 0) {
    return b.Reshape(b.Broadcast(b.ConstInt(DType::kI64, 0), {wanted * op.type.dims[1]}),
                     op.type.dims);
  }
  Op* flat = b.Reshape(b.Convert(x, DType::kBool), {count});
  Op* position = b.Iota(DType::kI64, {count}, 0);
  Op* key = b.Select(flat, position, b.Add(position, b.ConstInt(DType::kI64, count)));
  Op* sorted = b.graph().Add(OpCode::kSort, key->type, {key},
                             {{"dim", int64_t{0}}, {"descending", int64_t{0}}});
  Op* rest = b.Slice(sorted, 0, 0, wanted);
  std::vector<Op*> columns(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    Op* size = b.Broadcast(b.ConstInt(DType::kI64, dims[d]), {wanted});
    columns[d] = b.Reshape(b.Binary(OpCode::kRemainder, rest, size), {wanted, 1});
    rest = b.Div(rest, size);
  }
  return b.Concatenate(columns, 1);
}

}  // namespace neuron::ir::hlo
