package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// A redisConn is a connection to Redis that speaks RESP 2 directly: it costs little and allows pipelining.
type redisConn struct {
	connection net.Conn
	in         *bufio.Reader
	out        *bufio.Writer
}

func dialRedis(address string) (*redisConn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	connection, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	l := &redisConn{connection, bufio.NewReader(connection), bufio.NewWriterSize(connection, 1<<16)}
	password, _ := u.User.Password()
	_, err = l.do("AUTH", password)
	return l, err
}

// do sends a command and returns its reply.
func (l *redisConn) do(words ...string) (string, error) {
	l.queue(words...)
	if err := l.out.Flush(); err != nil {
		return "", err
	}
	return l.receive()
}

// queue queues a command. Flush returns any error.
func (l *redisConn) queue(words ...string) {
	_, _ = l.out.WriteString("*" + strconv.Itoa(len(words)) + "\r\n") // Flush returns the error
	for _, word := range words {
		_, _ = l.out.WriteString("$" + strconv.Itoa(len(word)) + "\r\n" + word + "\r\n")
	}
}

// receive reads the next reply: a simple string, a number or one bulk string.
func (l *redisConn) receive() (string, error) {
	line, err := l.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '-':
		return "", fmt.Errorf("redis refuses: %.40s", rest)
	case '$':
		length, err := strconv.Atoi(rest)
		if err != nil || length < 0 {
			return "", err
		}
		text := make([]byte, length+2)
		_, err = io.ReadFull(l.in, text)
		return string(text[:length]), err
	}
	return rest, nil
}

// memory returns the memory that Redis uses, in bytes (INFO memory, used_memory).
func (l *redisConn) memory() (float64, error) {
	info, err := l.do("INFO", "memory")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	line, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseFloat(line, 64)
}
