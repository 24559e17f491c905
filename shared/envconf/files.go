package envconf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/go-envparse"
)

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
