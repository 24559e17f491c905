package secretfile

import (
	"context"
	"log/slog"
	"time"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/seal"
)

// keysInterval is how often the keys are read.
const keysInterval = 2 * time.Second

// A Keys replaces master keys when their file changes.
type Keys struct {
	file *File
	keys seal.Keys
	used credential.Secret // the text of keys
	seen credential.Secret // by the last reading
}

// NewKeys returns a Keys that replaces keys. value is the text from which they were parsed.
func NewKeys(name, path string, value credential.Secret, keys seal.Keys, log *slog.Logger) *Keys {
	file := New(name, path, value, func(text credential.Secret) error {
		_, err := seal.ParseKeys(text)
		return err
	}, log)
	return &Keys{
		file: file,
		keys: keys,
		used: value,
		seen: value,
	}
}

// Run reads the file until ctx ends.
func (k *Keys) Run(ctx context.Context) {
	if k.file.path == "" {
		return
	}
	ticker := time.NewTicker(keysInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.update()
		}
	}
}

// update uses the content of the file if the previous reading was the same.
func (k *Keys) update() {
	text, _ := k.file.present()
	stable := text == k.seen
	k.seen = text
	if !stable || text == k.used {
		return
	}
	keys, err := seal.ParseKeys(text)
	if err != nil {
		return // not possible: the file's check has parsed it
	}
	k.keys.Replace(keys)
	k.used = text
	k.file.logChange()
}
