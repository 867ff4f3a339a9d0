/* The option --greyhound=MODE[,key=value...]: its modes, keys and validators.
 *
 * One table for the command line, the environment variable GREYHOUND and the
 * plugstack argument default=. No Slurm types here, so that it is tested alone.
 */
#ifndef GREYHOUND_OPTIONS_H
#define GREYHOUND_OPTIONS_H

#include <stddef.h>

#define GH_TEXT_BYTES 2048    /* longest accepted option text, NUL included */
#define GH_VALUE_BYTES 1024   /* longest accepted value of one key, NUL included */
#define GH_MESSAGE_BYTES 1024 /* room for a refusal */

enum gh_mode { GH_OPT_OFF, GH_OPT_OBSERVE, GH_OPT_ON };

enum gh_key {
  GH_KEY_THRESHOLD,
  GH_KEY_WARMUP,
  GH_KEY_RECORD_DIR,
  GH_KEY_FREEZE,
  GH_KEY_S4,
  GH_KEY_COUNT
};

/* A parsed option; value[KEY] is "" where the key was not given. */
struct gh_spec {
  enum gh_mode mode;
  char value[GH_KEY_COUNT][GH_VALUE_BYTES];
};

/* Parses TEXT into SPEC. Returns 0, or -1 with a message in WHY (GH_MESSAGE_BYTES)
 * that quotes the offending text and names the allowed modes and keys; SPEC is
 * unspecified then. */
int gh_spec_parse(const char *text, struct gh_spec *spec, char *why);

/* SPEC as an option's text into OUT (GH_TEXT_BYTES); -1 where it is longer. */
int gh_spec_print(const struct gh_spec *spec, char *out);

/* The mode `off` with no keys. */
void gh_spec_off(struct gh_spec *spec);

const char *gh_mode_name(enum gh_mode mode);
const char *gh_key_name(enum gh_key key);

#endif
