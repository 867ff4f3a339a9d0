/* dtype.c: sizes of the data types. */
#include "internal.h"

size_t gs_dtype_bytes(ncclDataType_t dtype) {
  static const unsigned char bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  unsigned index = (unsigned)dtype;
  return index < ncclNumTypes ? bytes[index] : 0;
}

/* fp8 is moved, but not reduced. */
bool gs_dtype_reduces(ncclDataType_t dtype) {
  return gs_dtype_bytes(dtype) > 0 && dtype != ncclFloat8e4m3 && dtype != ncclFloat8e5m2;
}
