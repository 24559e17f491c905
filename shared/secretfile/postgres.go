package secretfile

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/credential"
)

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

// BeforeConnect returns a hook for pgxpool that makes each new connection use the current user and password.
func BeforeConnect(url credential.Source) func(context.Context, *pgx.ConnConfig) error {
	return func(_ context.Context, config *pgx.ConnConfig) error {
		present, err := pgx.ParseConfig(url().Reveal())
		if err != nil {
			return errors.New("the database URL cannot be read")
		}
		config.User, config.Password = present.User, present.Password
		return nil
	}
}
