package envconf

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/agnivade/levenshtein"
	"github.com/hashicorp/go-envparse"
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

const (
	// fileSuffix turns the name of a setting into the variable that names its file.
	fileSuffix = "_FILE"
	// maxFile is the maximum size of a file in bytes.
	maxFile = 1 << 20
)

// ReadFile returns the content of a file that NAME_FILE names, without a trailing line feed. The text of its error is a
// clause that continues "a file that".
func ReadFile(path string) (string, error) {
	content, err := readSmall(path)
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	switch {
	case text == "":
		return "", errors.New("is empty")
	case strings.ContainsRune(text, 0):
		return "", errors.New("is not text")
	}
	return text, nil
}

func readSmall(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, cannotBeRead(err)
	}
	defer func() { _ = file.Close() }() // read only
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, cannotBeRead(err)
	case len(content) > maxFile:
		return nil, fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return content, nil
}

// cannotBeRead omits the path, which may be a secret that was given by mistake.
func cannotBeRead(err error) error {
	if reason, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Errorf("cannot be read: %w", reason)
	}
	return errors.New("cannot be read")
}

// readSettings reads lines of NAME=value (go-envparse: ' and " quote, # starts a comment, nothing is
// expanded), and returns all mistakes.
func readSettings(path string) (values map[string]string, mistakes []string) {
	content, err := readSmall(path)
	if err != nil {
		return nil, []string{"names a file that " + err.Error()}
	}
	values = map[string]string{}
	for i, line := range bytes.Split(content, []byte("\n")) {
		wrong := func(words string) {
			mistakes = append(mistakes, fmt.Sprintf("names a file whose line %d %s", i+1, words))
		}
		one, err := envparse.Parse(bytes.NewReader(line))
		var parse *envparse.ParseError
		switch {
		case errors.As(err, &parse):
			wrong("is not NAME=value: " + reason(parse.Err))
		case endsInsideValue(line):
			wrong("has a # in its value: put the value in single quotes")
		}
		for name, value := range one {
			if _, twice := values[name]; twice {
				wrong("sets " + name + " a second time")
			}
			values[name] = value
		}
	}
	return values, mistakes
}

// reason returns the library's errors that do not quote the line.
func reason(err error) string {
	for _, plain := range []error{
		envparse.ErrMissingSeparator,
		envparse.ErrUnmatchedDouble,
		envparse.ErrUnmatchedSingle,
	} {
		if errors.Is(err, plain) {
			return err.Error()
		}
	}
	return "unexpected character"
}

// endsInsideValue reports whether the library treats a part of an unquoted value as a comment:
// PASSWORD=one#two.
func endsInsideValue(line []byte) bool {
	_, value, _ := bytes.Cut(line, []byte("="))
	before, _, comment := bytes.Cut(bytes.TrimSpace(value), []byte("#"))
	return comment && !bytes.ContainsAny(before, `'"`) && len(before) > 0 && !bytes.HasSuffix(before, []byte(" ")) &&
		!bytes.HasSuffix(before, []byte("\t"))
}

// worldReadable reports whether any user of the machine can read the file, according to its mode and the
// modes of all folders above it. It reports false for a read-only mount, because Kubernetes, Docker and
// systemd provide secrets that way and isolate them by other means.
func worldReadable(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return false
	}
	var mount syscall.Statfs_t
	const readOnly = 1 // ST_RDONLY of statvfs(3)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 {
		return false
	}
	if syscall.Statfs(path, &mount) != nil || mount.Flags&readOnly != 0 {
		return false
	}
	for folder := filepath.Dir(path); ; folder = filepath.Dir(folder) {
		if info, err := os.Stat(folder); err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if folder == filepath.Dir(folder) {
			return true
		}
	}
}

// namesText lists the settings of all Almoner programs, one name per line. `make generate` writes it.
//
//go:embed names.txt
var namesText string

// elsewhere lists variables that are not settings of a service: those of make run and of the examples of
// shared/client.
var elsewhere = []string{prefix + "HOME"}

// forTests is the prefix of variables for tests.
const forTests = prefix + "TEST_"

// unknown reports names that no program knows, with a suggestion.
func (r *reader) unknown(place map[string]string, where string) {
	var known []string
	for _, s := range r.settings {
		known = append(known, s.Name)
	}
	known = append(known, strings.Fields(namesText)...)
	for _, name := range slices.Sorted(maps.Keys(place)) {
		if !strings.HasPrefix(name, prefix) || strings.HasPrefix(name, forTests) {
			continue
		}
		base, isFile := strings.CutSuffix(name, fileSuffix)
		if slices.Contains(known, name) || slices.Contains(elsewhere, name) || isFile && slices.Contains(known, base) {
			continue
		}
		words := "is not a known setting" + where
		if name == Config { // the one of the environment was removed
			words = "must be set in the environment or by --config, not" + where
		} else if near := nearest(base, known); near != "" {
			if isFile {
				near += fileSuffix
			}
			words += ": did you mean " + near + "?"
		}
		r.mistake(name, words)
	}
}

// nearest returns the known name that name is probably a misspelling of, or "".
func nearest(name string, known []string) string {
	best, least := "", 3 // up to two letters may differ
	for _, one := range known {
		d := levenshtein.ComputeDistance(strings.TrimPrefix(name, prefix), strings.TrimPrefix(one, prefix))
		if d < least && d < len(one)-len(prefix) {
			best, least = one, d
		}
	}
	return best
}

// fromCluster reports whether a variable was set by Kubernetes (or Docker links) for a service, so that it is
// not a misspelled setting: an ALMONER_PORT of Kubernetes is an address.
func fromCluster(name, value string) bool {
	return clusterName.MatchString(name) ||
		strings.HasPrefix(name, prefix) && strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

var clusterName = regexp.MustCompile(
	`^` + prefix + `(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`,
)
