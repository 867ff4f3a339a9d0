/* resolve.c: where the real function is.
 *
 * The order is what the loader would have done without the hook (its global scope, then the
 * caller's own libraries), and then what it couldn't see:
 *   GREYHOUND_NCCL_LIB, RTLD_NEXT (another preload tool, or an NCCL that the executable links to),
 *   the caller's object (NCCL linked statically into it), libnccl.so.2 or librccl.so.1 wherever it
 *   is loaded, any object that defines the function.
 * An NCCL's `ncclX` is left for its `pncclX`, which no preload object can stand in front of.
 * A result inside the hook is refused. Different callers may have different NCCLs in one process,
 * so answers are kept by caller.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "hook.h"

#define CALLERS 16

static const char *const names[GH_FN_COUNT] = {
#define GH_NAME(name, ...) [GH_FN_##name] = "nccl" #name,
    GH_DATA_FUNCTIONS(GH_NAME) GH_BIRTH_FUNCTIONS(GH_NAME) GH_COMM_FUNCTIONS(GH_NAME)
        GH_OTHER_FUNCTIONS(GH_NAME)
#undef GH_NAME
#define GH_NAME(name) [GH_FN_cuda##name] = "cuda" #name,
            GH_CUDA_FUNCTIONS(GH_NAME)
#undef GH_NAME
};

/* One caller's answers; a row is published by `caller_count`, a function by its pointer. */
struct caller {
  uintptr_t low, high;
  void *real[GH_FN_COUNT];
};
static struct caller callers[CALLERS];
static uint32_t caller_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef void *(*dlsym_fn)(void *, const char *);
typedef void *(*dlopen_fn)(const char *, int);

static void *loader_function(const char *name) {
  struct gh_object object;
  void *found = NULL;
  if (gh_elf_named("libc.so", &object)) found = gh_elf_symbol(&object, name);
  if (!found && gh_elf_named("libdl.so", &object)) found = gh_elf_symbol(&object, name);
  return found;
}

void *gh_next(const char *symbol) {
  dlsym_fn find = (dlsym_fn)loader_function("dlsym");
  if (!find) return NULL;
  void *found = find(RTLD_NEXT, symbol);
  return found; /* not a tail call: dlsym looks at who called it */
}

static bool is_self(const void *function) {
  const struct gh_object *self = gh_elf_self();
  return (uintptr_t)function >= self->low && (uintptr_t)function < self->high;
}

/* pncclX where the object is an NCCL, else X itself. */
static void *in_object(const struct gh_object *object, const char *name) {
  char profiled[64] = "p";
  void *found = NULL;
  if (*name == 'n') {
    strncat(profiled, name, sizeof profiled - 2);
    found = gh_elf_symbol(object, profiled);
  }
  if (!found) found = gh_elf_symbol(object, name);
  return found && !is_self(found) ? found : NULL;
}

/* The library that the user named, loaded once; NULL if none or not loadable. */
static void *named_library(const char *name) {
  static bool said;
  const char *path = gh_env_text(GH_ENV_NCCL_LIB);
  if (!path || *name != 'n') return NULL;
  dlopen_fn open_library = (dlopen_fn)loader_function("dlopen");
  dlsym_fn find = (dlsym_fn)loader_function("dlsym");
  void *handle = open_library && find ? open_library(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!handle) {
    if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
      gh_log("%s='%s' can't be loaded and is ignored", gh_env_name(GH_ENV_NCCL_LIB), path);
    return NULL;
  }
  char profiled[64] = "p";
  strncat(profiled, name, sizeof profiled - 2);
  void *found = find(handle, profiled);
  if (!found) found = find(handle, name);
  return found && !is_self(found) ? found : NULL;
}

static void *in_global_scope(const char *name) {
  struct gh_object object;
  void *found = gh_next(name);
  if (!found || is_self(found)) return NULL;
  if (!gh_elf_containing((uintptr_t)found, &object)) return found;
  void *profiled = in_object(&object, name);
  return profiled ? profiled : found;
}

/* NCCL inside the caller's own object. Only pncclX counts: a tool preloaded before the hook calls
 * it from an object that defines ncclX too, and calling that back would never end. */
static void *in_caller(const char *name, uintptr_t address) {
  struct gh_object caller;
  char profiled[64] = "p";
  if (is_self((void *)address) || !gh_elf_containing(address, &caller)) return NULL;
  if (*name == 'c') return in_object(&caller, name);
  strncat(profiled, name, sizeof profiled - 2);
  return gh_elf_symbol(&caller, profiled);
}

static void *in_library(const char *name) {
  static const char *const nccl[] = {"libnccl.so", "librccl.so", NULL};
  static const char *const cuda[] = {"libcudart.so", NULL};
  struct gh_object object;
  for (const char *const *prefix = *name == 'n' ? nccl : cuda; *prefix; prefix++) {
    void *found = gh_elf_named(*prefix, &object) ? in_object(&object, name) : NULL;
    if (found) return found;
  }
  return NULL;
}

/* The first object that has it, but no tool in front of the hook (see in_caller). */
static void *anywhere(const char *name, uintptr_t caller) {
  struct gh_object object;
  char profiled[64] = "p";
  strncat(profiled, name, sizeof profiled - 2);
  if (*name == 'n' && gh_elf_defining(profiled, &object)) return gh_elf_symbol(&object, profiled);
  if (!gh_elf_defining(name, &object) || (caller >= object.low && caller < object.high))
    return NULL;
  return in_object(&object, name);
}

static void *resolve(const char *name, uintptr_t caller) {
  void *found = named_library(name);
  if (!found) found = in_global_scope(name);
  if (!found) found = in_caller(name, caller);
  if (!found) found = in_library(name);
  if (!found) found = anywhere(name, caller);
  return found;
}

static struct caller *known_caller(uintptr_t address) {
  uint32_t n = __atomic_load_n(&caller_count, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < n; i++)
    if (address >= callers[i].low && address < callers[i].high) return &callers[i];
  return NULL;
}

void gh_resolve_lock(bool take) {
  if (take)
    pthread_mutex_lock(&lock);
  else
    pthread_mutex_unlock(&lock);
}

/* NULL when the table is full: such callers are resolved each time. Code outside any object (made
 * at run time) shares the row of address 0. */
static struct caller *add_caller(uintptr_t address) {
  struct gh_object object;
  if (!gh_elf_containing(address, &object)) { /* outside the lock: it takes the loader's */
    address = 0;
    object = (struct gh_object){.low = 0, .high = 1};
  }
  pthread_mutex_lock(&lock);
  struct caller *row = known_caller(address);
  if (!row && caller_count < CALLERS) {
    row = &callers[caller_count];
    row->low = object.low;
    row->high = object.high;
    __atomic_store_n(&caller_count, caller_count + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return row;
}

/* The library of a remembered function must stay: unloaded and loaded again, it would be elsewhere.
 */
static void pin(const void *function) {
  struct gh_object object;
  dlopen_fn open_library = (dlopen_fn)loader_function("dlopen");
  if (open_library && gh_elf_containing((uintptr_t)function, &object) && *object.name)
    open_library(object.name, RTLD_LAZY | RTLD_NOLOAD);
}

void *gh_resolve_optional(enum gh_fn fn, uintptr_t caller) {
  struct caller *row = known_caller(caller);
  if (GH_UNLIKELY(!row)) row = add_caller(caller);
  void *real = row ? __atomic_load_n(&row->real[fn], __ATOMIC_ACQUIRE) : NULL;
  if (GH_UNLIKELY(!real)) {
    real = resolve(names[fn], caller);
    if (row && real) {
      pin(real);
      __atomic_store_n(&row->real[fn], real, __ATOMIC_RELEASE);
    }
  }
  return real;
}

void *gh_real(enum gh_fn fn, uintptr_t caller) {
  static bool said[GH_FN_COUNT];
  void *real = gh_resolve_optional(fn, caller);
  if (GH_UNLIKELY(!real) && !__atomic_exchange_n(&said[fn], true, __ATOMIC_RELAXED))
    gh_log("%s isn't in any library of this process; name yours in GREYHOUND_NCCL_LIB", names[fn]);
  return real;
}
