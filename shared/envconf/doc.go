// Package envconf loads the configuration of a process and records where each value came from.
//
// It fills a struct with env, envDefault and doc tags (caarlos0/env). The first source that has a value wins:
//
// 1. the environment: NAME=value, or NAME_FILE=path, the file whose content is the value;
// 2. the settings file named by ALMONER_CONFIG: the same, in lines of NAME=value;
// 3. the default.
//
// Its rules, each with its test:
//
//  1. An empty value counts as no value: NAME= selects the default.
//  2. NAME and NAME_FILE in the same source are a mistake. One line feed at the end of such a file is not part of the
//     value.
//  3. A name that begins with ALMONER_ and is unknown to every Almoner program is a mistake, because a default would
//     silently apply instead. Names of other Almoner programs are allowed (names.txt), since all settings may be in one
//     place.
//  4. All mistakes are reported at once, each in a line that begins with the name of its setting.
//  5. A mistake never quotes a value or a path: it may be a secret in the wrong place.
//
// The main packages of both services and of the tools call it; `check-config` prints the result (Reading).
package envconf
