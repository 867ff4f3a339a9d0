/* resolve.c: where the real function is.
 *
 * The order is what the loader would have done without the hook (its global scope, then the
 * caller's own libraries), and then what it couldn't see:
 *   GREYHOUND_NCCL_LIB, RTLD_NEXT (another preload tool, or an NCCL that the executable links to),
 *   the caller's object (NCCL linked statically into it), the libraries that it needs, a library of
 *   the usual name wherever it is loaded, any object that defines the function.
 * CUDA runtimes of several versions may be in one process. Their symbols carry the version, and the
 * caller's object says which it was linked to; the hook's own symbols carry none, so that the
 * loader binds all callers to them, and the version is minded here.
 * An NCCL's `ncclX` is left for its `pncclX`, which no preload object can stand in front of.
 * A result inside the hook is refused. Answers are kept by caller.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "hook.h"

#define CALLERS 64

static const char *const names[GH_FN_COUNT] = {/* NCCL's as pncclX */
#define GH_NAME(name, ...) [GH_FN_##name] = "pnccl" #name,
                                               GH_DATA_FUNCTIONS(GH_NAME)
                                                   GH_BIRTH_FUNCTIONS(GH_NAME)
                                                       GH_COMM_FUNCTIONS(GH_NAME)
                                                           GH_OTHER_FUNCTIONS(GH_NAME)
#undef GH_NAME
#define GH_NAME(name) [GH_FN_cuda##name] = "cuda" #name,
                                                               GH_CUDA_FUNCTIONS(GH_NAME)
                                                                   GH_CUDA_ASKED_FUNCTIONS(GH_NAME)
#undef GH_NAME
};

/* One caller's answers; a row is published by `caller_count`, a function by its pointer. */
struct caller {
  uintptr_t low, high;
  bool ahead; /* asked for all of NCCL's */
  void *real[GH_ENTRY_COUNT];
};
static struct caller callers[CALLERS];
GH_HOT_DATA static uint32_t caller_count = 0;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef void *(*dlsym_fn)(void *, const char *);
typedef void *(*dlvsym_fn)(void *, const char *, const char *);
typedef void *(*dlopen_fn)(const char *, int);
typedef int (*dlclose_fn)(void *);

/* What is looked for, and for whom. */
struct request {
  const char *name;
  const char *profiled;  /* pncclX; "" for CUDA's */
  const char *version;   /* the caller's object was linked to this one; NULL: to none */
  uintptr_t address;     /* in the caller */
  struct gh_object from; /* its object; `high` is 0 for code outside any */
};

static void *loader_function(const char *name) {
  struct gh_object object;
  void *found = NULL;
  if (gh_elf_named("libc.so", &object)) found = gh_elf_symbol(&object, name);
  if (!found && gh_elf_named("libdl.so", &object)) found = gh_elf_symbol(&object, name);
  return found;
}

/* Through the loader; handle may be RTLD_NEXT. Never a tail call: dlsym looks at who called it. */
static void *ask_loader(void *handle, const char *name, const char *version) {
  void *volatile found = NULL;
  if (version) {
    dlvsym_fn find = (dlvsym_fn)loader_function("dlvsym"); /* musl has none, and no versions */
    if (find) found = find(handle, name, version);
  } else {
    dlsym_fn find = (dlsym_fn)loader_function("dlsym");
    if (find) found = find(handle, name);
  }
  return found;
}

static bool is_self(const void *function) {
  const struct gh_object *self = gh_elf_self();
  return (uintptr_t)function >= self->low && (uintptr_t)function < self->high;
}

static bool is_usable(const void *function) { return function && !is_self(function); }

static bool is_in(const struct gh_object *object, const void *function) {
  return (uintptr_t)function >= object->low && (uintptr_t)function < object->high;
}

/* pncclX where the object is an NCCL, else X itself. */
static void *in_object(const struct gh_object *object, const struct request *r) {
  void *found = *r->profiled ? gh_elf_symbol(object, r->profiled) : NULL;
  if (!found) found = gh_elf_symbol(object, r->name);
  return is_usable(found) ? found : NULL;
}

/* The library that the user named, loaded once; NULL if none or not loadable. */
static void *named_library(const struct request *r) {
  static bool said;
  const char *path = gh_env_text(GH_ENV_NCCL_LIB);
  if (!path || !*r->profiled) return NULL;
  dlopen_fn open_library = (dlopen_fn)loader_function("dlopen");
  void *handle = open_library ? open_library(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!handle) {
    if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
      gh_log("%s='%s' can't be loaded and is ignored", gh_env_name(GH_ENV_NCCL_LIB), path);
    return NULL;
  }
  void *found = ask_loader(handle, r->profiled, NULL);
  if (!found) found = ask_loader(handle, r->name, NULL);
  return is_usable(found) ? found : NULL;
}

/* Like the loader, past an object that has the function in other versions alone. */
static void *in_global_scope(const struct request *r) {
  struct gh_object object;
  void *found = ask_loader(RTLD_NEXT, r->name, NULL);
  if (found && r->version && gh_elf_containing((uintptr_t)found, &object) &&
      !gh_elf_has_version(&object, r->version))
    found = ask_loader(RTLD_NEXT, r->name, r->version);
  return is_usable(found) ? found : NULL;
}

/* The library inside the caller's own object. A tool preloaded before the hook has the name, too,
 * perhaps that of pncclX as well, and calling it back would never end: no such object. */
static void *in_caller(const struct request *r) {
  if (!r->from.high || is_self((void *)r->address) || gh_elf_before_self(r->address)) return NULL;
  return gh_elf_symbol(&r->from, *r->profiled ? r->profiled : r->name);
}

/* What the caller's object was linked to, and what that was linked to, in the loader's order. */
static void *in_needed(const struct request *r) {
  dlopen_fn open_library = (dlopen_fn)loader_function("dlopen");
  dlclose_fn close_library = (dlclose_fn)loader_function("dlclose");
  if (!r->from.high || !*r->from.name || !open_library || !close_library) return NULL;
  void *handle = open_library(r->from.name, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return NULL;
  void *found = *r->profiled ? ask_loader(handle, r->profiled, NULL) : NULL;
  if (!found && r->version) found = ask_loader(handle, r->name, r->version);
  if (!found) found = ask_loader(handle, r->name, NULL);
  close_library(handle);
  return is_usable(found) && !is_in(&r->from, found) ? found : NULL;
}

static void *in_library(const struct request *r, const char *version) {
  static const char *const nccl[] = {"libnccl.so", "librccl.so", NULL};
  static const char *const cuda[] = {"libcudart.so", "libcudart-", NULL}; /* -: renamed in wheels */
  struct gh_object object;
  for (const char *const *prefix = *r->profiled ? nccl : cuda; *prefix; prefix++)
    if (gh_elf_defining(r->name, *prefix, version, &object)) return in_object(&object, r);
  return NULL;
}

/* The first object that has it. */
static void *anywhere(const struct request *r, const char *version) {
  struct gh_object object;
  if (*r->profiled && gh_elf_defining(r->profiled, NULL, NULL, &object))
    return gh_elf_symbol(&object, r->profiled);
  return gh_elf_defining(r->name, NULL, version, &object) ? in_object(&object, r) : NULL;
}

static bool is_nccl(enum gh_fn fn) { return *names[fn % GH_FN_COUNT] == 'p'; }

static const char *name_of(enum gh_fn fn) {
  return names[fn % GH_FN_COUNT] + (fn < GH_FN_COUNT && is_nccl(fn));
}

static struct request request_of(enum gh_fn fn, uintptr_t caller) {
  struct request r = {.name = name_of(fn), .profiled = "", .address = caller};
  if (!gh_elf_containing(caller, &r.from)) r.from = (struct gh_object){0};
  if (is_nccl(fn))
    r.profiled = names[fn % GH_FN_COUNT];
  else if (r.from.high)
    r.version = gh_elf_wanted_version(&r.from, "libcudart");
  return r;
}

static void *resolve(enum gh_fn fn, uintptr_t caller) {
  struct request r = request_of(fn, caller);
  void *found = named_library(&r);
  if (!found) found = in_global_scope(&r);
  if (!found) found = in_caller(&r);
  if (!found) found = in_needed(&r);
  if (!found) found = in_library(&r, r.version);
  if (!found) found = anywhere(&r, r.version);
  if (!found && r.version) found = in_library(&r, NULL);
  if (!found && r.version) found = anywhere(&r, NULL);
  return found;
}

GH_HOT static struct caller *known_caller(uintptr_t address) {
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

GH_HOT static struct caller *row_of(uintptr_t caller) {
  struct caller *row = known_caller(caller);
  return GH_UNLIKELY(!row) ? add_caller(caller) : row;
}

GH_HOT void *gh_resolve_optional(enum gh_fn fn, uintptr_t caller) {
  struct caller *row = row_of(caller);
  void *real = row ? __atomic_load_n(&row->real[fn], __ATOMIC_ACQUIRE) : NULL;
  if (GH_UNLIKELY(!real)) {
    real = resolve(fn, caller);
    if (row && real) {
      pin(real);
      __atomic_store_n(&row->real[fn], real, __ATOMIC_RELEASE);
    }
  }
  return real;
}

void *gh_resolve_known(enum gh_fn fn, uintptr_t caller) {
  struct caller *row = known_caller(caller);
  return row ? __atomic_load_n(&row->real[fn], __ATOMIC_ACQUIRE) : NULL;
}

/* All of NCCL's at once, and what timing needs: later, in a call, it would take that call's time;
 * and in a child of fork the loader's lock may be held for ever, by a thread that the child doesn't
 * have. */
void gh_resolve_ahead(uintptr_t caller) {
  struct caller *row = row_of(caller);
  if (!row || __atomic_load_n(&row->ahead, __ATOMIC_RELAXED) ||
      __atomic_exchange_n(&row->ahead, true, __ATOMIC_RELAXED))
    return;
  for (enum gh_fn fn = 0; fn < GH_FN_COUNT; fn++)
    if (is_nccl(fn)) gh_resolve_optional(fn, caller);
#define GH_FIND(name) gh_resolve_optional(GH_FN_cuda##name, caller);
  GH_CUDA_TIMING_FUNCTIONS(GH_FIND)
#undef GH_FIND
}

/* Remembered under the first one, so that those missing aren't looked for again. */
void *gh_resolve_first(const enum gh_fn *fns, size_t n, uintptr_t caller) {
  for (size_t i = 0; i < n; i++) {
    void *real = gh_resolve_optional(fns[i], caller);
    struct caller *row = real && i ? row_of(caller) : NULL;
    if (row) __atomic_store_n(&row->real[fns[0]], real, __ATOMIC_RELEASE);
    if (real) return real;
  }
  return NULL;
}

GH_HOT void *gh_real(enum gh_fn fn, uintptr_t caller) {
  static bool said[GH_ENTRY_COUNT];
  void *real = gh_resolve_optional(fn, caller);
  if (GH_UNLIKELY(!real) && !__atomic_exchange_n(&said[fn], true, __ATOMIC_RELAXED))
    gh_log("%s isn't in any library of this process; name yours in GREYHOUND_NCCL_LIB",
           name_of(fn));
  return real;
}

/* Keeps the answer for the first to ask; code outside any object is never kept. */
void *gh_real_kept(enum gh_fn fn, uintptr_t caller, struct gh_answer *kept) {
  void *real = gh_real(fn, caller);
  struct caller *row = known_caller(caller);
  uintptr_t none = 0;
  if (!real || !row || row->low == 0) return real;
  if (__atomic_compare_exchange_n(&kept->low, &none, row->low, false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED)) {
    __atomic_store_n(&kept->size, row->high - row->low, __ATOMIC_RELAXED);
    __atomic_store_n(&kept->real, real, __ATOMIC_RELEASE);
  }
  return real;
}
