/* reduce.c: element-wise arithmetic. The order of operands is the caller's, so results have the
 * same bits in every run. Integers wrap around as on a GPU; halves are rounded after every step. */
#include "half.h"
#include "internal.h"

typedef void (*reduce_fn)(void *dst, const void *a, const void *b, size_t n);

#define REDUCE(name, type, load, store, expression)                     \
  static void name(void *dst, const void *a, const void *b, size_t n) { \
    const type *x_ = a, *y_ = b;                                        \
    type *z_ = dst;                                                     \
    for (size_t i = 0; i < n; i++) {                                    \
      __typeof__(load(x_[i])) x = load(x_[i]), y = load(y_[i]);         \
      z_[i] = store(expression);                                        \
    }                                                                   \
  }
#define SAME(v) (v)
#define REDUCE_ALL(name, type, load, store, sum, product) \
  REDUCE(name##_sum, type, load, store, sum)              \
  REDUCE(name##_prod, type, load, store, product)         \
  REDUCE(name##_max, type, load, store, x > y ? x : y)    \
  REDUCE(name##_min, type, load, store, x < y ? x : y)
/* Sums and products of integers are computed unsigned: overflow is defined and wraps. */
#define REDUCE_INT(name, type, wide) \
  REDUCE_ALL(name, type, SAME, (type), (wide)x + (wide)y, (wide)x * (wide)y)
#define REDUCE_FLOAT(name, type, load, store) REDUCE_ALL(name, type, load, store, x + y, x * y)

REDUCE_INT(i8, int8_t, uint32_t)
REDUCE_INT(u8, uint8_t, uint32_t)
REDUCE_INT(i32, int32_t, uint32_t)
REDUCE_INT(u32, uint32_t, uint32_t)
REDUCE_INT(i64, int64_t, uint64_t)
REDUCE_INT(u64, uint64_t, uint64_t)
REDUCE_FLOAT(f16, uint16_t, gs_fp16_to_float, gs_fp16_from_float)
REDUCE_FLOAT(f32, float, SAME, SAME)
REDUCE_FLOAT(f64, double, SAME, SAME)
REDUCE_FLOAT(b16, uint16_t, gs_bf16_to_float, gs_bf16_from_float)

#define ROW(name) {name##_sum, name##_prod, name##_max, name##_min}
static const reduce_fn reduce_table[][4] = {ROW(i8),  ROW(u8),  ROW(i32), ROW(u32), ROW(i64),
                                            ROW(u64), ROW(f16), ROW(f32), ROW(f64), ROW(b16)};

void gs_reduce(ncclDataType_t dtype, ncclRedOp_t op, void *dst, const void *a, const void *b,
               size_t n) {
  reduce_table[dtype][op == ncclAvg ? ncclSum : op](dst, a, b, n);
}

/* Runs `statement` with `type` and pointers `to`, `from` of it; halves go through float. */
#define MAP(type, load, store, expression)         \
  {                                                \
    type *to = dst;                                \
    const type *from = src;                        \
    for (size_t i = 0; i < n; i++) {               \
      __typeof__(load(from[i])) x = load(from[i]); \
      to[i] = store(expression);                   \
    }                                              \
    return;                                        \
  }
#define MAP_SWITCH(integer, floating)                               \
  switch (dtype) {                                                  \
    case ncclInt8:                                                  \
      MAP(int8_t, SAME, (int8_t), integer)                          \
    case ncclUint8:                                                 \
      MAP(uint8_t, SAME, (uint8_t), integer)                        \
    case ncclInt32:                                                 \
      MAP(int32_t, SAME, (int32_t), integer)                        \
    case ncclUint32:                                                \
      MAP(uint32_t, SAME, (uint32_t), integer)                      \
    case ncclInt64:                                                 \
      MAP(int64_t, SAME, (int64_t), integer)                        \
    case ncclUint64:                                                \
      MAP(uint64_t, SAME, (uint64_t), integer)                      \
    case ncclFloat16:                                               \
      MAP(uint16_t, gs_fp16_to_float, gs_fp16_from_float, floating) \
    case ncclFloat32:                                               \
      MAP(float, SAME, SAME, floating)                              \
    case ncclFloat64:                                               \
      MAP(double, SAME, SAME, floating)                             \
    case ncclBfloat16:                                              \
      MAP(uint16_t, gs_bf16_to_float, gs_bf16_from_float, floating) \
    default:                                                        \
      return;                                                       \
  }

void gs_divide(ncclDataType_t dtype, void *dst, size_t n, int divisor) {
  const void *src = dst;
  MAP_SWITCH(x / (__typeof__(x))divisor, x / (__typeof__(x))divisor)
}

void gs_multiply(ncclDataType_t dtype, void *dst, const void *src, size_t n, double scalar) {
  MAP_SWITCH((uint64_t)x * (uint64_t)(int64_t)scalar, x * (__typeof__(x))scalar)
}

double gs_read_scalar(ncclDataType_t dtype, const void *scalar) {
  switch (dtype) {
    case ncclInt8:
      return *(const int8_t *)scalar;
    case ncclUint8:
      return *(const uint8_t *)scalar;
    case ncclInt32:
      return *(const int32_t *)scalar;
    case ncclUint32:
      return *(const uint32_t *)scalar;
    case ncclInt64:
      return (double)*(const int64_t *)scalar;
    case ncclUint64:
      return (double)*(const uint64_t *)scalar;
    case ncclFloat16:
      return gs_fp16_to_float(*(const uint16_t *)scalar);
    case ncclFloat32:
      return *(const float *)scalar;
    case ncclFloat64:
      return *(const double *)scalar;
    case ncclBfloat16:
      return gs_bf16_to_float(*(const uint16_t *)scalar);
    default:
      return 0;
  }
}
