// Package secretfile reads secrets again from the files that NAME_FILE settings name, while the process runs.
//
// Such a file is rewritten by a Vault agent, replaced through a symbolic link by a CSI driver or a kubelet, or replaced
// by an administrator. Its rules:
//
//  1. The password of a store is read for each new connection. Existing connections stay open.
//  2. Keys are read every two seconds, and used when two consecutive readings are equal, so that a file that is being
//     rewritten is not used.
//  3. A file that is missing, empty or invalid changes nothing: the last valid value stays in use. The log has one line
//     when this begins and one when it ends. No line quotes the value or the path.
//  4. Only changes of the user and password in a store's URL take effect. A change of the server takes effect at the
//     next start: otherwise a process would use two servers at a time.
//
// The app packages of both services use it.
package secretfile

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
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

func (f *File) logChange() { f.log.Info("setting changed", "setting", f.name) }

// present is like Current. It reports whether the value has changed instead of logging it.
func (f *File) present() (value credential.Secret, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		return f.valid, false
	}
	value, err := f.read()
	switch {
	case err != nil && f.wrong != err.Error():
		f.wrong = err.Error()
		f.log.Error("setting not changed: its file cannot be used", "setting", f.name, "error", err)
	case err == nil && f.wrong != "":
		f.wrong = ""
		f.log.Info("setting can be read again", "setting", f.name)
	}
	if err != nil {
		return f.valid, false
	}
	changed = value != f.valid
	f.valid = value
	return value, changed
}

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

// keysInterval is how often the keys are read.
const keysInterval = 2 * time.Second

// Keys returns background work that replaces keys when their file changes, until its context ends. value is the text
// from which they were parsed.
func Keys(name, path string, value credential.Secret, keys seal.Keys, log *slog.Logger) func(context.Context) {
	file := New(name, path, value, func(text credential.Secret) error {
		_, err := seal.ParseKeys(text)
		return err
	}, log)
	return func(ctx context.Context) {
		used, seen := value, value // the text of the keys, and that of the last reading
		for file.path != "" {
			select {
			case <-ctx.Done():
				return
			case <-time.After(keysInterval):
			}
			text, _ := file.present()
			stable := text == seen
			seen = text
			if !stable || text == used {
				continue
			}
			// It never fails: present returns only text that the check has accepted.
			if fresh, err := seal.ParseKeys(text); err == nil {
				keys.Replace(fresh)
				used = text
				file.logChange()
			}
		}
	}
}

// errOtherServer reports that a new URL names a different server or database.
var errOtherServer = errors.New("names another server or database, which takes effect when the process starts")

// Postgres returns a Source for a PostgreSQL URL with the current user and password.
func Postgres(name, path string, url credential.Secret, log *slog.Logger) credential.Source {
	used, err := pgx.ParseConfig(url.Reveal())
	if err != nil { // the store reports it
		return credential.Fixed(url)
	}
	return New(name, path, url, func(text credential.Secret) error {
		config, err := pgx.ParseConfig(text.Reveal())
		switch {
		case err != nil:
			return errors.New("is not a PostgreSQL URL") // the library's error quotes it
		case !slices.Equal(servers(config), servers(used)) || config.Database != used.Database:
			return errOtherServer
		}
		return nil
	}, log).Current
}

// servers returns the hosts and ports of a URL, which may name several.
func servers(config *pgx.ConnConfig) []string {
	all := []string{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))}
	for _, other := range config.Fallbacks {
		all = append(all, net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))))
	}
	return slices.Compact(all) // with and without TLS
}

// Redis returns a Source for a Redis URL with the current user and password.
func Redis(name, path string, url credential.Secret, log *slog.Logger) credential.Source {
	return New(name, path, url, func(text credential.Secret) error {
		same, err := redisurl.SameServers(url, text)
		if err == nil && !same {
			err = errOtherServer
		}
		return err
	}, log).Current
}
