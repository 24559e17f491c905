package bench

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lestrrat-go/jwx/v2/jwk"

	"github.com/almonerhq/almoner/shared/accesstoken"
	"github.com/almonerhq/almoner/shared/perm"
)

// floorVariable makes this test binary the floor server: it holds the URL of its Redis.
const floorVariable = "ALMONER_BENCH_FLOOR"

// The script compares and sets, as the least that makes a token good for one use.
const floorScript = `redis.call('HGET', KEYS[1], 'rh') redis.call('HSET', KEYS[1], 'rh', ARGV[1]) return 'ok'`

// startFloor starts the floor server in a process of its own.
func startFloor(t *testing.T, redis string) target {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), floorVariable+"="+redis)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = command.Process.Kill(), command.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal("the floor server does not start")
	}
	return target{"floor", strings.TrimSpace(line), command.Process.Pid}
}

// serveFloor is the floor server.
func serveFloor(redis string) error {
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := jwk.FromRaw(raw)
	if err == nil {
		err = private.Set(jwk.KeyIDKey, "floor")
	}
	if err != nil {
		return err
	}
	key, err := accesstoken.NewSigningKey(private)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	idle := make(chan *redisLine, 64)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := answerFloor(w, r, key, redis, idle); err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
		}
	})}
	return server.Serve(listener)
}

func answerFloor(w http.ResponseWriter, r *http.Request, key accesstoken.SigningKey, redis string, idle chan *redisLine) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	line, err := lineTo(redis, idle)
	if err != nil {
		return err
	}
	if err := line.eval("floor:{"+r.PostForm.Get("client_id")+"}", rand.Text()); err != nil {
		return err
	}
	idle <- line
	now := time.Now()
	access, err := accesstoken.Sign(key, accesstoken.Claims{
		Issuer: "http://localhost", Subject: uuid.New(), Audience: r.PostForm.Get("resource"), Expires: now.Add(time.Hour), IssuedAt: now,
		ID: uuid.NewString(), ClientID: r.PostForm.Get("client_id"), Scope: perm.NewSet(perm.ProgrammesRead), TenantID: uuid.New(), GrantID: uuid.New(),
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{
		"access_token": access.Reveal(), "token_type": "Bearer", "expires_in": 3600, "refresh_token": rand.Text() + rand.Text(),
	})
}

// A redisLine is a connection to Redis: the protocol by hand is the least there is.
type redisLine struct {
	net.Conn
	in *bufio.Reader
}

func lineTo(address string, idle chan *redisLine) (*redisLine, error) {
	select {
	case line := <-idle:
		return line, nil
	default:
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	connection, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	line := &redisLine{connection, bufio.NewReader(connection)}
	password, _ := u.User.Password()
	return line, line.do("AUTH", password)
}

func (l *redisLine) eval(key, value string) error { return l.do("EVAL", floorScript, "1", key, value) }

// do sends a command and reads its answer, a simple string or one bulk of text.
func (l *redisLine) do(words ...string) error {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, "*%d\r\n", len(words)) // a Builder does not fail
	for _, word := range words {
		_, _ = fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(l.Conn, out.String()); err != nil {
		return err
	}
	first, err := l.in.ReadString('\n')
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(first, "-"):
		return fmt.Errorf("redis refuses: %.20s", first)
	case strings.HasPrefix(first, "$"):
		_, err = l.in.ReadString('\n')
	}
	return err
}
