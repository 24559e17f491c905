package secretfile

import (
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/envconf"
)

// A File is a secret setting and the file that it was read from.
type File struct {
	name  string // of the setting
	path  string // "" if the value is from elsewhere and does not change
	check func(credential.Secret) error
	log   *slog.Logger

	mu    sync.Mutex
	valid credential.Secret
	wrong string // the error that was logged last; "" if the file is valid
}

// New returns the File of a setting. value is its value at the start. path is "" if the value is from elsewhere. check
// returns an error if a new value is invalid; the error must not quote it.
func New(name, path string, value credential.Secret, check func(credential.Secret) error, log *slog.Logger) *File {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() { // a pipe can be read once
		path = ""
	}
	return &File{
		name:  name,
		path:  path,
		check: check,
		log:   log,
		valid: value,
	}
}

// Current reads the file and returns its content, or the last valid one.
func (f *File) Current() credential.Secret {
	value, changed := f.present()
	if changed {
		f.logChange()
	}
	return value
}

// present is like Current. It reports whether the value has changed instead of logging it.
func (f *File) present() (value credential.Secret, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		return f.valid, false
	}
	value, err := f.read()
	if err != nil {
		f.logProblem(err)
		return f.valid, false
	}
	if f.wrong != "" {
		f.log.Info("setting can be read again", "setting", f.name)
		f.wrong = ""
	}
	changed = value != f.valid
	f.valid = value
	return value, changed
}

func (f *File) logChange() { f.log.Info("setting changed", "setting", f.name) }

func (f *File) read() (credential.Secret, error) {
	info, err := os.Stat(f.path)
	if err == nil && !info.Mode().IsRegular() {
		return "", errors.New("is not a regular file") // opening a pipe would wait for its writer
	}
	text, err := envconf.ReadFile(f.path)
	if err != nil {
		return "", err
	}
	value := credential.Secret(text)
	return value, f.check(value)
}

func (f *File) logProblem(err error) {
	if f.wrong == err.Error() {
		return
	}
	f.wrong = err.Error()
	f.log.Error("setting not changed: its file cannot be used", "setting", f.name, "error", err)
}
