/* half.h: fp16 and bf16 by hand, so that any C compiler does. Rounding is to nearest even. */
#ifndef GREYHOUND_STANDIN_HALF_H
#define GREYHOUND_STANDIN_HALF_H

#include <stdint.h>
#include <string.h>

static inline float gs_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t gs_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float gs_bf16_to_float(uint16_t half) { return gs_from_bits((uint32_t)half << 16); }

static inline uint16_t gs_bf16_from_float(float value) {
  uint32_t bits = gs_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u); /* quiet NaN */
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* The exponent is moved by a multiplication, which also normalises subnormals. */
static inline float gs_fp16_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = (uint32_t)(half & 0x7fffu) << 13;
  float value = gs_from_bits(rest) * 0x1p112f;
  uint32_t bits = gs_to_bits(value);
  if ((half & 0x7c00u) == 0x7c00u) bits = rest | 0x7f800000u; /* infinity, NaN */
  return gs_from_bits(bits | sign);
}

static inline uint16_t gs_fp16_from_float(float value) {
  uint32_t bits = gs_to_bits(value), sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (bits >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to infinity */
  if (bits < 0x38800000u) { /* subnormal: the addition rounds at the right place */
    uint32_t shifted = gs_to_bits(gs_from_bits(bits) + 0.5f) - 0x3f000000u;
    return (uint16_t)(sign | shifted);
  }
  return (uint16_t)(sign | ((bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13));
}

#endif
