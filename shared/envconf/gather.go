package envconf

import (
	"maps"
	"slices"
	"strings"
)

// found is a setting's text and its source.
type found struct {
	text   string
	origin Origin
	path   string
}

// gather looks for every setting in the environment and then in the settings file.
func (r *reader) gather(environ []string) {
	outer := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		outer[name] = value
	}
	path := outer[Config]
	delete(outer, Config)
	maps.DeleteFunc(outer, fromCluster)
	r.unknown(outer, "")
	r.take(outer, found{origin: FromEnvironment})
	if path == "" {
		return
	}
	inner, mistakes := readSettings(path)
	for _, words := range mistakes {
		r.mistake(Config, words)
	}
	r.unknown(inner, " in the settings file")
	if r.take(inner, found{origin: FromConfig, path: path}) {
		r.exposed(Config, path)
	}
}

// take adds the settings of one source that no earlier source had. It reports whether the source contains a
// secret in plain text.
func (r *reader) take(place map[string]string, from found) (secret bool) {
	for _, s := range r.settings {
		if _, earlier := r.found[s.Name]; earlier || slices.Contains(r.wrong, s.Name) {
			continue
		}
		text, path := place[s.Name], place[s.Name+fileSuffix]
		switch {
		case text != "" && path != "":
			r.mistake(s.Name, "and "+s.Name+fileSuffix+" are both set: set only one")
		case text != "":
			from.text = text
			r.found[s.Name] = from
			secret = secret || s.Secret
		case path != "":
			text, err := ReadFile(path)
			if err != nil {
				r.mistake(s.Name+fileSuffix, "names a file that "+err.Error())
				r.wrong = append(r.wrong, s.Name)
				continue
			}
			r.found[s.Name] = found{text: text, origin: FromFile, path: path}
			if s.Secret {
				r.exposed(s.Name+fileSuffix, path)
			}
		}
	}
	return secret
}

func (r *reader) exposed(name, path string) {
	if worldReadable(path) {
		r.warnings = append(r.warnings,
			name+" names a file with a secret that every user of this machine can read: run chmod o-rwx on it")
	}
}
