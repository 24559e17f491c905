package harness

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A RedisRelay stands between the services and a Redis of its own. It can lose the answers of scripts about grants
// after they have run, and give those to other questions in their place.
type RedisRelay struct {
	URL string // for the services
	Dir string // the folder of the one behind it is in here

	server   string
	listener net.Listener

	mu     sync.Mutex
	given  map[string][]byte // the last answer of each word
	spoils int               // how many answers more
	word   string            // what is given in their place, "" for nothing: the connection ends
}

// NewRedisRelay is stopped, with its Redis, when the test ends.
func NewRedisRelay(t testing.TB) *RedisRelay {
	t.Helper()
	redis := several(t, localstore.StartRedis)
	address, err := url.Parse(redis.URL)
	if err != nil {
		t.Fatal("the URL of Redis cannot be read")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	r := &RedisRelay{Dir: filepath.Dir(redis.Dir), server: address.Host, listener: listener, given: map[string][]byte{}}
	address.Host = listener.Addr().String()
	r.URL = address.String()
	go r.accept()
	return r
}

// Lose loses the next answers, as many as times says.
func (r *RedisRelay) Lose(times int) { r.spoil(times, "") }

// Mistake gives in place of the next answers the last one with the word, as a connection that is out of step does.
func (r *RedisRelay) Mistake(t testing.TB, word string, times int) {
	t.Helper()
	r.mu.Lock()
	known := r.given[word] != nil
	r.mu.Unlock()
	if !known {
		t.Fatalf("no script has answered %q yet", word)
	}
	r.spoil(times, word)
}

func (r *RedisRelay) spoil(times int, word string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoils, r.word = times, word
}

// EveryAnswer is more than are given while a request is served. Stop ends it.
const EveryAnswer = 1 << 20

// Stop lets answers through again, and checks that one was spoilt.
func (r *RedisRelay) Stop(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spoils == EveryAnswer {
		t.Error("no answer was spoilt")
	}
	r.spoils = 0
}

// WantsDone checks that all was done that the relay was told to do.
func (r *RedisRelay) WantsDone(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spoils != 0 {
		t.Errorf("%d more answers were to be spoilt", r.spoils)
	}
	r.spoils = 0
}

func (r *RedisRelay) accept() {
	for {
		service, err := r.listener.Accept()
		if err != nil {
			return
		}
		go r.serve(service)
	}
}

// serve passes on one question after the other, each with its answer.
func (r *RedisRelay) serve(service net.Conn) {
	defer func() { _ = service.Close() }()
	backend, err := net.Dial("tcp", r.server)
	if err != nil {
		return
	}
	defer func() { _ = backend.Close() }()
	questions, answers := bufio.NewReader(service), bufio.NewReader(backend)
	for {
		question, err := readRESP(questions)
		if err != nil {
			return
		}
		if _, err := backend.Write(question); err != nil {
			return
		}
		answer, err := readRESP(answers)
		if err != nil {
			return
		}
		if answer = r.instead(question, answer); answer == nil {
			return
		}
		if _, err := service.Write(answer); err != nil {
			return
		}
	}
}

// instead is what is passed on in place of the answer, nil for nothing. What is no script's word about a grant passes
// as it is.
func (r *RedisRelay) instead(question, answer []byte) []byte {
	_, text, is := strings.Cut(string(answer), "\r\n")
	if !is || answer[0] != '$' || !bytes.Contains(bytes.ToLower(question), []byte("eval")) ||
		!bytes.Contains(question, []byte("g:{")) {
		return answer
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spoils > 0 {
		r.spoils--
		return r.given[r.word]
	}
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	r.given[word] = answer
	return answer
}

// readRESP reads one value as it is (Redis serialization protocol specification).
func readRESP(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	switch line[0] {
	case '$', '=', '!':
		if err != nil || count < 0 {
			return line, err
		}
		body := make([]byte, count+len("\r\n"))
		_, err := io.ReadFull(r, body)
		return append(line, body...), err
	case '%':
		count *= 2
	case '*', '~', '>':
	default:
		return line, nil
	}
	for range max(0, count) {
		element, err := readRESP(r)
		if err != nil {
			return nil, err
		}
		line = append(line, element...)
	}
	return line, nil
}
