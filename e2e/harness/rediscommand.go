package harness

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"
)

// RedisCommand sends a command to Redis with the owner's password and returns the raw reply.
func RedisCommand(redisURL, command string) (string, error) {
	address, err := url.Parse(redisURL)
	if err != nil {
		return "", fmt.Errorf("the URL of redis cannot be parsed")
	}
	connection, err := net.DialTimeout("tcp", address.Host, 30*time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	password, _ := address.User.Password()
	if _, err := fmt.Fprintf(connection, "AUTH %s\r\n%s\r\nQUIT\r\n", password, command); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(connection)
	greeting, answer, _ := strings.Cut(string(reply), "\r\n")
	if greeting != "+OK" || answer == "" || strings.HasPrefix(answer, "-") {
		return "", fmt.Errorf("redis to %s: %q, then %q (%w)", command, greeting, answer, err)
	}
	return answer, nil
}
