package torture

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

// A RedisRelay is a proxy between authserver and its Redis. It can drop the replies of grant scripts after they have
// run, send them as replies to other commands, or deliver a call of one late.
type RedisRelay struct {
	mu     sync.Mutex
	given  map[string][]byte // result word → last reply
	spoils int               // number of replies still to spoil
	word   string            // result word of the reply sent replacement, "" to close the connection

	delayIn int            // number of calls until the one that is delayed, which counts too
	release chan struct{}  // closed when the delayed call is delivered
	delayed sync.WaitGroup // the delayed call, until Redis has answered it
}

// relayRedis restarts the processes of authserver with a relay between them and Redis, which ends with the test.
func relayRedis(t *testing.T, running *stack.Stack) *RedisRelay {
	t.Helper()
	r, redis := &RedisRelay{given: map[string][]byte{}}, hostOf(t, running.RedisURL)
	use := func(redisURL string) {
		for _, service := range running.Authservers {
			service.Set("ALMONER_REDIS_URL", redisURL)
			must(t, service.Restart(context.WithoutCancel(t.Context())))
		}
	}
	address := relayTo(t, redis, r.serve)
	t.Cleanup(func() { use(running.RedisURL) })
	use(strings.Replace(running.RedisURL, redis, address, 1))
	return r
}

// Lose drops the next replies, as many as times says.
func (r *RedisRelay) Lose(times int) { r.spoil(times, "") }

// Mistake replaces the next replies with the last reply that had the result word, as a desynchronized connection
// does.
func (r *RedisRelay) Mistake(t testing.TB, word string, times int) {
	t.Helper()
	r.mu.Lock()
	known := r.given[word] != nil
	r.mu.Unlock()
	if !known {
		t.Fatalf("no script has returned %q yet", word)
	}
	r.spoil(times, word)
}

func (r *RedisRelay) spoil(times int, word string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoils, r.word = times, word
}

// Delay keeps the nth next call of a grant script until Deliver. All other calls pass.
func (r *RedisRelay) Delay(nth int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delayIn, r.release = nth, make(chan struct{})
}

// Deliver sends the delayed call to Redis, although the service may have given up its connection, and returns when
// Redis has answered it.
func (r *RedisRelay) Deliver(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	if r.delayIn != 0 {
		t.Error("no call was delayed")
	}
	r.delayIn = 0
	close(r.release)
	r.mu.Unlock()
	r.delayed.Wait()
}

// EveryAnswer is more than the number of replies while a request is served. Stop ends it.
const EveryAnswer = 1 << 20

// Stop lets replies pass again and checks that at least one was spoiled.
func (r *RedisRelay) Stop(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spoils == EveryAnswer {
		t.Error("no reply was spoiled")
	}
	r.spoils = 0
}

// WantsDone checks that all requested replies were spoiled.
func (r *RedisRelay) WantsDone(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spoils != 0 {
		t.Errorf("%d requested replies were not spoiled", r.spoils)
	}
	r.spoils = 0
}

// serve forwards one command after the other, each with its reply.
func (r *RedisRelay) serve(service, backend net.Conn) {
	questions, answers := bufio.NewReader(service), bufio.NewReader(backend)
	for {
		question, err := readRESP(questions)
		if err != nil {
			return
		}
		answer, err := r.ask(backend, answers, question)
		if err != nil {
			return
		}
		if answer = r.replacement(question, answer); answer == nil {
			return
		}
		if _, err := service.Write(answer); err != nil {
			return
		}
	}
}

// ask sends a command to Redis and returns its reply.
func (r *RedisRelay) ask(backend io.Writer, answers *bufio.Reader, question []byte) ([]byte, error) {
	if release := r.heldUntil(question); release != nil {
		defer r.delayed.Done()
		<-release
	}
	if _, err := backend.Write(question); err != nil {
		return nil, err
	}
	return readRESP(answers)
}

// heldUntil returns the channel that is closed when a delayed command may be sent, or nil for other commands.
func (r *RedisRelay) heldUntil(question []byte) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.delayIn == 0 || !callsGrantScript(question) {
		return nil
	}
	if r.delayIn--; r.delayIn > 0 {
		return nil
	}
	r.delayed.Add(1)
	return r.release
}

func callsGrantScript(question []byte) bool {
	return bytes.Contains(bytes.ToLower(question), []byte("eval")) && bytes.Contains(question, []byte("g:{"))
}

// replacement returns what is forwarded in place of the reply, or nil for nothing. A reply that is not from a grant
// script is forwarded unchanged.
func (r *RedisRelay) replacement(question, answer []byte) []byte {
	_, text, is := strings.Cut(string(answer), "\r\n")
	if !is || answer[0] != '$' || !callsGrantScript(question) {
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

// readRESP reads one value without decoding it (Redis serialization protocol specification).
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
