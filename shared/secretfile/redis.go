package secretfile

import (
	"log/slog"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/redisurl"
)

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
