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

// A redisLine is a connection to Redis: the protocol (RESP 2) by hand is the least there is, and lets commands follow
// one another without waiting for answers.
type redisLine struct {
	connection net.Conn
	in         *bufio.Reader
	out        *bufio.Writer
}

func dialRedis(address string) (*redisLine, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	connection, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	l := &redisLine{connection, bufio.NewReader(connection), bufio.NewWriterSize(connection, 1<<16)}
	password, _ := u.User.Password()
	_, err = l.do("AUTH", password)
	return l, err
}

// do sends a command and returns its answer.
func (l *redisLine) do(words ...string) (string, error) {
	l.say(words...)
	if err := l.out.Flush(); err != nil {
		return "", err
	}
	return l.hear()
}

// say puts a command on its way. Flush says whether it got there.
func (l *redisLine) say(words ...string) {
	_, _ = l.out.WriteString("*" + strconv.Itoa(len(words)) + "\r\n") // Flush tells
	for _, word := range words {
		_, _ = l.out.WriteString("$" + strconv.Itoa(len(word)) + "\r\n" + word + "\r\n")
	}
}

// hear reads the answer to the oldest command that has none yet: a simple string, a number or one bulk of text.
func (l *redisLine) hear() (string, error) {
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

// memory is what Redis uses, in bytes (INFO memory, used_memory).
func (l *redisLine) memory() (float64, error) {
	info, err := l.do("INFO", "memory")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	line, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseFloat(line, 64)
}
