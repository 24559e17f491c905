package redisurl

import (
	"context"
	"net/url"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/credential"
)

// credentials returns a function that go-redis calls for the user and password of each new connection.
func credentials(source credential.Source) func(context.Context) (user, password string, err error) {
	return func(context.Context) (string, string, error) { return login(source()) }
}

// login returns the user and password for Redis, not for Sentinels, in a URL.
func login(address credential.Secret) (user, password string, err error) {
	parsed, err := url.Parse(address.Reveal())
	if err != nil {
		return "", "", ErrURL
	}
	if !parsed.Query().Has("master_name") {
		password, _ = parsed.User.Password()
		return parsed.User.Username(), password, nil
	}
	options, err := goredis.ParseFailoverURL(address.Reveal())
	if err != nil {
		return "", "", ErrURL
	}
	return options.Username, options.Password, nil
}

// SameServers reports whether two URLs are equal except for the user and password of Redis. It returns ErrURL if a
// URL is not valid.
func SameServers(one, other credential.Secret) (bool, error) {
	client, err := Open(other, Limits{Connections: 1}) // checks the format; it does not dial
	if err != nil {
		return false, err
	}
	_ = client.Close()
	first, err := withoutLogin(one)
	if err != nil {
		return false, err
	}
	second, err := withoutLogin(other)
	return err == nil && first == second, err
}

func withoutLogin(address credential.Secret) (string, error) {
	parsed, err := url.Parse(address.Reveal())
	if err != nil {
		return "", ErrURL
	}
	query := parsed.Query()
	if query.Has("master_name") {
		query.Del("username")
		query.Del("password")
	} else {
		parsed.User = nil
	}
	parsed.RawQuery = query.Encode()
	return parsed.String(), nil
}
