// Package envconf answers: what is this process configured to do, and who said so?
//
// A struct with env, envDefault and doc tags (caarlos0/env) is filled from, the first that has it:
//
//  1. the environment: NAME=value, or NAME_FILE=path, the file whose content is the value;
//  2. the file of settings that ALMONER_CONFIG names: the same, in lines of NAME=value;
//  3. the default.
//
// Its rules, each with its test:
//
//  1. A value of nothing is as no value: NAME= asks for the default.
//  2. NAME and NAME_FILE together, in one place, are a mistake. One line feed at the end of such a file is not part of the value.
//  3. A name that begins with ALMONER_ and that no program of Almoner knows is a mistake: a default would silently be in
//     force in its place. What the other programs know is let pass (names.txt), since all may be told in one place.
//  4. Every mistake is reported at once, each in a line that begins with the name of its setting.
//  5. No value and no path is ever quoted in a mistake: what was written may be a secret in the wrong place.
//
// The mains of both services call it, and those of the tools; `check-config` prints what it found (Reading).
package envconf
